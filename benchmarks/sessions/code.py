"""Reading and mending code: Python's standard library, as the running Python has it."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
import sysconfig
import tempfile
from dataclasses import dataclass
from pathlib import Path

from context_compressor.lab.commands.demo_agent import ChatDict, Finding, ScriptedSession, ToolFailed

from .files import Files, hits_of
from .planting import Planting
from .recorder import COUNTER, Recorded, Recorder, listed

SYSTEM = (
    "You mend faults in a copy of some library modules. See a check fail before you change anything, read "
    "the code that is at fault, change as little as possible, and see the check pass. Tools: list_files, "
    "read_file, grep, edit_file, write_file, run_python."
)
_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault that is planted in a module, and a check that it fails."""

    path: str
    symbol: str
    """The function or class that it is in."""
    right: str
    wrong: str
    check: str
    complaint: str


FAULTS = (
    Fault(
        "textwrap.py", "shorten", "max_lines=1, **kwargs)", "max_lines=2, **kwargs)",
        "import textwrap\nshort = textwrap.shorten('one two three four five', width=12)\nassert short "
        "== 'one [...]', short",
        "texts cut by shorten are twice as long as allowed",
    ),
    Fault(
        "shlex.py", "join", "return ' '.join(quote(arg)", "return ','.join(quote(arg)",
        "import shlex\nline = shlex.join(['ls', '-l', 'a b'])\nassert line == \"ls -l 'a b'\", line",
        "command lines come out with commas",
    ),
    Fault(
        "csv.py", "DictReader", "d[self.restkey] = row[lf:]", "d[self.restkey] = row[lf - 1:]",
        "import csv\nrow = next(csv.DictReader(['a,b', '1,2,3,4'], restkey='more'))\nassert row['more'] "
        "== ['3', '4'], row",
        "the surplus fields of a row hold one that is no surplus",
    ),
    Fault(
        "colorsys.py", "rgb_to_hls", "return h, l, s", "return h, s, l",
        "import colorsys\nh, l, s = colorsys.rgb_to_hls(0.2, 0.4, 0.4)\nassert round(l, 2) == 0.3, (h, l, s)",
        "dark colours are shown far too bright",
    ),
    Fault(
        "difflib.py", "_calculate_ratio", "return 2.0 * matches / length", "return 1.0 * matches / length",
        "import difflib\nratio = difflib.SequenceMatcher(None, 'abcd', 'abcd').ratio()\nassert ratio == "
        "1.0, ratio",
        "equal texts are said to be half alike",
    ),
    Fault(
        "urllib/parse.py", "unquote_plus",
        "string = string.replace('+', ' ')", "string = string.replace('-', ' ')",
        "from urllib.parse import unquote_plus\ntext = unquote_plus('well-known+name')\nassert text == "
        "'well-known name', text",
        "words of a search lose their hyphens",
    ),
    Fault(
        "calendar.py", "leapdays", "y2 -= 1", "y2 -= 0",
        "import calendar\ndays = calendar.leapdays(2001, 2004)\nassert days == 0, days",
        "leap days are counted that are still to come",
    ),
    Fault(
        "ipaddress.py", "_BaseAddress",
        "return self.__class__(int(self) + other)", "return self.__class__(int(self) - other)",
        "import ipaddress\naddress = ipaddress.ip_address('10.0.0.5') + 3\nassert str(address) == "
        "'10.0.0.8', address",
        "the next address is the one before",
    ),
    Fault(
        "statistics.py", "median", "return (data[i - 1] + data[i]) / 2", "return (data[i] + data[i]) / 2",
        "import statistics\nmiddle = statistics.median([1, 2, 3, 10])\nassert middle == 2.5, middle",
        "medians of even counts are too high",
    ),
    Fault(
        "html/__init__.py", "escape", 's = s.replace("&", "&amp;")', 's = s.replace("&", "&amp")',
        "import html\ntext = html.escape('a & b')\nassert text == 'a &amp; b', text",
        "ampersands are left without a semicolon",
    ),
    Fault(
        "sched.py", "cancel", "self._queue.remove(event)", "self._queue.append(event)",
        "import sched\nplan = sched.scheduler(lambda: 0.0, lambda seconds: None)\none = plan.enter(1, 1, "
        "print)\nplan.cancel(one)\nassert plan.empty(), plan.queue",
        "what was cancelled happens twice",
    ),
    Fault(
        "fractions.py", "_mul", "g1 = math.gcd(na, db)", "g1 = math.gcd(na, da)",
        "from fractions import Fraction\nproduct = Fraction(2, 3) * Fraction(3, 4)\nassert product == "
        "Fraction(1, 2), product",
        "products are not in lowest terms",
    ),
    Fault(
        "string.py", "capwords", "return (sep or ' ').join(", "return (sep or '  ').join(",
        "import string\ntitle = string.capwords('the  end')\nassert title == 'The End', title",
        "titles have gaps",
    ),
    Fault(
        "graphlib.py", "TopologicalSorter",
        "if not successor_info.npredecessors", "if successor_info.npredecessors",
        "import graphlib\norder = list(graphlib.TopologicalSorter({'b': ['a'], 'c': ['b']}).static_order())\n"
        "assert order == ['a', 'b', 'c'], order",
        "only the first of several steps is planned",
    ),
)  # fmt: skip


