"""Log analysis: a shop's services log a morning in which several things go wrong, each for its own reason."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass

from context_compressor.lab.commands.demo_agent import Call

from .files import Files, hits_of
from .planting import gist, set_to
from .recorder import Recorded, Recorder, listed

SERVICES = ("gateway", "orders", "payments", "stock", "mailer")
SYSTEM = (
    "You are on call for a web shop. Work out what went wrong from the logs, mend the settings where they "
    "are the cause, and keep a report in report.md. Quote trace ids, hosts and lines. Tools: list_files, "
    "read_file, grep, edit_file, write_file."
)


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that goes wrong: what each side logs, and the setting behind it."""

    service: str
    symptom: str
    """What the gateway logs."""
    cause: str
    """What the service logs; `{n}` is a number of the request."""
    sign: str
    """A pattern for the cause."""
    key: str
    bad: str
    good: str
    reason: str


FAULTS = (
    Fault(
        "payments", "502 upstream payments closed the connection",
        "pool ledger-rw exhausted: 20 of 20 connections in use, waited 5000 ms for payment PAY-{n}",
        "pool ledger-rw", "pool_size", "20", "60", "the pool is too small for the settlement job beside it",
    ),
    Fault(
        "orders", "500 orders could not accept",
        "spool write failed: [Errno 28] No space left on device: /var/spool/orders/batch-{n}.json",
        "Errno 28", "spool_keep_days", "90", "14", "the spool keeps three months of batches",
    ),
    Fault(
        "mailer", "202 accepted, confirmation delayed",
        "TLS handshake with smtp-relay-2.internal:465 failed: certificate 7f:3a:{n} has expired",
        "certificate", "relay", "smtp-relay-2.internal:465", "smtp-relay-3.internal:465",
        "the second relay still serves last year's certificate",
    ),
    Fault(
        "stock", "504 stock did not answer within 3000 ms",
        "full scan of stock_by_sku, 1840221 rows, 6120 ms, for SKU-{n}; index use is off",
        "full scan", "use_index", "no", "yes",
        "the index was switched off for the migration and never on again",
    ),
    Fault(
        "orders", "409 order exists already",
        "duplicate key order_no=ORD-{n}: second POST with the same basket within 900 ms",
        "duplicate key", "retry_post", "yes", "no", "the gateway repeats a POST that is merely slow",
    ),
    Fault(
        "payments", "503 payments worker gone",
        "worker 7 killed: out of memory, rss 2049 MB of 2048 MB, while rendering invoice INV-{n}",
        "out of memory", "render_inline", "yes", "no",
        "invoices are rendered in the worker, whole months at once",
    ),
)  # fmt: skip


