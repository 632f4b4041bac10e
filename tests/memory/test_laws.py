"""The laws, over random histories, configurations and operations."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, ClassVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from context_compressor import (
    CompressedMemory,
    CompressionConfig,
    CompressionEvent,
    InMemoryMemory,
    InMemoryOffloadStore,
    Msg,
    Summary,
    SummaryRequest,
    TiktokenCounter,
    from_openai,
    to_openai,
)
from context_compressor.core.edits import edit_to_dict, name_of
from context_compressor.core.rebuild import rebuild
from context_compressor.errors import ContextOverflowError
from context_compressor.laws.chat_rules import problems
from context_compressor.memory.table import MessageTable
from context_compressor.messages.media import encoded_media
from context_compressor.messages.msg import is_instruction
from context_compressor.messages.repair import is_empty_assistant
from tests.memory.on_disk import FileMemory
from tests.memory.scripted import fold
from tests.support.strategies import chat_histories, messages

COUNTER = TiktokenCounter()
NUMBERS = st.integers(0, 999)
"""Which of the messages, counted round. What is drawn must not depend on the view: long texts are counted in
threads, so how far those get that go on at once differs from run to run."""
REF = re.compile(r"ctx://[0-9a-f]{16}")
MARKS = ("pinned", "hint", "other")


def keyed(messages: Iterable[Msg]) -> list[tuple[str, Msg]]:
    """Return history messages with the keys that a history gives them."""
    known = MessageTable()
    return [(known.append(msg.id, 0), msg) for msg in messages]


WISH = re.compile(r"wish\d+x")
"""A word that one message alone says."""


class Terse:
    """A summariser that always says the same, in few words."""

    remote = False

    async def summarize(self, request: SummaryRequest) -> Summary:
        return Summary(text="## Work\n- It went on as planned; see the transcript for what was said.")


class Failing:
    """A summariser that never works."""

    remote = True

    async def summarize(self, request: SummaryRequest) -> Summary:
        raise ConnectionError("no route to model")


class Remote:
    """A remote summariser that takes some steps of the loop to say what it says, and fails now and then.

    It repeats every wish that it reads anywhere.
    """

    remote = True

    def __init__(self) -> None:
        self.calls = 0

    async def summarize(self, request: SummaryRequest) -> Summary:
        self.calls += 1
        number = self.calls
        await steps(number * 7 % 20)
        if number % 5 == 4:
            raise ConnectionError("no route to model")
        texts = [msg.get_text_content() or "" for msg in (*request.messages, *request.context)]
        wishes = dict.fromkeys(
            WISH.findall("\n".join([*texts, request.previous or "", request.request or ""]))
        )
        return Summary(text=f"## Work\n- Part {number} went on as planned. Asked: {', '.join(wishes)}.")


async def steps(count: int) -> None:
    """Let the loop go round so many times."""
    for _ in range(count):
        await asyncio.sleep(0)


class Refusing(InMemoryOffloadStore):
    """A store that takes a step of the loop for everything, and refuses to write while it is told to."""

    refusing = False

    async def delete(self, ref: str) -> None:
        await steps(1)
        await super().delete(ref)

    async def write(self, text: str) -> str:
        await steps(1)
        if self.refusing:
            raise OSError(28, "No space left on device")
        return await super().write(text)


def hide_foxes(text: str) -> str:
    """Redact what stands in many of the texts drawn."""
    return text.replace("fox", "f*x")


@st.composite
def configs(draw: st.DrawFn) -> CompressionConfig:
    values: dict[str, Any] = {
        "redact": draw(st.sampled_from((None, None, hide_foxes))),
        "mode": draw(st.sampled_from(("auto", "compact", "compress"))),
        "max_total_tokens": draw(st.sampled_from((200, 500, 1_000, 2_000, 4_000))),
        "group_token_threshold": draw(st.sampled_from((None, 60, 400))),
        "target_ratio": draw(st.sampled_from((0.1, 0.5, 0.9))),
        "arrival_ratio": draw(st.sampled_from((0.1, 0.25, 1.0))),
        "keep_first_user": draw(st.booleans()),
        "keep_images": draw(st.sampled_from((0, 1, 5))),
        "exclude_tools": draw(st.sampled_from((frozenset(), frozenset({"bash", "search"})))),
        "background_ratio": draw(st.sampled_from((None, 0.2, 0.5, 0.8))),
        "keep_recent_tokens": draw(st.sampled_from((None, None, 40, 300))),
    }
    if (kept := draw(st.sampled_from((0, 1, 3, 10, None)))) is not None:
        values["keep_recent_count"] = kept
    if draw(st.booleans()):
        values["reserved_tokens"] = values["max_total_tokens"] // 10
    return CompressionConfig(**values)


def strings(value: Any) -> list[str]:
    """Return the texts that a chat dict says: contents, reasoning, arguments."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, list):
        return [text for item in value for text in strings(item)]
    return []


