"""What the command line makes of damaged transcripts: nothing is lost unsaid, no wreck is read with exit 0.

Each text that a sample says gets a word of its own, and the sample is read once as it is: words that come out
are the conversation's. Then records are dropped, renamed, retyped, nested, repeated, shuffled, spliced with
those of another sample or of no transcript, texts are emptied, the file is cut or gets null bytes, and
`compress` reads it at a budget that fits all. It may end with exit code 0 or 2. With 0 it must have written
messages, words of at least half of the conversation's records that are still in the file, and have told of
as many records or blocks as have lost a word. Run it from the project's root:

    python benchmarks/transcripts.py [--count 10000] [--seed 1] [--keep FOLDER]
"""

from __future__ import annotations

import argparse
import copy
import io
import itertools
import json
import random
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

from context_compressor.cli.app import run

SAMPLES = Path(__file__).parents[1] / "tests" / "lab" / "readers" / "samples"
BUDGET = "1000000"
PROGRESS_EVERY = 1_000
_WORD = re.compile(r"w\d+x\d+w")
_SAYING = (
    "text",
    "content",
    "output",
    "prompt",
    "thinking",
    "thought",
    "final_thought",
    "error",
    "value",
    "summary",
    "message",
    "parts",
    "result",
    "command",
    "query",
    "path",
    "instructions",
)
"""Keys of what is said or printed, in any of the formats."""
_NAMES = ("name", "tool", "toolName", "tool_name", "function_name", "function")
_PRUNED = re.compile(
    r"(?:rewound records|records of other branches|earlier states of \w+|repeated records|records that a "
    r"later state lacks|items of turns that were rolled back|pieces of texts that follow whole) \(([\d,]+)\)"
)
"""What is told of records that a program took back, or tells of again."""
_LISTS = (
    "messages",
    "content",
    "context",
    "input",
    "output",
    "history",
    "samples",
    "loglines",
    "conversations",
)
_LISTS += ("conversation", "steps")
_FOREIGN: list[Any] = [
    {"level": "info", "msg": "started", "pid": 7},
    {"type": "event", "name": "click"},
    {"role": "observer", "note": "nothing"},
    [1, 2, 3],
    "a line",
    7,
]
_JUNK: list[Any] = [None, 7, True, "x", [], {}, [7], {"x": "y"}]
_CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "When is high water?"},
    {
        "role": "assistant",
        "content": None,
        "reasoning_content": "The file will tell.",
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}}],
    },
    {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "high at six"}]},
    {"role": "assistant", "content": "At six."},
    {"role": "user", "content": [{"type": "text", "text": "Thanks."}]},
]


def _linked(number: int, kind: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "uuid": f"u{number}", "parentUuid": f"u{number - 1}", "sessionId": "s", **more}


def _said(number: int, role: str, *content: Any) -> dict[str, Any]:
    return _linked(number, role, message={"id": f"m{number}", "role": role, "content": list(content)})


_CLAUDE_CODE = [
    {"type": "file-history-snapshot", "messageId": "u1", "snapshot": {}},
    _said(1, "user", {"type": "text", "text": "When is high water?"}),
    _said(2, "assistant", {"type": "thinking", "thinking": "The file will tell.", "signature": "s"}),
    _said(3, "assistant", {"type": "tool_use", "id": "c1", "name": "Read", "input": {}}),
    _said(4, "user", {"type": "tool_result", "tool_use_id": "c1", "content": "high at six"}),
    _linked(5, "attachment", attachment={"type": "hook_error", "inner": {"text": "the hook complains"}}),
    _linked(6, "system", subtype="turn_duration", durationMs=7),
    _said(7, "assistant", {"type": "text", "text": "At six."}),
    _said(8, "user", {"type": "text", "text": "And low water?"}),
    _said(9, "assistant", {"type": "text", "text": "At noon."}),
]
_CODEX = [
    {"type": "session_meta", "payload": {"id": "s", "instructions": None}},
    *(
        {"type": "response_item", "payload": item}
        for item in (
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "When?"}]},
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "The file tells."}]},
            {"type": "function_call", "name": "read", "arguments": "{}", "call_id": "c1"},
            {"type": "function_call_output", "call_id": "c1", "output": "high at six"},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "At 6."}]},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Thanks."}]},
        )
    ),
    {"type": "event_msg", "payload": {"type": "token_count"}},
]


