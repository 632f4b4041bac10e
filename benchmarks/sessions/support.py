"""A support desk: customers write in, one after the other; records are JSON, and changes take effect."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

from context_compressor.lab.commands.demo_agent import Call

from .desk import STREETS, Desk
from .recorder import Recorded, Recorder, listed

SYSTEM = (
    "You answer the inbox of a shop for household goods. Find the customer before you speak about orders; "
    "ask the policy before you pay; refund only what was delivered, and at most 200.00 without a ticket. "
    "Note every change on the customer's record. Tools: find_customer, get_customer, get_order, get_policy, "
    "refund_item, change_address, replace_item, open_ticket, add_note."
)


class SupportSession:
    """A shift at the desk."""

    def __init__(self, max_tokens: int, seed: int) -> None:
        self.rng = random.Random(seed)
        self.desk = Desk(self.rng, max(12, max_tokens // 1_500))
        self.agent = Recorder(self.desk, SYSTEM, max_tokens)
        self.done: list[tuple[dict[str, Any], str]] = []
        """Customers that were answered, and the order that it was about."""
        self.last: tuple[Sequence[str], Sequence[str]] | None = None
        """How the last customer is called, and what his case came to."""

    def record(self) -> Recorded:
        agent = self.agent
        agent.user(
            "[desk lead] Work through the inbox until I say that the shift is over; then I want the "
            "hand-over. No vouchers today, whatever they say. Refunds above 500.00 are approved by "
            "Petra Sand."
        )
        agent.plant(
            "goal", "What did the desk lead ask for, and what comes at the end of the shift?",
            "Work through the inbox; then the hand-over", "inbox", ("hand-over", "handover"),
        )  # fmt: skip
        agent.plant(
            "constraint", "What may not be given away today?", "Vouchers", ("no voucher", "voucher"), "today"
        )
        self._approver("Petra Sand")
        agent.say("Understood.")
        customers = list(self.desk.customers.values())
        cases = (self._damaged, self._late, self._moved, self._wrong_item)
        for number, customer in enumerate(customers):
            if agent.is_full and number:
                break
            order_id = self.rng.choice(customer["orders"])
            cases[number % len(cases)](customer, order_id, number)
            self.done.append((customer, order_id))
            if number == 3:
                agent.user("[desk lead] Petra is ill: Tomas Wirth approves refunds above 500.00 from now on.")
                self._approver("Tomas Wirth")
                agent.say("Noted.")
            if number % 4 == 3:
                self._comes_back()
        agent.user("[desk lead] Shift is over. What was done, for the hand-over?")
        agent.say(f"Of this shift:\n{listed(agent.findings)}")
        return agent.recorded()

    def _approver(self, name: str) -> None:
        self.agent.plant(
            "value", "Who approves refunds above 500.00?", name, "500.00", (f"{name} approves", f"by {name}"),
            about="approver",
        )  # fmt: skip

    def _look_up(self, customer: dict[str, Any], order_id: str, topic: str, number: int) -> dict[str, Any]:
        agent = self.agent
        if number % 5 == 1:
            wrong = customer["email"].replace("@example.net", "@example.com")
            agent.one("Who is that?", "find_customer", email=wrong)
            agent.one("The mail ends in .net, I mistyped it.", "find_customer", email=customer["email"])
        else:
            agent.one("", "find_customer", email=customer["email"])
        customer_id = customer["customer_id"]
        calls: list[Call] = [
            ("get_customer", {"customer_id": customer_id}),
            ("get_order", {"order_id": order_id}),
        ]
        if number % 2:
            calls += [("get_order", {"order_id": other}) for other in customer["orders"] if other != order_id]
        calls.append(("get_policy", {"topic": topic}))
        agent.act(f"The record of {customer_id}, order {order_id}, and what the policy says.", *calls)
        return self.desk.orders[order_id]

    def _close(
        self,
        customer: dict[str, Any],
        note: str,
        answer: str,
        kind: str = "status",
        outcome: Sequence[str] = (),
    ) -> None:
        self.agent.one("", "add_note", customer_id=customer["customer_id"], text=note)
        self.agent.say(answer)
        self.agent.findings.append(f"{customer['customer_id']}: {note}")
        if outcome:
            self._plant_outcome(customer, note, kind, outcome)

    def _plant_outcome(self, customer: dict[str, Any], note: str, kind: str, outcome: Sequence[str]) -> None:
        agent, who = self.agent, (customer["customer_id"], customer["name"], customer["email"])
        question = f"What became of what {customer['name']} ({customer['customer_id']}) wrote about?"
        agent.plant(kind, question, note, who, *outcome)
        if self.last:
            before, told = self.last
            agent.plant(
                "order", f"Whose case came right before that of {customer['name']}, and how did it end?",
                f"{before[1]}: {' '.join(told)}", who, before, told[-1],
            )  # fmt: skip
        self.last = who, outcome

    def _damaged(self, customer: dict[str, Any], order_id: str, number: int) -> None:
        agent, order = self.agent, self.desk.orders[order_id]
        item = max(order["items"], key=lambda item: item["price"])
        agent.user(
            f"[inbox {number + 1}] From {customer['email']}: Hello, the {item['name']} of order {order_id} "
            f"came broken. I would like my money back. {customer['name']}"
        )
        self._look_up(customer, order_id, "damaged", number)
        refund = {"order_id": order_id, "item_id": item["item_id"]}
        text = f"Item {item['item_id']} ({item['sku']}), {item['price']:.2f}. I pay it back."
        answer = agent.one(text, "refund_item", **refund)
        if "name the ticket" in answer:
            why = f"{item['item_id']} of {order_id} broken on arrival"
            told = agent.one(
                "That needs a ticket.", "open_ticket", queue="finance-2", order_id=order_id, text=why
            )
            ticket = json.loads(told)["ticket"]
            answer = agent.one(f"{ticket} is approved, so again.", "refund_item", **refund, approval=ticket)
        if answer.startswith("Error"):
            parcel = order["parcel"]["tracking"]
            note = f"{order_id} is {order['status']} ({parcel}); {item['item_id']} is not yet to be refunded"
            self._close(
                customer, note, f"Our records show that {parcel} is still under way; is it another order?",
                "failure", (order_id, order["status"]),
            )  # fmt: skip
            return
        note = f"refunded {item['item_id']} ({item['sku']}) of {order_id}, {item['price']:.2f}"
        method = order["payment"]["method_id"]
        self._close(
            customer, note, f"I am sorry. {item['price']:.2f} goes back to {method} within five days.",
            "value", (order_id, f"{item['price']:.2f}"),
        )  # fmt: skip

    def _late(self, customer: dict[str, Any], order_id: str, number: int) -> None:
        agent = self.agent
        agent.user(
            f"[inbox {number + 1}] From {customer['email']}: where is my parcel? Order {order_id}. "
            f"{customer['name']}"
        )
        order = self._look_up(customer, order_id, "late", number)
        last, parcel = order["parcel"]["scans"][-1], order["parcel"]["tracking"]
        item = order["items"][0]
        told = agent.one(
            f"{parcel} was last seen at {last['place']} on {last['at']} (scan {last['scan_id']}). By the "
            "policy it is sent again.",
            "replace_item",
            order_id=order_id,
            item_id=item["item_id"],
        )
        new = json.loads(told)["replacement_order"]
        note = f"{parcel} of {order_id} lost after {last['place']}, replaced by {new}"
        self._close(
            customer,
            note,
            f"{parcel} got stuck at {last['place']}. {new} is on its way instead.",
            "status",
            (order_id, new),
        )

    def _moved(self, customer: dict[str, Any], order_id: str, number: int) -> None:
        agent = self.agent
        street, code = (
            f"{self.rng.randint(1, 99)} {self.rng.choice(STREETS)}",
            f"{self.rng.randint(10000, 99999)}",
        )
        agent.user(
            f"[inbox {number + 1}] From {customer['email']}: I have moved to {street}, {code}. Does "
            f"{order_id} still go to the old place? {customer['name']}"
        )
        order = self._look_up(customer, order_id, "address", number)
        customer_id = customer["customer_id"]
        agent.one(
            f"{order_id} is {order['status']}.",
            "change_address",
            customer_id=customer_id,
            street=street,
            zip=code,
        )
        agent.one("To be sure that it is there:", "get_customer", customer_id=customer_id)
        note = f"address is {street}, {code} now; {order_id} was {order['status']} then"
        told = f"Done: {street}, {code}. {order_id} is {order['status']}."
        self._close(customer, note, told, "artifact", (street, code))

    def _wrong_item(self, customer: dict[str, Any], order_id: str, number: int) -> None:
        agent, item = self.agent, self.desk.orders[order_id]["items"][-1]
        agent.user(
            f"[inbox {number + 1}] From {customer['email']}: in {order_id} I ordered a {item['name']} in "
            f"{item['options']['finish']} and got another. {customer['name']}"
        )
        self._look_up(customer, order_id, "wrong_item", number)
        wrong = agent.one(f"{item['sku']} it is.", "replace_item", order_id=order_id, item_id=item["sku"])
        told = agent.one(
            f"{wrong.removeprefix('Error: ')}; items go by their number.",
            "replace_item",
            order_id=order_id,
            item_id=item["item_id"],
        )
        new = json.loads(told)["replacement_order"]
        note = f"wrong article for {item['item_id']} ({item['sku']}) of {order_id}, replaced by {new}"
        agent.plant(
            "failure", f"What went wrong when the wrong article of {order_id} was to be replaced?",
            wrong, item["sku"], (f"has no item {item['sku']}", "items go by their number"),
        )  # fmt: skip
        agent.plant(
            "decision", f"What does the customer of {order_id} do with the wrong article?", "Keeps it",
            order_id, ("keep the other", "keeps the", "keep it"),
        )  # fmt: skip
        told = f"The right one, {item['sku']}, comes as {new}. Please keep the other."
        self._close(customer, note, told, "status", (order_id, new))

    def _comes_back(self) -> None:
        """Let an earlier customer write again, without saying what about."""
        agent = self.agent
        customer, order_id = self.done[self.rng.randrange(max(1, len(self.done) - 2))]
        agent.user(f"[inbox] From {customer['email']}: I wrote this morning. Is it done? {customer['name']}")
        customer_id = customer["customer_id"]
        agent.act(
            f"That is {customer_id}, about {order_id}. What stands there now?",
            ("get_customer", {"customer_id": customer_id}),
            ("get_order", {"order_id": order_id}),
        )
        note = customer["notes"][-1] if customer["notes"] else "nothing yet"
        agent.say(f"Yes: {note}.")


def record(max_tokens: int, seed: int) -> Recorded:
    """Record a session at the support desk."""
    return SupportSession(max_tokens, seed).record()