def arguments(block: dict[str, Any]) -> list[str]:
    """Return the texts in a call's arguments, those under a repeated key included."""
    values: list[Any] = []
    try:
        json.loads(block["raw_input"], object_pairs_hook=lambda pairs: values.extend(v for _, v in pairs))
    except (KeyError, ValueError, RecursionError):
        values = [*block["input"].values()]
    return strings(values)


def said(msg: Msg) -> list[str]:
    """Return the texts of a message that must never be lost, arguments apart."""
    found: list[str] = []
    for block in msg.get_content_blocks():
        match block.get("type"):
            case "text":
                found.append(block["text"])
            case "thinking":
                found.append(block["thinking"])
            case "tool_result" if isinstance(block["output"], str):
                found.append(block["output"])
            case "tool_result":
                found += [b["text"] for b in block["output"] if b.get("type") == "text"]
                found += [media.url for b in block["output"] if (media := encoded_media(b))]
            case _:
                found += [media.url] if (media := encoded_media(block)) else []
    return [text for text in found if isinstance(text, str) and text.strip()]


def pick(ids: list[str], numbers: list[int]) -> list[str]:
    """Return the ids at these places, counted round."""
    return [ids[number % len(ids)] for number in numbers]


class Laws(RuleBasedStateMachine):
    @initialize(config=configs(), kind=st.sampled_from((None, Terse, Failing, Remote)))
    def start(self, config: CompressionConfig, kind: Any) -> None:
        self.begin(config, kind)

    def begin(self, config: CompressionConfig, kind: Any) -> None:
        self.loop = asyncio.new_event_loop()
        self.store = Refusing()
        self.config = config
        self.summarizer = None if kind is None else kind()
        self.events: list[CompressionEvent] = []
        self.memory = self.new_memory()
        self.added: list[Msg] = []
        self.last: tuple[int, list[dict[str, Any]]] = (0, [])
        self.number = 0

    given: ClassVar[dict[str, Any]] = {}

    def new_memory(self) -> CompressedMemory:
        return CompressedMemory(
            config=self.config,
            store=self.store,
            summarizer=self.summarizer,
            counter=COUNTER,
            on_event=self.events.append,
            **self.given,
        )

    def run(self, awaitable: Any) -> Any:
        return self.loop.run_until_complete(awaitable)

    @rule(history=chat_histories(valid=False, max_turns=5), mark=st.sampled_from((None, None, None, *MARKS)))
    def add(self, history: list[dict[str, Any]], mark: str | None) -> None:
        read = from_openai(history)
        self.added += read
        self.run(self.memory.add(read, marks=mark))

    @rule(history=chat_histories(valid=True, max_turns=6))
    def add_one_by_one(self, history: list[dict[str, Any]]) -> None:
        for msg in from_openai(history):
            self.added.append(msg)
            self.run(self.memory.add(msg))
            self.check_view(within_a_step=True)

    @rule(msgs=messages())
    def add_agentscope_style(self, msgs: list[Msg]) -> None:
        for msg in msgs:
            self.number += 1
            msg.id = f"agentscope-{self.number}"
        self.added += msgs
        self.run(self.memory.add(msgs))

    @rule(mark=st.sampled_from((None, None, "pinned")))
    def add_wish(self, mark: str | None) -> None:
        self.number += 1
        read = from_openai([{"role": "user", "content": f"Please mind wish{self.number}x."}])
        self.added += read
        self.run(self.memory.add(read, marks=mark))

    @rule(lines=st.integers(50, 600), volatile=st.booleans())
    def add_large_result(self, lines: int, volatile: bool) -> None:
        self.number += 1
        id = f"large-{self.number}"
        text = "\n".join(
            f"{self.number}:{line} src/module_{line % 7}.py: value {line * 37}" for line in range(lines)
        )
        call = {"id": id, "type": "function", "function": {"name": "read_file", "arguments": "{}"}}
        read = from_openai(
            [
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": id, "content": text},
            ]
        )
        self.added += read
        self.run(self.memory.add(read))

    @rule(numbers=st.lists(NUMBERS, max_size=3))
    def delete_some(self, numbers: list[int]) -> None:
        shown = [msg.id for msg in self.memory._tracker.state.shown.messages]
        known = [msg.id for msg in self.added]
        if not known:
            return
        ids = pick(shown + known, numbers)
        gone = set(self.memory._tracker.state.expand(ids))
        self.run(self.memory.delete(ids))
        self.forget(gone)

    def forget(self, gone: set[str]) -> None:
        texts = {text for msg in self.added if msg.id in gone for text in said(msg)}
        self.added = [msg for msg in self.added if msg.id not in gone]
        kept = "\0".join(text for msg in self.added for text in said(msg))
        self.let_others_follow()
        stored = self.store.texts()
        for text in texts:
            if len(text) > 200 and text not in kept:
                assert text not in stored.values(), "a deleted text is still stored"
                assert not any(text in other for other in stored.values()), "still in a transcript"

    def let_others_follow(self) -> None:
        """Let other memories over the same history read what was changed: there are none."""

    @rule(mark=st.sampled_from(MARKS))
    def delete_marked(self, mark: str) -> None:
        gone = {msg.id for msg in self.run(self.memory.base.get_memory(mark=mark, prepend_summary=False))}
        self.run(self.memory.delete_by_mark(mark))
        self.forget(gone)

    @rule(numbers=st.lists(NUMBERS, max_size=2), mark=st.sampled_from(MARKS))
    def mark_some(self, numbers: list[int], mark: str) -> None:
        shown = [msg.id for msg in self.memory._tracker.state.shown.messages]
        if shown:
            self.run(self.memory.update_messages_mark(mark, msg_ids=pick(shown, numbers)))

    @rule(mark=st.sampled_from(MARKS))
    def unmark(self, mark: str) -> None:
        self.run(self.memory.update_messages_mark(None, old_mark=mark))

    @rule()
    def clear(self) -> None:
        self.run(self.memory.clear())
        self.added = []
        self.let_others_follow()
        assert self.run(self.store.refs()) == []

    @rule(is_undone=st.booleans())
    def compress_now(self, is_undone: bool) -> None:
        """What is undone gives the same view and the same fold of the ledger as before."""
        before = self.fold()
        try:
            event = self.run(self.memory.compress_now())
        except ContextOverflowError:
            self.check_overflow()
            return
        if is_undone and before is not None and event is not None:
            assert self.run(self.memory.undo()).reason == "undone"
            assert self.fold() == before

    def fold(self) -> Any:
        """Return the view and the fold of the ledger; None where that exceeds the budget."""
        try:
            return self.run(fold(self.memory))
        except ContextOverflowError:
            return None

    @rule(tokens=st.none() | st.integers(1, 2_000), note=st.sampled_from((None, "Mind the fox.")))
    def undo(self, tokens: int | None, note: str | None) -> None:
        before, budget = self.fold(), tokens and min(tokens, self.config.budget)
        told: ContextOverflowError | None = None
        try:
            self.run(self.memory.undo(budget, note))
        except ContextOverflowError as error:
            if budget is not None or note is not None:
                self.check_overflow()
            elif before is not None:
                told = error
        if told is not None:
            assert told.needed > told.budget
            assert self.fold() == before, "it was changed though it does not fit"

    @rule(summary=st.sampled_from(("", "so far", "so far, and on")))
    def summarize(self, summary: str) -> None:
        self.run(self.memory.update_compressed_summary(summary))

    @rule(refuse=st.booleans())
    def refuse_writes(self, refuse: bool) -> None:
        self.store.refusing = refuse

    @rule(deletes=st.booleans(), number=NUMBERS)
    def change_the_base_directly(self, deletes: bool, number: int) -> None:
        known = [msg.id for msg in self.added]
        if known and deletes:
            [id] = pick(known, [number])
            self.run(self.memory.base.delete([id]))
            self.added = [msg for msg in self.added if msg.id != id]
        else:
            msg = Msg("user", "added behind the wrapper's back", "user")
            self.added.append(msg)
            self.run(self.memory.base.add(msg))

    @rule(count=st.integers(1, 40))
    def let_the_loop_go_round(self, count: int) -> None:
        """What goes on in the background gets on."""
        self.run(steps(count))

    @rule(history=chat_histories(valid=True, max_turns=6), lines=st.integers(5, 60), count=st.integers(0, 20))
    def do_much_at_once(self, history: list[dict[str, Any]], lines: int, count: int) -> None:
        """A reader, a writer and whoever deletes, while an event may be prepared."""
        read = from_openai(history)
        gone = self.added[-1:] if lines % 2 else self.added[:1]
        self.number += 1
        filler = [Msg("user", f"{self.number}:{line} and on it goes", "user") for line in range(lines)]

        async def read_view() -> None:
            with suppress(ContextOverflowError):
                await self.memory.get_memory()

        async def write() -> None:
            await steps(count)
            await self.memory.add(read)

        async def delete() -> None:
            await steps(count)
            await self.memory.delete([msg.id for msg in gone])

        async def all_at_once() -> None:
            await self.memory.add(filler)
            await asyncio.gather(read_view(), write(), delete(), read_view())

        self.run(all_at_once())
        self.added = [msg for msg in self.added if msg not in gone] + filler + read

    @rule()
    def give_up_waiting(self) -> None:
        """A reader is cancelled wherever it is."""

        async def read_view() -> None:
            reading = asyncio.create_task(self.memory.get_memory())
            await steps(3)
            reading.cancel()
            await asyncio.wait({reading})

        self.run(read_view())

    @rule()
    def close(self) -> None:
        self.run(self.memory.aclose())
        assert asyncio.all_tasks(self.loop) == set()

    @rule(new_store=st.booleans(), crash=st.booleans())
    def save_and_load(self, new_store: bool, crash: bool) -> None:
        try:
            before = [msg.to_dict() for msg in self.run(self.memory.get_memory())]
        except ContextOverflowError:
            return
        state = json.loads(json.dumps(self.memory.state_dict()))
        if new_store and not self.store.refusing:
            self.store = Refusing()
        calls = len(self.events)
        if crash:
            for task in asyncio.all_tasks(self.loop):
                task.cancel()
        else:
            self.run(self.memory.aclose())
        self.memory = self.new_memory()
        self.memory.load_state_dict(state)
        after = [msg.to_dict() for msg in self.run(self.memory.get_memory())]
        assert after == before, next((a, b) for a, b in zip(before, after, strict=False) if a != b)
        assert not any(event.kind == "compress" for event in self.events[calls:])

    @invariant()
    def history_is_whole(self) -> None:
        if hasattr(self, "memory"):
            history = self.run(self.memory.get_history())
            assert [msg.id for msg in history] == [msg.id for msg in self.added]
            assert [msg.to_dict() for msg in history] == [msg.to_dict() for msg in self.added]

    @invariant()
    def view_keeps_the_laws(self) -> None:
        if hasattr(self, "memory"):
            self.check_view()

    def check_view(self, *, within_a_step: bool = False) -> None:
        """Check what the view says; within a step, what stands behind it only if there was an event."""
        try:
            view = self.run(self.memory.get_memory())
        except ContextOverflowError:
            self.check_overflow()
            self.last = (len(self.events), [])
            return
        wire = to_openai(view)
        state = self.memory._tracker.state
        found = problems(wire)
        if "only instructions" in found:
            shown = {m.id for m in view}
            others = [m for m in self.added if not is_instruction(m) and m.id in shown]
            assert not others
            found.remove("only instructions")
        assert not found, found
        tokens = COUNTER.count_messages(view)
        assert tokens <= self.config.budget
        assert tokens == self.memory.stats().view_tokens
        events, earlier = self.last
        if events == len(self.events):
            assert wire[: len(earlier)] == earlier, "the view changed without an event"
        self.last = (len(self.events), wire)
        if not within_a_step or events != len(self.events):
            wishes = set(WISH.findall(json.dumps([msg.to_dict() for msg in self.added])))
            kept = [edit_to_dict(segment) for segment in state.ledger.segments()]
            assert wishes.issuperset(WISH.findall(json.dumps([wire, kept]))), "it says what was deleted"
            self.check_rebuilt(state)
            self.check_nothing_lost(view, state)

    def check_rebuilt(self, state: Any) -> None:
        history = keyed(self.run(self.memory.get_history()))
        redact = self.config.redact
        items = rebuild(history, state.ledger.copy(), counted={}, measure=state.measure, redact=redact).items
        assert [(i.key, i.kind, i.tokens, i.msg.to_dict()) for i in items] == [
            (i.key, i.kind, i.tokens, i.msg.to_dict()) for i in state.items
        ]

    def check_nothing_lost(self, view: list[Msg], state: Any) -> None:
        for item in state.items:
            if item.stubs:
                assert item.tokens < item.source_tokens.total, (item.stubs, item.source, item.source_tokens)
        parts = [text for msg in view for text in said(msg)]
        calls = [block for msg in view for block in msg.get_content_blocks("tool_use")]
        parts += [text for block in calls for text in (block.get("raw_input", ""), *arguments(block))]
        todo = [ref for text in parts for ref in REF.findall(text)]
        seen: set[str] = set()
        while todo:
            ref = todo.pop()
            if ref not in seen and state.ledger.is_live(ref):
                seen.add(ref)
                text = self.run(self.memory.read_ref(ref))
                parts.append(text)
                todo += REF.findall(text)
        everything = "\0".join(parts)
        withheld = set(state._builder.withheld)
        for key, msg in keyed(self.added):
            if key not in withheld and not is_empty_assistant(msg):
                for text in said(msg):
                    hidden = hide_foxes(text) if self.config.redact else text
                    assert text in everything or hidden in everything, (
                        f"lost: {text[:80]!r} of {msg.role} {msg.content!r:.500}"
                    )
                for block in msg.get_content_blocks("tool_use"):
                    written = json.dumps(block["input"], ensure_ascii=False)
                    whole = [block.get("raw_input", written)]
                    assert any(
                        all(
                            text in everything or (self.config.redact and hide_foxes(text) in everything)
                            for text in texts
                        )
                        for texts in (whole, arguments(block))
                    ), f"lost: arguments {block!r:.500}"

    def check_overflow(self) -> None:
        """An overflow is right only where fixed messages leave no room for one segment of each kind."""
        state = self.memory._tracker.state
        must_stay = sum(tokens for _, tokens in state.fixed_tokens())
        hints = state.known.bearing("hint")
        must_stay += 70 * any(key in hints for item in state.items for key in item.covered)
        assert must_stay + 70 > self.config.budget, [
            (item.key, item.kind, item.tokens) for item in state.items
        ]

    def teardown(self) -> None:
        if hasattr(self, "loop"):
            self.run(self.memory.aclose())
            left = asyncio.all_tasks(self.loop)
            self.loop.close()
            assert left == set()