class Seed(NamedTuple):
    """A transcript, and whether it is one of lines."""

    name: str
    values: list[Any]
    is_lines: bool


def seeds() -> list[Seed]:
    """Return a transcript of every format."""
    found = [
        Seed("openai chat", [copy.deepcopy(_CHAT)], False),
        Seed("openai lines", _CHAT, True),
        Seed("openai log", [{"messages": copy.deepcopy(_CHAT[at:])} for at in (0, 1, 0)], True),
        Seed("claude-code", _CLAUDE_CODE, True),
        Seed("codex", _CODEX, True),
    ]
    for path in sorted(SAMPLES.glob("*.json*")):
        text, is_lines = path.read_text("utf-8"), path.suffix == ".jsonl"
        values = [json.loads(line) for line in text.splitlines()] if is_lines else [json.loads(text)]
        found.append(Seed(path.name, values, is_lines))
    return found


def records_of(values: list[Any]) -> list[Any]:
    """Return the records: the lines, or the longest list within the one value."""
    if len(values) > 1:
        return values
    found: list[list[Any]] = [values]

    def look(value: Any) -> None:
        if isinstance(value, dict):
            for key, held in value.items():
                if key in _LISTS and isinstance(held, list) and any(isinstance(one, dict) for one in held):
                    found.append(held)
                elif isinstance(held, dict):
                    look(held)
        elif isinstance(value, list) and any(isinstance(one, dict | list) for one in value):
            found.append(value)
            for one in value:
                look(one)

    look(values[0])
    return max(found, key=len)


def mark(value: Any, number: int, places: Iterator[int], is_said: bool = False) -> None:
    """Put a word into every text of a record that is said or printed, and into names of tools."""
    for key, held in list(value.items() if isinstance(value, dict) else enumerate(value)):
        says = key in _SAYING if isinstance(value, dict) else is_said
        if isinstance(held, str) and says:
            value[key] = f"{held} w{number}x{next(places)}w"
        elif isinstance(held, str) and held and key in _NAMES:
            value[key] = f"{held}_w{number}x{next(places)}w"
        elif isinstance(held, dict | list):
            mark(held, number, places, says)


def _dicts_in(value: Any) -> list[dict[str, Any]]:
    held = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    own = [value] if isinstance(value, dict) and value else []
    return own + [found for one in held for found in _dicts_in(one)]


def damage(rng: random.Random, records: list[Any], others: list[Any]) -> str:
    """Do one thing to records that happens to files; return what it was."""
    what = rng.choice(_DAMAGES)
    place = rng.randrange(len(records)) if records else 0
    dicts = _dicts_in(records[place]) if records else []
    held = rng.choice(dicts) if dicts else None
    key = rng.choice(sorted(held)) if held else ""
    if what == "cut":
        del records[place : place + rng.randint(1, 3)]
    elif what == "repeat":
        records[place:place] = copy.deepcopy(records[place : place + 1])
    elif what == "shuffle":
        rng.shuffle(records)
    elif what == "foreign":
        records[place:place] = copy.deepcopy(rng.choices(_FOREIGN, k=rng.randint(1, 2 * len(records) + 1)))
    elif what == "splice":
        records[place:] = others[: rng.randint(1, len(others))]
    elif what == "nest" and records:
        records[place] = {rng.choice(("record", "data", "message", "payload")): records[place]}
    elif held is not None and what == "drop":
        del held[key]
    elif held is not None and what == "rename":
        held[f"{key}_"] = held.pop(key)
    elif held is not None and what == "retype":
        held[key] = copy.deepcopy(rng.choice(_JUNK))
    elif held is not None and what == "empty" and isinstance(held[key], str | list):
        held[key] = type(held[key])()
    elif held is not None and what == "rename everywhere":
        for one in _dicts_in(records):
            if key in one:
                one[f"{key}_"] = one.pop(key)
    elif what == "retype everywhere":
        kind = rng.choice(("role", "type", "from", "source", "kind", "part_kind"))
        for one in _dicts_in(records):
            if kind in one and rng.random() < 0.7:
                one[kind] = rng.choice(("assistant", "user", "usr", "narrator", 7))
    return what


