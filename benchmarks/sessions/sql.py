"""SQL: a wholesaler's SQLite database, made from a seed, with things in it that do not add up."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from typing import Any

from context_compressor.lab.commands.demo_agent import ToolFailed

from .recorder import Recorded, Recorder, Toolbox, listed

SYSTEM = (
    "You answer questions about the company's figures from its SQLite database. Look at tables before you "
    "query them, cite the ids of rows, and change data only to mend what is plainly wrong, saying what you "
    "changed. Tools: list_tables, describe_table, run_sql."
)
SCHEMA = """
CREATE TABLE customers (customer_id TEXT PRIMARY KEY, name TEXT, email TEXT, region TEXT, since TEXT);
CREATE TABLE products (sku TEXT PRIMARY KEY, title TEXT, list_price REAL, supplier TEXT);
CREATE TABLE orders (order_no TEXT PRIMARY KEY, customer_id TEXT, placed_on TEXT, status TEXT);
CREATE TABLE order_lines (order_no TEXT, line INTEGER, sku TEXT, quantity INTEGER, unit_price REAL);
CREATE TABLE shipments (
  shipment_no TEXT, order_no TEXT, carrier TEXT, sent_on TEXT, arrived_on TEXT, depot TEXT
);
CREATE TABLE refunds (refund_no TEXT, order_no TEXT, sku TEXT, amount REAL, reason TEXT);
CREATE TABLE stock_moves (move_no TEXT, sku TEXT, depot TEXT, quantity INTEGER, moved_on TEXT);
CREATE TABLE stock (sku TEXT, depot TEXT, quantity INTEGER);
"""
REGIONS = ("north", "south", "east", "west", "islands")
CARRIERS = ("Brisk", "Northline", "Parcelpost", "Quickvan")
DEPOTS = ("AAR-1", "BRN-2", "LIL-1", "TRN-4")
REASONS = ("broken on arrival", "wrong colour", "late", "not as described", "ordered twice")
FIRST = (
    "Ada", "Bram", "Carla", "Dov", "Elif", "Finn", "Greta", "Hugo", "Ines", "Jonas", "Kaja", "Luca", "Mila",
)  # fmt: skip
LAST = ("Abel", "Brandt", "Cole", "Dahl", "Engel", "Fabre", "Grau", "Holm", "Ito", "Jansen", "Kern", "Lopez")
THINGS = ("lamp", "kettle", "chair", "shelf", "clock", "mirror", "stool", "basket", "vase", "tray")
LOOKS = ("oak", "steel", "blue", "green", "folding", "small", "large", "woven", "white")


def make_database(rng: random.Random, orders: int) -> sqlite3.Connection:
    """Return a database in memory."""
    base = sqlite3.connect(":memory:")
    base.executescript(SCHEMA)

    def day(number: int) -> str:
        return f"2025-{1 + number // 28 % 12:02}-{1 + number % 28:02}"

    def insert(table: str, *row: Any) -> None:
        base.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)

    customers = [f"C-{rng.randint(0, 9999):04}{number:03}" for number in range(orders // 8)]
    for number, customer in enumerate(customers):
        name = f"{rng.choice(FIRST)} {rng.choice(LAST)}"
        email = f"{name.lower().replace(' ', '.')}{number // 2}@example.org"
        insert("customers", customer, name, email, rng.choice(REGIONS), day(rng.randrange(336)))
    prices = {f"{rng.choice('KLMNPR')}{rng.randint(100, 999)}-{number:03}": 0.0 for number in range(80)}
    for sku in prices:
        prices[sku] = rng.randint(400, 24000) / 100
        title = f"{rng.choice(LOOKS)} {rng.choice(THINGS)}"
        insert("products", sku, title, prices[sku], f"SUP-{rng.randint(1, 12):02}")
    skus = list(prices)
    for number in range(orders):
        order_no, placed = f"SO-25-{rng.randint(10, 99)}{number:04}", rng.randrange(300)
        status = rng.choices(("delivered", "open", "cancelled"), (8, 1, 1))[0]
        insert("orders", order_no, rng.choice(customers), day(placed), status)
        for line in range(1, rng.randint(2, 5)):
            sku = rng.choice(skus)
            price = prices[sku] if rng.random() < 0.96 else round(prices[sku] / 10, 2)
            insert("order_lines", order_no, line, sku, rng.randint(1, 12), price)
            if rng.random() < 0.07:
                refund = f"RF-{rng.randint(1000, 9999)}{number:04}"
                insert("refunds", refund, order_no, sku, price, rng.choice(REASONS))
        carrier, depot = rng.choice(CARRIERS), rng.choice(DEPOTS)
        late = rng.randint(6, 20) if carrier == "Quickvan" and depot == "LIL-1" else rng.randint(1, 5)
        parcel = f"{carrier[:2].upper()}{rng.getrandbits(36):09x}"
        insert("shipments", parcel, order_no, carrier, day(placed + 1), day(placed + 1 + late), depot)
    for sku in skus:
        for depot in DEPOTS:
            moves = [rng.randint(-30, 60) for _ in range(rng.randint(1, 4))]
            for quantity in moves:
                move = f"MV-{rng.getrandbits(32):08x}"
                insert("stock_moves", move, sku, depot, quantity, day(rng.randrange(336)))
            insert("stock", sku, depot, sum(moves) - (rng.randint(1, 40) if rng.random() < 0.1 else 0))
    base.commit()
    return base


class Database(Toolbox):
    """Tools over a database."""

    names = ("list_tables", "describe_table", "run_sql")

    def __init__(self, base: sqlite3.Connection) -> None:
        self._base = base

    def close(self) -> None:
        """Close the database."""
        self._base.close()

    def list_tables(self) -> str:
        """List tables with their rows."""
        names = [
            name for (name,) in self._base.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        ]
        counts = [self._base.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in names]
        return "\n".join(f"{name}  {count} rows" for name, count in zip(names, counts, strict=True))

    def describe_table(self, table: str) -> str:
        """Show columns and two rows."""
        columns = self._base.execute("SELECT name, type FROM pragma_table_info(?)", (table,)).fetchall()
        if not columns:
            raise ToolFailed(f"no such table: {table}")
        listing = "\n".join(f"{name} {kind}" for name, kind in columns)
        return f"{listing}\n\n{self.run_sql(f'SELECT * FROM {table} LIMIT 2')}"

    def run_sql(self, sql: str, limit: int = 100) -> str:
        """Run a statement; answers rows, columns parted by bars."""
        try:
            cursor = self._base.execute(sql)
        except sqlite3.Error as error:
            raise ToolFailed(f"{type(error).__name__}: {error}") from None
        if cursor.description is None:
            self._base.commit()
            return f"{cursor.rowcount} rows changed"
        rows = cursor.fetchmany(limit + 1)
        shown = [" | ".join(column[0] for column in cursor.description)]
        shown += [" | ".join(str(value) for value in row) for row in rows[:limit]]
        return "\n".join(
            [*shown, f"(stopped at {limit} rows)" if len(rows) > limit else f"({len(rows)} rows)"]
        )


def rows_of(answer: str) -> list[list[str]]:
    """Return the rows of an answer of `run_sql`, without the names of columns."""
    return [line.split(" | ") for line in answer.split("\n")[1:-1]]


LATE = """SELECT s.carrier, s.depot, count(*) AS parcels,
  round(avg(julianday(s.arrived_on) - julianday(s.sent_on)), 1) AS days