def make_logs(rng: random.Random, requests: int) -> dict[str, str]:
    """Return logs and settings of a morning in which every fault has its time."""
    lines: dict[str, list[str]] = {service: [] for service in SERVICES}
    window = requests // len(FAULTS)
    for number in range(requests):
        fault = FAULTS[min(number // window, len(FAULTS) - 1)]
        is_hit = number % window > window // 3 and rng.random() < 0.12
        _log_request(rng, lines, number, fault if is_hit else None)
    texts = {f"logs/{service}.log": "\n".join(rows) for service, rows in lines.items()}
    for service in SERVICES:
        settings = [
            f"# {service}, production", f"listen = 0.0.0.0:{rng.randint(7000, 7999)}",
            f"workers = {rng.randint(4, 16)}", "log_level = INFO", f"queue = "
            f"{service}-in-{rng.randint(1, 9)}",
            *(f"{fault.key} = {fault.bad}" for fault in FAULTS if fault.service == service),
            f"shutdown_seconds = {rng.randint(10, 60)}",
        ]  # fmt: skip
        texts[f"etc/{service}.conf"] = "\n".join(settings)
    return texts


def _log_request(rng: random.Random, lines: dict[str, list[str]], number: int, fault: Fault | None) -> None:
    seconds = 6 * 3600 + number * 3 + rng.random()
    trace, host = f"{rng.getrandbits(48):012x}", rng.randint(1, 6)
    path = f"/{rng.choice(('basket', 'checkout', 'account', 'search'))}/{rng.randint(1000, 99999)}"
    for service in SERVICES:
        name = f"{service[:3]}-{host:02}"
        if fault is not None and service == fault.service:
            level, text = "ERROR", fault.cause.replace("{n}", str(rng.randint(100000, 999999)))
        elif fault is not None and service == "gateway":
            level, text = "ERROR", f"POST {path} {fault.symptom}"
        elif service == "gateway":
            level, text = "INFO", f"GET {path} 200 {rng.randint(8, 480)} ms {rng.randint(300, 90000)} bytes"
        elif rng.random() < 0.35:
            level = "WARN" if rng.random() < 0.04 else "INFO"
            text = f"done in {rng.randint(1, 300)} ms, queue at {rng.randint(0, 40)}"
        else:
            continue
        seconds += rng.random() / 5
        clock = f"{int(seconds // 3600):02}:{int(seconds // 60) % 60:02}:{seconds % 60:06.3f}"
        lines[service].append(f"2026-03-02T{clock} {level:5} {name} trace={trace} {text}")


class LogSession:
    """One engineer's morning with the logs."""

    def __init__(self, max_tokens: int, seed: int) -> None:
        self.rng = random.Random(seed)
        self.is_small = max_tokens < 20_000
        self.files = Files(make_logs(self.rng, 700 if self.is_small else 2_500))
        self.agent = Recorder(self.files, SYSTEM, max_tokens)
        self.traces: list[str] = []

    def record(self) -> Recorded:
        agent = self.agent
        agent.user(
            "Customers complain since about seven o'clock: failed payments, missing confirmations, slow "
            "pages. Find out what happened in logs/, one cause after the other, and mend the settings in "
            "etc/. Two rules: the listen ports stay as they are, and nothing is restarted before Ines Duarte "
            "has said yes. The morning round is at 10:15 in room Kiel."
        )
        agent.plant(
            "goal", "What is the agent asked to do about the complaints?",
            "Find the causes in logs/, one after the other, and mend the settings in etc/",
            ("failed payments", "complain"), ("mend the settings", "settings in etc"),
        )  # fmt: skip
        agent.plant(
            "constraint", "Under what condition may something be restarted?",
            "Only after Ines Duarte has said yes", "restart", "Ines Duarte",
        )  # fmt: skip
        agent.plant(
            "constraint",
            "Which settings must not be changed?",
            "The listen ports",
            "listen port",
            ("stay", "not"),
        )
        self._plan_round("10:15", "Kiel")
        agent.act(
            "Plan: 1. see what is there; 2. take the gateway's errors by kind; 3. follow a trace of each "
            "kind through the services; 4. compare with the settings, mend them; 5. report. First what is "
            "there.",
            ("list_files", {}),
            ("grep", {"pattern": "log_level|workers", "path": "etc/"}),
        )
        faults = self.rng.sample(FAULTS, len(FAULTS))
        for number in range(1_000):
            if agent.is_full and number:
                break
            self._investigate(faults[number % len(faults)], number, number >= len(faults))
            if number % 3 == 2:
                self._asked_back()
            if number == 2:
                agent.user("The round moves: it is at 11:40 in room Lund now. Go on, please.")
                self._plan_round("11:40", "Lund")
        agent.user("Thanks. Please sum up for the morning round: causes, evidence, what you changed.")
        report = agent.one("From the report, to be exact.", "read_file", path="report.md")
        written = report.count("\n") + 1
        agent.say(f"{written} lines stand in report.md. In short:\n{listed(agent.findings)}")
        return agent.recorded()

    def _plan_round(self, time: str, room: str) -> None:
        self.agent.plant(
            "value",
            "When and where is the morning round?",
            f"At {time} in room {room}",
            time,
            room,
            about="round",
        )

    def _investigate(self, fault: Fault, number: int, is_again: bool) -> None:
        agent = self.agent
        code = fault.symptom.split(" ")[0]
        pattern = f"ERROR .*{re.escape(fault.symptom)}" if not is_again else f"ERROR .* {code} "
        text = f"Next kind of error at the gateway: {code}."
        if is_again:
            text = f"Status {code} once more: are there others of it that I have not looked at?"
        limit = 8 if self.is_small else 30
        hits = hits_of(agent.one(text, "grep", pattern=pattern, path="logs/gateway.log", limit=limit))
        _, line, first = hits[number % len(hits)]
        trace = re.findall(r"trace=(\w+)", first)[0]
        self.traces.append(trace)
        calls: list[Call] = [("grep", {"pattern": trace, "path": f"logs/{one}.log"}) for one in SERVICES[1:]]
        around = 10 if self.is_small else 60
        calls.append(
            ("read_file", {"path": "logs/gateway.log", "offset": max(1, line - around), "limit": 2 * around})
        )
        answers = agent.act(
            f"Line {line} is of trace {trace}. Through all services, and what was around it.", *calls
        )
        errors = [hit for answer in answers[:-1] for hit in hits_of(answer) if " ERROR " in hit[2]]
        path, at, row = errors[0]
        host = row.split()[2]
        agent.act(
            f"{trace} failed in {path} at line {at}, on {host}. How it began, and how often it happens:",
            ("read_file", {"path": path, "offset": max(1, at - around), "limit": around + 5}),
            ("grep", {"pattern": fault.sign, "path": path, "limit": limit}),
        )
        service = path.removeprefix("logs/").removesuffix(".log")
        agent.findings.append(
            f"{code} at the gateway comes from {service}: {row.split(' ', 4)[-1]} (trace {trace}, "
            f"{host}, {path}:{at})"
        )
        agent.plant(
            "failure", f"Why did trace {trace} fail?", row.split(" ", 4)[-1], trace,
            fault.cause.split("{n}")[0][:30],
        )  # fmt: skip
        agent.plant(
            "artifact", f"Which host did trace {trace} fail on, and where is that logged?",
            f"On {host}: {path}:{at}", trace, host,
            (f"{path}:{at}", f"{path} at line {at}", f"{path} line {at}", f"{path}, line {at}"),
        )  # fmt: skip
        if is_again:
            agent.say(f"The same cause as before. {agent.findings[-1]}.")
        else:
            self._mend(fault, service, trace, number)

    def _mend(self, fault: Fault, service: str, trace: str, number: int) -> None:
        agent = self.agent
        conf = f"etc/{service}.conf"
        if number == 0:
            guess = agent.one("Now its settings.", "read_file", path=f"etc/{service}.yaml")
            agent.one(f"{guess.removeprefix('Error: ')}. It was listed as {conf}.", "read_file", path=conf)
        else:
            agent.one("", "read_file", path=conf)
        text = f"{fault.key} = {fault.bad}: {fault.reason}."
        if number % 3 == 0:
            edit = {"path": conf, "old": f"{fault.key}={fault.bad}", "new": f"{fault.key}={fault.good}"}
            agent.act(text, ("edit_file", edit))
            text = "With spaces around the sign, as the file has it."
        edit = {"path": conf, "old": f"{fault.key} = {fault.bad}", "new": f"{fault.key} = {fault.good}"}
        agent.act(text, ("edit_file", edit))
        report = self.files.texts.get("report.md", "# Report")
        entry = (
            f"{report}\n- {agent.findings[-1]}\n  {fault.key} set to {fault.good} in {conf}: {fault.reason}."
        )
        agent.act(
            f"{fault.key} is {fault.good} now. Looking at the file again, and writing it down with {trace}.",
            ("read_file", {"path": conf}),
            ("write_file", {"path": "report.md", "text": entry}),
        )
        now = set_to(fault.key, fault.good, fault.bad)
        agent.plant("value", f"What is {fault.key} in {conf} now?", f"{fault.key} = {fault.good}", now)
        agent.plant("decision", f"Why was {fault.key} changed?", fault.reason, fault.key, gist(fault.reason))
        agent.plant(
            "status",
            f"Is the cause of trace {trace} mended, and how?",
            f"Yes: {fault.key} = {fault.good}",
            trace,
            now,
        )
        agent.findings[-1] += f"; {fault.key} = {fault.good} in {conf} now"

    def _asked_back(self) -> None:
        """Let the user come back to something that was found long ago."""
        agent, trace = self.agent, self.traces[self.rng.randrange(max(1, len(self.traces) - 1))]
        nth = self.traces.index(trace) + 1
        agent.user(f"Support asks about the {nth}. trace that you looked at. When was it, and on which host?")
        hits = hits_of(agent.one(f"That was {trace}.", "grep", pattern=trace, path="logs/"))
        when, _, host = hits[0][2].split()[:3]
        agent.say(
            f"Trace {trace}: {when}, on {host}, {hits[0][0]} line {hits[0][1]}. I go on with the next one."
        )


def record(max_tokens: int, seed: int) -> Recorded:
    """Record a session of log analysis."""
    return LogSession(max_tokens, seed).record()