_DAMAGES = ("cut", "repeat", "shuffle", "foreign", "splice", "nest", "drop", "rename", "retype", "empty")
_DAMAGES += ("rename everywhere", "retype everywhere")


def cut_bytes(rng: random.Random, data: bytes) -> bytes:
    """Return what a crash leaves of a file, in one of ten cases."""
    what = rng.randrange(30)
    place = rng.randrange(len(data) + 1)
    if what == 0:
        return data[:place]
    if what == 1:
        return data + bytes(rng.randint(1, 99))
    return data[:place] + bytes(rng.randint(1, 9)) + data[place:] if what == 2 else data


def to_bytes(values: list[Any], *, is_lines: bool) -> bytes:
    """Return a file of values: a line for each, or the one."""
    text = (
        "".join(f"{json.dumps(value)}\n" for value in values)
        if is_lines or len(values) != 1
        else json.dumps(values[0], indent=1)
    )
    return text.encode()


class Outcome(NamedTuple):
    """What the command line made of a file."""

    code: int
    words: set[str]
    messages: int
    told: int
    """Records and blocks told as left out or skipped."""
    pruned: int
    """Of these, what a program took back itself, or tells of again: it is no part of the conversation."""
    error: str


def compress(folder: Path, data: bytes) -> Outcome:
    """Read a file with `compress` at a budget that fits all."""
    source, output = folder / "in.json", folder / "out.json"
    source.write_bytes(data)
    output.unlink(missing_ok=True)
    out, err = io.StringIO(), io.StringIO()
    options = ["-o", str(output), "--json", "--quiet", "--budget", BUDGET, "--store", str(folder / "texts")]
    with redirect_stdout(out), redirect_stderr(err):
        try:
            code = run(["compress", str(source), *options])
        except Exception as error:  # whatever it is, it is the finding
            return Outcome(-1, set(), 0, 0, 0, repr(error))
    if code != 0:
        return Outcome(code, set(), 0, 0, 0, err.getvalue())
    report = json.loads(out.getvalue())
    notes = [note for session in report["sessions"] for note in session["notes"]]
    counts = [re.findall(r"\(([\d,]+)\)", note) for note in notes if note.startswith("left out: ")]
    told = sum(int(count.replace(",", "")) for found in counts for count in found)
    pruned = sum(int(count.replace(",", "")) for note in notes for count in _PRUNED.findall(note))
    repairs = [note for note in notes if "repaired in the view" in note]
    told += len(repairs) + len(report["problems"])
    told += sum(int(more) for note in repairs for more in re.findall(r"\(and (\d+) more like it\)", note))
    texts = [output, *texts_of(report, folder)]
    words = {word for path in texts for word in _WORD.findall(path.read_text("utf-8"))}
    return Outcome(code, words, report["total"]["view_messages"], told, pruned, "")


def texts_of(report: dict[str, Any], folder: Path) -> list[Path]:
    """Return the files of the texts that a report names as stored."""
    return [
        folder / "texts" / session["namespace"] / f"{ref.removeprefix('ctx://')}.txt"
        for session in report["sessions"]
        for ref in session["refs"]
    ]


def words_in(value: Any) -> set[str]:
    """Return the words in a value."""
    return set(_WORD.findall(json.dumps(value)))


def renamed_words(values: list[Any]) -> set[str]:
    """Return the words under keys that were renamed: nobody can know that they say something."""
    found = [one[key] for one in _dicts_in(values) for key in one if key.endswith("_")]
    return words_in(found)