class BackgroundLaws(Laws):
    """The same where an event is being prepared most of the time."""

    @initialize(
        config=configs(),
        budget=st.sampled_from((1_000, 2_000)),
        keep_recent_count=st.integers(0, 3),
        ratio=st.sampled_from((0.3, 0.5, 0.8)),
        count=st.integers(0, 40),
    )
    def start(
        self, config: CompressionConfig, budget: int, keep_recent_count: int, ratio: float, count: int
    ) -> None:
        given = {
            "mode": "compress" if config.mode == "compact" else config.mode,
            "max_total_tokens": budget,
            "reserved_tokens": 0,
            "keep_recent_count": keep_recent_count,
            "background_ratio": ratio,
            "redact": config.redact,
        }
        self.begin(CompressionConfig(**{**config.model_dump(exclude_unset=True), **given}), Remote)
        self.chat(count, 0, None)

    @rule(count=st.integers(1, 20), pause=st.integers(0, 2), mark=st.sampled_from((None, None, "hint")))
    def chat(self, count: int, pause: int, mark: str | None) -> None:
        """Short messages, and the view asked for after each."""
        for _ in range(count):
            self.number += 1
            msg = Msg("user", f"{self.number}: and on it goes, {'as before, ' * 12}", "user")
            self.added.append(msg)
            self.run(self.memory.add(msg, marks=mark))
            self.check_view(within_a_step=True)
            self.run(steps(pause))


