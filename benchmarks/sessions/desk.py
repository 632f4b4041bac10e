"""Customer records of a shop, and the tools of its support desk."""

from __future__ import annotations

import json
import random
from typing import Any

from context_compressor.lab.commands.demo_agent import ToolFailed

from .recorder import Toolbox

FIRST = (
    "Mara", "Nils", "Olga", "Pavel", "Quinn", "Rosa", "Sami", "Tove", "Uma", "Vera", "Wim", "Yara", "Zeno",
)  # fmt: skip
LAST = ("Lind", "Moreau", "Novak", "Okafor", "Peters", "Quist", "Rossi", "Silva", "Tanaka", "Urban", "Vogel")
STREETS = ("Mill Lane", "Harbour Road", "Station Street", "Elm Walk", "Castle Hill", "Long Row")
GOODS = (
    "desk lamp", "bread knife", "wool blanket", "garden chair", "tea kettle", "wall clock", "picture frame",
)  # fmt: skip
FINISHES = ("oak", "black", "brass", "linen", "sage", "ivory")
POLICIES = {
    "damaged": "Broken on arrival: refund or replacement within 30 days of delivery, no return. Above "
    "200.00 open a "
    "ticket of queue finance-2 first and quote its number as approval.",
    "late": "Late parcels: after 7 working days without a scan, replace; refund shipping in any case.",
    "address": "Addresses change on the record at once; on an order only while its status is processing.",
    "wrong_item": "Wrong article: replace with the right one; the customer keeps the wrong one below 40.00.",
}