class WorkingCopy(Files):
    """Modules of the library, to change and to run."""

    names: tuple[str, ...] = (*Files.names, "run_python")

    def run_python(self, code: str) -> str:
        """Run a snippet in a process that imports the modules as they are now."""
        with tempfile.TemporaryDirectory() as folder:
            for path, text in self.texts.items():
                file = Path(folder, path)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text, "utf-8")
            begin = f"import sys; sys.path.insert(0, {folder!r}); sys.dont_write_bytecode = True\n"
            try:
                done = subprocess.run(
                    [sys.executable, "-I", "-X", "utf8", "-c", f"{begin}{code}"],
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    timeout=_SECONDS,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                raise ToolFailed(f"stopped after {_SECONDS:g} s") from None
        output = b"".join((done.stdout, done.stderr)).decode("utf-8", "replace").replace("\r\n", "\n")
        output = output.replace(f"{Path(folder).resolve()}/", "").replace(f"{folder}/", "")
        return f"{output.rstrip()}\n(exit code {done.returncode})".lstrip()


def make_copy() -> tuple[WorkingCopy, list[Fault]]:
    """Return modules of the running Python with faults in them, and which of the faults they could take."""
    library = Path(sysconfig.get_path("stdlib"))
    texts: dict[str, str] = {}
    planted = []
    for fault in FAULTS:
        file = library / fault.path
        if not file.is_file():
            continue
        text = texts.get(fault.path) or file.read_text("utf-8")
        if text.count(fault.right) != 1 or fault.wrong in text:
            continue
        texts[fault.path] = text.replace(fault.right, fault.wrong)
        planted.append(fault)
        for beside in file.parent.glob("*.py") if "/" in fault.path else ():
            texts.setdefault(f"{file.parent.name}/{beside.name}", beside.read_text("utf-8"))
    return WorkingCopy(texts), planted


class MendSession:
    """One fault after the other."""

    def __init__(self, max_tokens: int, seed: int) -> None:
        self.rng = random.Random(seed)
        self.copy, self.faults = make_copy()
        self.rng.shuffle(self.faults)
        self.lines = 40 if max_tokens < 20_000 else 220
        self.agent = Recorder(self.copy, SYSTEM, max_tokens)
        self.mended: list[tuple[Fault, int]] = []

    def record(self) -> Recorded:
        agent = self.agent
        agent.user(
            "This copy of some library modules has been tampered with. I tell you what people complain "
            "about, one thing at a time; find the fault, mend it, and show that it is mended. Keep a list "
            "in CHANGES.md. No new files beside that one, and no change of a signature. Karin Voss reviews "
            "it."
        )
        agent.plant(
            "goal", "What is the agent to do about each complaint?",
            "Find the fault, mend it, show that it is mended",
            "find the fault", ("show that it is mended", "mend it"),
        )  # fmt: skip
        agent.plant(
            "constraint",
            "What may not be changed about functions?",
            "Signatures",
            "signature",
            ("no ", "not "),
        )
        agent.plant(
            "constraint", "Which new files are allowed?", "CHANGES.md alone", "no new file", "changes.md"
        )
        self._reviewer("Karin Voss")
        agent.one("First what is there.", "list_files")
        for number, fault in enumerate(self.faults):
            if agent.is_full and number:
                break
            self._mend(fault, number)
            if number % 3 == 2:
                self._asked_back()
            if number == 1:
                agent.user("Jo Almeida reviews it instead of Karin. Go on, please.")
                self._reviewer("Jo Almeida")
                agent.say("Noted.")
        agent.user("That was the last one. Are all of them still mended? Then sum up, please.")
        checks = [("run_python", {"code": fault.check}) for fault, _ in self.mended]
        agent.act("All checks once more.", *checks, ("read_file", {"path": "CHANGES.md"}))
        agent.say(f"All {len(checks)} checks pass. The changes:\n{listed(agent.findings)}")
        return agent.recorded()

    def _reviewer(self, name: str) -> None:
        self.agent.plant("value", "Who reviews the changes?", name, f"{name} review", about="reviewer")

    def _mend(self, fault: Fault, number: int) -> None:
        agent, path = self.agent, fault.path
        agent.user(f"Complaint {number + 1}: {fault.complaint}.")
        check = {"code": fault.check}
        pattern = rf"\b{fault.symbol}\b"
        failed, found = agent.act(
            f"I guess {fault.symbol} of {path}. Plan: a check that fails, the code, the change, the "
            f"check again.",
            ("run_python", check),
            ("grep", {"pattern": pattern, "limit": 30}),
        )
        told = failed.split("\n")[-2]
        agent.plant(
            "failure", f"How did the check of {fault.symbol} fail at first?", told, fault.symbol, told[:40]
        )
        defined = [hit for hit in hits_of(found) if re.search(rf"(def|class) {fault.symbol}\b", hit[2])]
        line = next(line for name, line, _ in defined if name == path)
        wrong_at = self.copy.texts[path].split(fault.wrong)[0].count("\n") + 1
        agent.one(
            f"`{told}`. {fault.symbol} is at {path}:{line}.",
            "read_file",
            path=path,
            offset=line,
            limit=self.lines,
        )
        offset = line + self.lines
        while wrong_at >= offset:
            agent.one("Not there yet; on.", "read_file", path=path, offset=offset, limit=self.lines)
            offset += self.lines
        agent.act(
            f"Line {wrong_at} looks wrong: `{fault.wrong}`. Who relies on it, and what is above?",
            ("grep", {"pattern": rf"{fault.symbol}\(", "limit": 25}),
            ("read_file", {"path": path, "offset": max(1, line - self.lines), "limit": self.lines}),
        )
        if number % 2 == 0:
            half = {"path": path, "old": f"{fault.wrong}  # ", "new": f"{fault.right}  # "}
            error = agent.act("Mending it.", ("edit_file", half))[0]
            agent.one(f"{error.removeprefix('Error: ')}. I look at the line again.", "read_file", path=path,
                      offset=max(1, wrong_at - 5), limit=11)  # fmt: skip
            agent.plant(
                "failure", f"Why did the first change of {path} fail?", error, path, ("0 times", "not once")
            )
        changed = agent.one("", "edit_file", path=path, old=fault.wrong, new=fault.right)
        entry = (
            f"{path}:{wrong_at}, {fault.symbol}: `{fault.wrong}` is `{fault.right}` again ({fault.complaint})"
        )
        log = self.copy.texts.get("CHANGES.md", "# Changes")
        agent.act(
            f"{changed}. The check again, and the list.",
            ("run_python", check),
            ("write_file", {"path": "CHANGES.md", "text": f"{log}\n- {entry}"}),
        )
        agent.findings.append(entry)
        self.mended.append((fault, wrong_at))
        agent.plant("decision", f"What was wrong in {fault.symbol}?", fault.wrong, fault.symbol, fault.wrong)
        agent.plant(
            "artifact", f"Where in {path} is {fault.symbol} mended?", f"{path}:{wrong_at}",
            fault.symbol, (f"{path}:{wrong_at}", f"{path} line {wrong_at}", f"{path}, line {wrong_at}"),
        )  # fmt: skip
        agent.plant(
            "value",
            f"What does the mended line of {fault.symbol} say?",
            fault.right,
            fault.symbol,
            fault.right,
        )
        agent.plant(
            "status", f"Complaint {number + 1} ({fault.complaint}): is it mended, and where?", entry,
            fault.complaint, f"{path}:{wrong_at}",
        )  # fmt: skip
        agent.say(f"Mended: {entry}.")

    def _asked_back(self) -> None:
        agent = self.agent
        fault, line = self.mended[self.rng.randrange(len(self.mended) - 1)]
        nth = self.mended.index((fault, line)) + 1
        agent.user(f"A colleague doubts number {nth}. Show the lines as they are now, please.")
        agent.one(
            f"That was {fault.symbol}, {fault.path}:{line}.",
            "read_file",
            path=fault.path,
            offset=max(1, line - 12),
            limit=25,
        )
        agent.say(f"`{fault.right}` stands at {fault.path}:{line}, inside {fault.symbol}.")


def record_mending(max_tokens: int, seed: int) -> Recorded:
    """Record a session of mending faults; it ends when there are no more."""
    return MendSession(max_tokens, seed).record()


def record_reading(max_tokens: int, seed: int) -> Recorded:  # noqa: ARG001  # the plan of `demo` is fixed
    """Record the session of `context-compressor demo`, as long as it takes to reach a size."""
    sizes: list[int] = []
    for step in ScriptedSession(turns=300).steps():
        texts = [message["content"] for message in step.messages]
        texts += [call["function"]["arguments"] for call in step.reply.get("tool_calls", ())]
        sizes.append(sum(map(COUNTER.count_text, texts)))
        if sum(sizes) > max_tokens * 0.97:
            break
    session, planting = ScriptedSession(turns=len(sizes)), Planting()
    messages: list[ChatDict] = []
    for step in session.steps():
        messages += step.messages
        for message in step.before:
            _plant_request(planting, message["content"], len(messages))
        for call, result in zip(step.reply.get("tool_calls", ()), step.results, strict=True):
            path = json.loads(call["function"]["arguments"]).get("path")
            if result["content"].startswith("Error") and path:
                question, error = f"What came of reading {path}?", result["content"]
                planting.plant("failure", question, error, path, ("error", "not a"), since=len(messages))
    for finding in session.findings:
        said = [n for n, one in enumerate(messages) if finding.sentence in (one["content"] or "")]
        _plant_finding(planting, finding, said[0] + 1)
    _plant_experiments(planting, messages)
    return Recorded(messages, planting.probes(messages))


def _plant_experiments(planting: Planting, messages: list[ChatDict]) -> None:
    symbol = ""
    for since, message in enumerate(messages, 1):
        text = message["content"] or ""
        ended = re.search(r"The experiment ended with `([^`]+)`", text)
        if message["role"] == "assistant" and ended and symbol:
            question = f"How did the experiment with {symbol} end?"
            planting.plant("status", question, ended[1], "experiment", ended[1], since=since)
        if message["role"] == "assistant" and text.endswith("an experiment."):
            symbol = text.partition(" ")[0]


def _plant_request(planting: Planting, text: str, since: int) -> None:
    if "for a guide" in text:
        question, answer = (
            "What is the agent to find out, and for what?",
            "How the library works, for a guide",
        )
        planting.plant("goal", question, answer, "library", ("for a guide", "guide"), since=since)
        question, answer = "What is everything to be cited with?", "File and line"
        planting.plant("constraint", question, answer, "cite", "file and line", since=since)
    elif "waits for anything" in text:
        question, answer = "What is to be said of each function, too?", "Whether it waits for anything"
        planting.plant("constraint", question, answer, "function", "whether it waits", since=since)


def _plant_finding(planting: Planting, finding: Finding, since: int) -> None:
    symbol, place = finding.definition.symbol, str(finding.definition)
    called = re.findall(r"relies on ([^ ,.]+)", finding.sentence)
    planting.plant("artifact", f"Where is {symbol} defined?", place, symbol, place, since=since)
    if called and called[0] != "nothing":
        answer = finding.sentence
        planting.plant(
            "value", f"What does {symbol} rely on?", answer, symbol, f"relies on {called[0]}", since=since
        )
    waits = re.findall(r"It waits in ([^ ,.]+)", finding.sentence)
    if waits:
        planting.plant(
            "status", f"Where does {symbol} wait?", waits[0], symbol, f"waits in {waits[0]}", since=since
        )
