"""Every recorded session, message by message: valid, within budget, still between events, nothing lost."""

from __future__ import annotations

import json
from itertools import islice
from typing import Any

import pytest

from context_compressor import (
    CompressedMemory,
    CompressionConfig,
    CompressionEvent,
    Msg,
    from_openai,
    to_openai,
)
from context_compressor.laws.chat_rules import RECORDED_PARTS, problems
from tests.memory.scripted import COUNTER, REF, kind_of, strings
from tests.support.recordings import DIRECTORY, requires_recordings, sessions

STEMS = sorted(path.name.removesuffix(".jsonl.gz") for path in DIRECTORY.glob("*.jsonl.gz"))
BUDGETS = (8_000, 16_000, 32_000)

Dict = dict[str, Any]


def replaced_texts(message: Dict) -> list[str]:
    """Return what a transcript has to hold of a chat dict: contents and reasoning."""
    content = message.get("content")
    if isinstance(content, list):
        texts = [part.get("text") for part in content if isinstance(part, dict)]
    else:
        texts = [content]
    texts.append(message.get("reasoning_content"))
    return [text for text in texts if isinstance(text, str) and text]


def arguments_of(message: Dict) -> list[list[str]]:
    """Return of each call its arguments as received, and the texts in them: long ones leave on their own."""
    found = []
    for call in message.get("tool_calls") or []:
        received = call["function"]["arguments"]
        try:
            found.append([received, *strings(json.loads(received))])
        except ValueError:
            found.append([received, received])
    return found


class Replay:
    """One session in one memory, with what was seen of it so far."""

    def __init__(self, session: Dict, budget: int) -> None:
        self.messages: list[Dict] = session["messages"]
        self.events: list[CompressionEvent] = []
        self.memory = CompressedMemory(
            config=CompressionConfig(max_total_tokens=budget), counter=COUNTER, on_event=self.events.append
        )
        self.earlier: list[Msg] = []
        self.earlier_wire: list[Dict] = []
        self.earlier_json: list[str] = []
        self.seen_events = 0
        self.originals: dict[str, Dict] = {}
        self.checked_refs: set[str] = set()
        self.checked_ids: set[str] = set()
        self.parts: list[str] = []
        self.counted: dict[str, int] = {}

    async def run(self) -> None:
        for message in self.messages:
            (msg,) = from_openai([message])
            self.originals[msg.id] = message
            await self.memory.add(msg)
            view = await self.memory.get_memory()
            self.check_view(view)
            if len(self.events) > self.seen_events:
                assert to_openai(view) == self.earlier_wire
                await self.check_stand_ins(view)
                self.seen_events = len(self.events)
        assert to_openai(self.earlier) == self.earlier_wire
        assert to_openai(await self.memory.get_history()) == self.messages

    def check_view(self, view: list[Msg]) -> None:
        # What stands as it stood is not written anew: views have hundreds of messages.
        same = next(
            (n for n, (old, new) in enumerate(zip(self.earlier, view, strict=False)) if old != new),
            min(len(self.earlier), len(view)),
        )
        wire = [*self.earlier_wire[:same], *to_openai(view[same:])]
        as_json = [*self.earlier_json[:same], *map(json.dumps, wire[same:])]
        found = [
            problem
            for problem in problems(wire, parts=RECORDED_PARTS)
            if problem != "only instructions" or self.has_spoken(view)
        ]
        assert found == []
        tokens = sum(self.count(text, msg) for text, msg in zip(as_json, view, strict=True))
        assert tokens == self.memory.stats().view_tokens
        assert tokens <= self.memory.config.budget
        if len(self.events) == self.seen_events:
            assert as_json[: len(self.earlier)] == self.earlier_json, "the view changed without an event"
        self.earlier, self.earlier_wire, self.earlier_json = view, wire, as_json

    def count(self, text: str, msg: Msg) -> int:
        """Return what a message costs, asking the counter once for each that says the same."""
        if text not in self.counted:
            self.counted[text] = COUNTER.count_messages([msg])
        return self.counted[text]

    def has_spoken(self, view: list[Msg]) -> bool:
        """Tell whether anything but instructions was said, apart from what the view withholds."""
        shown = {msg.id for msg in view}
        return any(
            m["role"] not in ("system", "developer") for id, m in self.originals.items() if id in shown
        )

    async def check_stand_ins(self, view: list[Msg]) -> None:
        """Read back what left the view in the event just seen."""
        for msg in view:
            provenance = (msg.metadata or {}).get("compression")
            if provenance is None or provenance["ref"] in self.checked_refs:
                continue
            if kind_of(msg) == "stub":
                original = strings(self.originals[msg.id])
                original += [text for texts in arguments_of(self.originals[msg.id]) for text in texts]
                for ref in provenance.get("refs", [provenance["ref"]]):
                    assert await self.memory.read_ref(ref) in original
            elif kind_of(msg) == "notes":
                part = await self.under(provenance["ref"])
                assert all(any(earlier in text for text in part) for earlier in self.parts[-1:])
                self.parts.append(provenance["ref"])
                stored = "\n\0".join(part)
                for id in set(provenance["covered_ids"]) - self.checked_ids:
                    for text in replaced_texts(self.originals[id]):
                        assert text in stored, f"lost of {id}: {text[:80]!r}"
                    for received, *texts in arguments_of(self.originals[id]):
                        whole = received in stored or all(
                            text in stored or json.dumps(text, ensure_ascii=False)[1:-1] in stored
                            for text in texts
                        )
                        assert whole, f"lost of {id}: {received[:80]!r}"
                self.checked_ids.update(provenance["covered_ids"])
            self.checked_refs.add(provenance["ref"])

    async def under(self, ref: str) -> list[str]:
        """Return the texts under a ref, then those that they name, but for earlier parts.

        Refs in quoted text may be foreign.
        """
        live = set(await self.memory.reachable_refs())
        found: dict[str, str] = {}
        todo = [ref]
        while todo:
            ref = todo.pop()
            if ref not in found and ref in live and ref not in self.parts:
                found[ref] = await self.memory.store.read(ref)
                todo += REF.findall(found[ref])
        return list(found.values())


def pick_budget(session: Dict, number: int) -> int:
    """Return the budget at which a session of a file is replayed: in turn each of those that it outgrows."""
    characters = len(json.dumps(session["messages"]))
    outgrown = [budget for budget in BUDGETS if characters > 4 * budget]
    return outgrown[number % len(outgrown)] if outgrown else BUDGETS[0]


@requires_recordings
@pytest.mark.variants(6)
@pytest.mark.parametrize("stem", STEMS or ["none"])
async def test_sessions_replay_within_the_laws(stem: str, request: pytest.FixtureRequest) -> None:
    most = None if request.config.getoption("--all") else 3
    for number, session in enumerate(islice(sessions(stem), most)):
        budget = pick_budget(session, number)
        try:
            await Replay(session, budget).run()
        except BaseException as error:
            error.add_note(f"session {session['id']}, budget {budget:,}")
            raise