class Desk(Toolbox):
    """Customer records and what may be done with them."""

    names = (
        "find_customer", "get_customer", "get_order", "get_policy", "refund_item", "change_address",
        "replace_item", "open_ticket", "add_note",
    )  # fmt: skip

    def __init__(self, rng: random.Random, customers: int) -> None:
        self._rng = rng
        self.customers: dict[str, dict[str, Any]] = {}
        self.orders: dict[str, dict[str, Any]] = {}
        self._tickets = 0
        for number in range(customers):
            self._make_customer(number)

    def find_customer(self, email: str) -> str:
        """Find a customer by address of mail."""
        for customer in self.customers.values():
            if customer["email"] == email:
                return _json({"customer_id": customer["customer_id"], "name": customer["name"]})
        raise ToolFailed(f"no customer with email {email}")

    def get_customer(self, customer_id: str) -> str:
        """Return the whole record."""
        return _json(self._customer(customer_id))

    def get_order(self, order_id: str) -> str:
        """Return an order with its items and what happened to its parcel."""
        return _json(self._order(order_id))

    def get_policy(self, topic: str) -> str:
        """Return what the rules say."""
        if topic not in POLICIES:
            raise ToolFailed(f"no policy {topic!r}; there are {', '.join(POLICIES)}")
        return POLICIES[topic]

    def refund_item(self, order_id: str, item_id: str, approval: str | None = None) -> str:
        """Pay an item back."""
        order, item = self._order(order_id), self._item(order_id, item_id)
        if order["status"] != "delivered":
            raise ToolFailed(f"{order_id} is {order['status']}, not delivered")
        if item["price"] > 200 and approval is None:
            raise ToolFailed(
                f"{item_id} costs {item['price']:.2f}, above 200.00; name the ticket that approves it"
            )
        item["state"] = "refunded"
        return _json({"refunded": item_id, "amount": item["price"], "to": order["payment"]["method_id"]})

    def replace_item(self, order_id: str, item_id: str) -> str:
        """Send an item again."""
        self._item(order_id, item_id)["state"] = "replaced"
        return _json({"replacement_order": f"W{self._rng.randint(10**6, 10**7 - 1)}", "for": item_id})

    def change_address(self, customer_id: str, street: str, zip: str) -> str:
        """Change the address of a record."""
        address = self._customer(customer_id)["address"]
        address.update({"street": street, "zip": zip})
        return _json({"customer_id": customer_id, "address": address})

    def open_ticket(self, queue: str, order_id: str, text: str) -> str:
        """Ask colleagues."""
        self._order(order_id)
        self._tickets += 1
        return _json(
            {"ticket": f"TK-{4000 + self._tickets * 7}", "queue": queue, "state": "approved", "text": text}
        )

    def add_note(self, customer_id: str, text: str) -> str:
        """Note something on a record."""
        notes = self._customer(customer_id)["notes"]
        notes.append(text)
        return _json({"customer_id": customer_id, "notes": len(notes)})

    def _customer(self, customer_id: str) -> dict[str, Any]:
        if customer_id not in self.customers:
            raise ToolFailed(f"no customer {customer_id}")
        return self.customers[customer_id]

    def _order(self, order_id: str) -> dict[str, Any]:
        if order_id not in self.orders:
            raise ToolFailed(f"no order {order_id}; ids are a W and seven digits")
        return self.orders[order_id]

    def _item(self, order_id: str, item_id: str) -> dict[str, Any]:
        for item in self._order(order_id)["items"]:
            if item["item_id"] == item_id:
                found: dict[str, Any] = item
                return found
        raise ToolFailed(f"{order_id} has no item {item_id}")

    def _make_customer(self, number: int) -> None:
        rng = self._rng
        name = f"{rng.choice(FIRST)} {rng.choice(LAST)}"
        customer_id = f"{name.lower().replace(' ', '_')}_{rng.randint(1000, 9999)}"
        method_id = f"card_{rng.randint(10**6, 10**7 - 1)}"
        orders = [self._make_order(customer_id, method_id) for _ in range(rng.randint(2, 6))]
        self.customers[customer_id] = {
            "customer_id": customer_id,
            "name": name,
            "email": f"{name.lower().replace(' ', '.')}{number}@example.net",
            "address": {
                "street": f"{rng.randint(1, 200)} {rng.choice(STREETS)}",
                "zip": f"{rng.randint(10000, 99999)}",
            },
            "payment_methods": [
                {"method_id": method_id, "kind": "card", "last_four": f"{rng.randint(0, 9999):04}"}
            ],
            "orders": orders,
            "consents": {"newsletter": rng.random() < 0.5, "profiling": False, "updated": "2025-11-03"},
            "notes": [],
        }

    def _make_order(self, customer_id: str, method_id: str) -> str:
        rng = self._rng
        order_id = f"W{rng.randint(10**6, 10**7 - 1)}"
        items: list[dict[str, Any]] = []
        for _ in range(rng.randint(1, 5)):
            item: dict[str, Any] = {
                "item_id": f"{rng.randint(10**9, 10**10 - 1)}",
                "sku": f"{rng.choice('BDFGH')}{rng.randint(10, 99)}-{rng.randint(100, 999)}",
                "name": rng.choice(GOODS),
                "options": {"finish": rng.choice(FINISHES), "set_of": rng.choice((1, 2, 4))},
                "price": rng.randint(900, 32000) / 100,
                "state": "ok",
            }
            items.append(item)
        status = rng.choices(("delivered", "shipped", "processing"), (6, 2, 1))[0]
        scans = [
            {
                "at": f"2026-01-{2 + scan:02}T{rng.randint(6, 20):02}:{rng.randint(0, 59):02}",
                "place": f"hub-{rng.randint(1, 40)}",
                "scan_id": f"{rng.getrandbits(40):010x}",
                "text": rng.choice(("sorted", "loaded", "handed over")),
            }
            for scan in range(rng.randint(2, 9))
        ]
        self.orders[order_id] = {
            "order_id": order_id,
            "customer_id": customer_id,
            "status": status,
            "payment": {"method_id": method_id, "total": round(sum(item["price"] for item in items), 2)},
            "items": items,
            "parcel": {"tracking": f"1Z{rng.getrandbits(44):011X}", "scans": scans},
        }
        return order_id


def _json(value: object) -> str:
    return json.dumps(value, indent=2)