FROM shipments s WHERE s.sent_on LIKE '2025-{month}%' GROUP BY 1, 2 HAVING days > 0 ORDER BY days DESC"""
LATE_PARCELS = """SELECT s.shipment_no, s.order_no, o.customer_id, s.sent_on, s.arrived_on
FROM shipments s JOIN orders o USING (order_no)
WHERE s.carrier = '{carrier}' AND s.depot = '{depot}' ORDER BY s.order_no LIMIT {limit} OFFSET {offset}"""
ORDER = """SELECT o.order_no, o.placed_on, o.status, l.line, l.sku, p.title, l.quantity,
  l.unit_price, p.list_price
FROM orders o JOIN order_lines l USING (order_no) JOIN products p USING (sku) WHERE o.order_no = '{order}'"""
REFUNDED = """SELECT r.sku, p.title, p.supplier, count(*) AS refunds, round(sum(r.amount), 2) AS amount
FROM refunds r JOIN products p USING (sku) GROUP BY 1 ORDER BY refunds DESC, r.sku
LIMIT {limit} OFFSET {offset}"""
REFUNDS_OF = """SELECT r.refund_no, r.order_no, o.customer_id, r.amount, r.reason
FROM refunds r JOIN orders o USING (order_no) WHERE r.sku = '{sku}' ORDER BY r.refund_no"""
CHEAP = """SELECT l.order_no, l.line, l.sku, l.quantity, l.unit_price, p.list_price
FROM order_lines l JOIN products p USING (sku)
WHERE l.unit_price < p.list_price / 2 ORDER BY p.list_price DESC, l.order_no LIMIT {limit} OFFSET {offset}"""
STOCK = """SELECT s.sku, s.depot, s.quantity AS booked, sum(m.quantity) AS moved
FROM stock s JOIN stock_moves m USING (sku, depot) GROUP BY 1, 2
HAVING booked <> moved ORDER BY s.depot, s.sku LIMIT {limit}"""
MOVES = "SELECT * FROM stock_moves WHERE sku = '{sku}' ORDER BY depot, moved_on"


class SqlSession:
    """One analyst's day with the database."""

    def __init__(self, max_tokens: int, seed: int) -> None:
        self.rng = random.Random(seed)
        self.limit = 10 if max_tokens < 10_000 else 45
        self.database = Database(make_database(self.rng, 400 if max_tokens < 10_000 else 1_600))
        self.agent = Recorder(self.database, SYSTEM, max_tokens)
        self.orders: list[str] = []
        self.round = 0

    def record(self) -> Recorded:
        with closing(self.database):
            return self._record()

    def _record(self) -> Recorded:
        agent = self.agent
        agent.user(
            "I need to know before the meeting: who delivers late and from where, which articles come back, "
            "which orders were sold far below list price, and whether stock agrees with its movements. Name "
            "orders and articles, please. Amounts are in Danish crowns, and rows of customers stay as they "
            "are. The meeting is on Thursday at 09:30."
        )
        agent.plant(
            "goal", "What does the user need to know before the meeting?",
            "Who delivers late, what comes back, what was sold below list price, whether stock agrees",
            ("delivers late", "deliver late"), ("list price",), ("stock agrees", "stock agree"),
        )  # fmt: skip
        agent.plant(
            "constraint", "Which currency are amounts in?", "Danish crowns", "amounts", "Danish crowns"
        )
        agent.plant(
            "constraint", "Which rows must not be changed?", "Those of customers",
            "rows of customers", ("stay as they are", "not be changed"),
        )  # fmt: skip
        self._plan_meeting("Thursday", "09:30")
        agent.one(
            "Plan: look at the tables, then one question after the other. First the tables.", "list_tables"
        )
        tables = ("orders", "order_lines", "shipments", "products")
        agent.act("", *(("describe_table", {"table": table}) for table in tables))
        while not agent.is_full or not self.round:
            for work in (self._lateness, self._returns, self._prices, self._stock):
                work()
                if agent.is_full:
                    break
            self.round += 1
            if not agent.is_full:
                self._asked_back()
            if self.round == 1:
                agent.user("The meeting is moved to Friday at 14:45. Go on, please.")
                self._plan_meeting("Friday", "14:45")
        agent.user("That is enough. What do I tell them?")
        agent.say(f"With the ids that prove it:\n{listed(agent.findings)}")
        return agent.recorded()

    def _plan_meeting(self, day: str, time: str) -> None:
        self.agent.plant(
            "value", "When is the meeting?", f"{day} at {time}", "meeting", day, time, about="meeting"
        )

    def _sql(self, text: str, statement: str, **values: Any) -> list[list[str]]:
        return rows_of(self.agent.one(text, "run_sql", sql=statement.format(**values)))

    def _lateness(self) -> None:
        agent, month = self.agent, f"{1 + (self.round * 3 + 1) % 10:02}"
        if self.round == 0:
            wrong = LATE.replace("arrived_on", "delivered_on").format(month=month)
            error = agent.one("Deliveries first.", "run_sql", sql=wrong)
            agent.one(f"{error.split(': ')[-1]}: I look again.", "describe_table", table="shipments")
            agent.plant(
                "failure", "Why did the first query about deliveries fail?", error,
                "delivered_on", ("no such column", "no column"),
            )  # fmt: skip
        worst = self._sql(f"Days under way in month {month}, by carrier and depot.", LATE, month=month)[0]
        carrier, depot, _, days = worst
        text = f"{carrier} from {depot} takes {days} days. Which parcels?"
        offset = self.round * self.limit
        late = self._sql(text, LATE_PARCELS, carrier=carrier, depot=depot, limit=self.limit, offset=offset)
        if not late:
            late = self._sql(
                "From the first, then.", LATE_PARCELS, carrier=carrier, depot=depot, limit=9, offset=0
            )
        parcel, order, customer, sent, arrived = self.rng.choice(late)
        self.orders.append(order)
        agent.act(
            f"For example {parcel}, order {order} of {customer}. What was in it, and who waited?",
            ("run_sql", {"sql": ORDER.format(order=order)}),
            ("run_sql", {"sql": f"SELECT * FROM customers WHERE customer_id = '{customer}'"}),
        )
        agent.findings.append(
            f"{carrier} from {depot} was slow, {days} days on average in month {month}; {parcel} (order "
            f"{order}, customer {customer}), say, was sent {sent} and arrived {arrived}"
        )
        agent.plant(
            "value", f"Which carrier and depot were slowest in month {month}, and by how many days?",
            f"{carrier} from {depot}, {days} days", carrier, depot, (f"{days} days", f"| {days}"),
        )  # fmt: skip
        agent.plant(
            "artifact", f"Which parcel held order {order}, and when did it arrive?", f"{parcel}, {arrived}",
            order, parcel, arrived,
        )  # fmt: skip

    def _returns(self) -> None:
        agent = self.agent
        text = f"{agent.findings[-1]}. Next: what comes back."
        rows = self._sql(text, REFUNDED, limit=self.limit, offset=self.round * 5 % 60)
        sku, title, supplier, refunds, amount = rows[0]
        given = self._sql(f"{sku} ({title}), {refunds} times. Each of them:", REFUNDS_OF, sku=sku)
        number, order, customer, _, reason = given[0]
        others = "SELECT sku, title, list_price FROM products WHERE supplier = '{supplier}' ORDER BY sku"
        self._sql(f"{number}: {reason}. Is it the supplier, {supplier}?", others, supplier=supplier)
        self.orders.append(order)
        agent.findings.append(
            f"{sku} ({title}, {supplier}) came back {refunds} times for {amount}, such as {number} of order "
            f"{order} by {customer}: {reason}"
        )
        agent.plant(
            "artifact", f"How often did {sku} come back, and for what amount?", f"{refunds} times, {amount}",
            sku, (f"{refunds} times", f"| {refunds} |"), amount,
        )  # fmt: skip

    def _prices(self) -> None:
        agent = self.agent
        rows = self._sql("Next: sold far below list price.", CHEAP, limit=self.limit, offset=0)
        if not rows:
            agent.findings.append("No order line is left below half of its list price")
            return
        order, line, sku, _, paid, asked = self.rng.choice(rows[:8])
        self._sql(
            f"{order}, line {line}: {sku} at {paid} instead of {asked}. The whole order:", ORDER, order=order
        )
        mend = f"UPDATE order_lines SET unit_price = {asked} WHERE order_no = '{order}' AND line = {line}"
        agent.one("A slip of the decimal point. I mend this one.", "run_sql", sql=mend)
        self._sql("", ORDER, order=order)
        self.orders.append(order)
        agent.plant(
            "decision", f"Why was the price of {sku} in {order} changed?", "A slip of the decimal point",
            order, ("decimal point", "tenth"),
        )  # fmt: skip
        agent.plant(
            "value", f"What does {sku} cost in {order} now?", f"{asked}, it was {paid}", order,
            (f"= {asked}", f"says {asked}", f"{asked} now", f"now {asked}", f"to {asked}", f"-> {asked}"),
        )  # fmt: skip
        agent.findings.append(
            f"{order} line {line} had {sku} at {paid}, a tenth of {asked}; it says {asked} now"
        )

    def _stock(self) -> None:
        agent = self.agent
        rows = self._sql("Next: does stock agree with its movements?", STOCK, limit=self.limit)
        if not rows:
            agent.findings.append("Stock agrees with its movements everywhere now")
            return
        sku, depot, booked, moved = self.rng.choice(rows)
        moves = self._sql(f"{sku} at {depot}: {booked} booked, {moved} moved.", MOVES, sku=sku)
        last = [row for row in moves if row[2] == depot][-1]
        text = f"The last was {last[0]}. I set it right."
        if self.round == 0:
            wrong = f"UPDATE stock SET quantity = {moved} WHERE sku = '{sku}' AND warehouse = '{depot}'"
            error = agent.one(text, "run_sql", sql=wrong)
            agent.plant(
                "failure", "Why did the first correction of stock fail?", error,
                "warehouse", ("no such column", "no column", "column is depot"),
            )  # fmt: skip
            text = f"The column is depot. {last[0]} counts."
        right = f"UPDATE stock SET quantity = {moved} WHERE sku = '{sku}' AND depot = '{depot}'"
        agent.one(text, "run_sql", sql=right)
        agent.plant(
            "status", f"What was done about the stock of {sku} at {depot}?",
            f"Set to {moved}, it said {booked}",
            sku, depot, (f"quantity = {moved}", f"say {moved}", f"to {moved}", f"is {moved}", f"-> {moved}"),
        )  # fmt: skip
        agent.findings.append(
            f"Stock of {sku} at {depot} said {booked}, movements up to {last[0]} say {moved}; mended"
        )

    def _asked_back(self) -> None:
        """Let the user come back to an order from long ago."""
        agent, order = self.agent, self.orders[self.rng.randrange(max(1, len(self.orders) - 3))]
        nth = self.orders.index(order) + 1
        agent.user(
            f"Wait: the {nth}. order that you looked into, has it arrived? Then go on with another month."
        )
        rows = self._sql(
            f"That was {order}.", "SELECT * FROM shipments WHERE order_no = '{order}'", order=order
        )
        agent.say(f"{order} went out as {rows[0][0]} with {rows[0][2]} and arrived on {rows[0][4]}.")


def record(max_tokens: int, seed: int) -> Recorded:
    """Record a session of questions to a database."""
    return SqlSession(max_tokens, seed).record()