def complaint(outcome: Outcome, records: list[set[str]], silent: int) -> str | None:
    """Return what is wrong with an outcome, given the words of each record of the conversation in the file.

    `silent`: records of the conversation that have lost all of their words; they may have been read.
    """
    if outcome.code == 2:
        return None if outcome.error.startswith("context-compressor: ") else "refused without a reason"
    if outcome.code != 0:
        return f"exit code {outcome.code}: {outcome.error}"
    if not outcome.messages:
        return "no message, and exit code 0"
    read = sum(bool(words & outcome.words) for words in records)
    if 2 * (read + silent) < len(records) + silent - outcome.pruned:
        return f"{read} of {len(records)} records read, and exit code 0"
    lost = sum(bool(words - outcome.words) for words in records)
    return f"{lost} records lost words, {outcome.told} told" if lost > outcome.told else None


class Marked(NamedTuple):
    """A seed whose texts have words, and those that are of its conversation."""

    seed: Seed
    words: set[str]


def marked_seeds(folder: Path) -> list[Marked]:
    """Return every seed with its words; undamaged, each is read."""
    found = []
    for number, seed in enumerate(seeds()):
        values = copy.deepcopy(seed.values)
        for place, record in enumerate(records_of(values)):
            if isinstance(record, dict | list):
                mark(record, 100 * number + place, itertools.count())
        outcome = compress(folder, to_bytes(values, is_lines=seed.is_lines))
        assert outcome.code == 0, (seed.name, outcome.error)
        found.append(Marked(Seed(seed.name, values, seed.is_lines), outcome.words))
    return found


def measure(count: int, seed: int, keep: Path | None = None) -> tuple[Counter[tuple[str, int]], list[str]]:
    """Damage `count` transcripts; return how often each ended with which exit code, and what was wrong.

    `keep`: a folder for the files that were read wrongly.
    """
    rng = random.Random(seed)
    codes: Counter[tuple[str, int]] = Counter()
    wrong: list[str] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        marked = marked_seeds(folder)
        every = set().union(*(one.words for one in marked))
        for number in range(count):
            source = marked[number % len(marked)].seed
            values = copy.deepcopy(source.values)
            records = records_of(values)
            others = records_of(copy.deepcopy(rng.choice(marked).seed.values))
            own = {id(one): one for one in (*records, *others) if words_in(one) & every}
            done = [damage(rng, records, others) for _ in range(rng.randint(1, 4))]
            data = cut_bytes(rng, to_bytes(values, is_lines=source.is_lines))
            outcome = compress(folder, data)
            codes[source.name, outcome.code] += 1
            renamed = renamed_words(records)
            known = (every | outcome.words) - renamed
            kept = [words_in(one) & known for one in records]
            silent = sum(id(one) in own and not words for one, words in zip(records, kept, strict=True))
            there = set(_WORD.findall(data.decode()))
            if why := complaint(outcome, [words & there for words in kept if words & there], silent):
                if keep is not None:
                    (keep / f"{number}.json").write_bytes(data)
                wrong.append(f"{number}: {source.name}, {', '.join(done)}: {why}")
                print(wrong[-1], file=sys.stderr, flush=True)
            if (number + 1) % PROGRESS_EVERY == 0:
                print(f"{number + 1:,} read, {len(wrong)} wrongly", file=sys.stderr, flush=True)
    return codes, wrong


def main() -> int:
    """Print how many of each were read, and every one that was read wrongly."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="a folder for the files that were read wrongly")
    arguments = parser.parse_args()
    codes, wrong = measure(arguments.count, arguments.seed, arguments.keep)
    for name in dict.fromkeys(name for name, _ in codes):
        print(f"{name:36} read {codes[name, 0]:5}   refused {codes[name, 2]:5}")
    print(f"{codes.total()} damaged transcripts, {len(wrong)} read wrongly")
    for one in wrong:
        print(one)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