class SharedLaws(Laws):
    """The same for two memories over one history and one store. Rules act on the one whose turn it is."""

    @initialize(
        config=configs(),
        kind=st.sampled_from((None, Terse, Failing, Remote)),
        base=st.sampled_from((InMemoryMemory, FileMemory)),
    )
    def start(self, config: CompressionConfig, kind: Any, base: Any) -> None:
        self.given = {"base": base()}
        self.begin(config, kind)
        self.other = self.memory, self.events, self.last
        self.events = []
        self.memory = self.new_memory()

    @rule()
    def take_turns(self) -> None:
        mine = self.memory, self.events, self.last
        self.memory, self.events, self.last = self.other
        self.other = mine

    def let_others_follow(self) -> None:
        with suppress(ContextOverflowError):
            self.run(self.other[0].get_memory())
        self.run(self.other[0].aclose())  # a view that is current tidies nothing up

    @rule()
    def close(self) -> None:
        self.run(self.other[0].aclose())
        super().close()

    @rule()
    def save_and_load(self) -> None:
        """Who has the history needs nothing else: whoever begins anew shows the same."""
        before = self.agreed_view()
        self.run(self.memory.aclose())
        self.events.clear()
        self.memory, self.last = self.new_memory(), (0, [])
        assert before == self.agreed_view()
        assert not any(event.kind == "compress" for event in self.events)

    @rule(history=chat_histories(valid=True, max_turns=6), lines=st.integers(5, 60), count=st.integers(0, 20))
    def act_at_once(self, history: list[dict[str, Any]], lines: int, count: int) -> None:
        """Both show a view and change something, while the other one does."""
        read = from_openai(history)
        gone = self.added[:2]
        self.number += 1
        filler = [Msg("user", f"{self.number}:{line} and on it goes", "user") for line in range(lines)]

        async def read_view(memory: CompressedMemory) -> None:
            with suppress(ContextOverflowError):
                await memory.get_memory()

        async def write() -> None:
            await steps(count)
            await self.memory.add(read)

        async def delete() -> None:
            await steps(count // 2)
            await self.other[0].delete([msg.id for msg in gone])

        async def all_at_once() -> None:
            await self.other[0].add(filler)
            await asyncio.gather(read_view(self.memory), read_view(self.other[0]), write(), delete())

        self.run(all_at_once())
        self.added = [msg for msg in self.added if msg not in gone] + filler + read

    def agreed_view(self) -> list[dict[str, Any]] | None:
        """Return what both show once neither has anything to do; None where that exceeds the budget."""
        views: list[Any] = []
        for _ in range(8):
            number, views = self.head_number(), []
            for memory in (self.memory, self.other[0]):
                try:
                    views.append([msg.to_dict() for msg in self.run(memory.get_memory())])
                except ContextOverflowError:
                    views.append(None)
            if number == self.head_number():
                break
        else:
            raise AssertionError("they do not come to rest")
        one, other = views
        assert one == other, next(
            ((a, b) for a, b in zip(one or [], other or [], strict=False) if a != b), views
        )
        return one

    def head_number(self) -> int:
        number: int = self.run(self.memory.base.history.head()).number
        return number

    @invariant()
    def both_show_the_same(self) -> None:
        if hasattr(self, "other"):
            self.agreed_view()
            for memory in (self.memory, self.other[0]):
                state = memory._tracker.state
                told = self.run(memory.base.history.ledger())
                assert state.ledger.edits() == {name_of(edit): edit for entry in told for edit in entry.edits}
                shown = {id for item in state.items for id in item.covered}
                assert shown <= {msg.id for msg in self.added}

    def teardown(self) -> None:
        if hasattr(self, "other"):
            self.run(self.other[0].aclose())
        super().teardown()


Laws.TestCase.settings = settings(
    max_examples=80,
    stateful_step_count=12,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
BackgroundLaws.TestCase.settings = settings(Laws.TestCase.settings, max_examples=40)
SharedLaws.TestCase.settings = settings(Laws.TestCase.settings, max_examples=25)
TestLaws = Laws.TestCase
TestSharedLaws = SharedLaws.TestCase
TestBackgroundLaws = BackgroundLaws.TestCase
