"""`compress`: sessions in, views out, and what happened on the way."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from logging.handlers import BufferingHandler
from pathlib import PurePath
from typing import Any

from context_compressor.cli.options import NO, CommandError
from context_compressor.cli.output import slug_of
from context_compressor.core.config import CompressionConfig
from context_compressor.errors import ContextOverflowError, InvalidMessageError, OffloadError
from context_compressor.events import CompressionEvent
from context_compressor.lab.measure import CachedCounter, Ours
from context_compressor.lab.readers import Form, Reading, Session, grouped_texts
from context_compressor.memory.reporting import CompressionStats
from context_compressor.messages.chat import from_openai, to_openai
from context_compressor.messages.exchanges import ExchangeBuilder
from context_compressor.messages.msg import Msg, provenance_of, refs_shown, tool_calls, tool_results
from context_compressor.messages.repair import is_empty_assistant, with_refusal_as_text
from context_compressor.offload.files import FileOffloadStore
from context_compressor.offload.store import KeepingStore
from context_compressor.summarizers.protocol import Summarizer
from context_compressor.tokens.counter import TokenCounter
from context_compressor.tokens.tiktoken import TiktokenCounter

_MESSAGES_PER_STEP = 50
"""Messages counted between two steps of the progress bar: some 10 ms of work."""
_SLUG_CHARACTERS = 40
"""Of a session's name in that of its namespace."""
_MESSAGE_INDEX = re.compile(r"messages\[(\d+)\]")

ProgressHook = Callable[[int], object]
"""Called with the number of messages done since the last call."""


@dataclass(frozen=True, slots=True)
class StandIn:
    """A message of the view that stands for what left it."""

    kind: str
    """`stub`, `notes`, `placeholder` or `thoughts`; nothing in the view stands for thoughts."""
    refs: tuple[str, ...]
    covers: tuple[int, ...]
    """Indexes of the messages it stands for."""


@dataclass(frozen=True, slots=True)
class SessionReport:
    """What became of one session."""

    number: int
    line: int | None
    namespace: str
    messages: int
    view: list[dict[str, Any]]
    stats: CompressionStats
    stand_ins: tuple[StandIn, ...]
    events: tuple[CompressionEvent, ...]
    notes: tuple[str, ...] = ()
    """What the user should know: failures first, what was left out, repairs, calls that wait for results."""
    failures: tuple[str, ...] = ()
    """Those notes that tell of a summariser that failed; rules wrote instead."""

    @property
    def refs(self) -> list[str]:
        """The refs stored for it, in the order of storing."""
        alone = [ref for one in self.stand_ins if one.kind == "thoughts" for ref in one.refs]
        return list(dict.fromkeys([*alone, *(ref for event in self.events for ref in event.refs)]))


@dataclass(slots=True)
class Compressor:
    """Compress sessions one after the other, each into its own namespace of one directory."""

    config: CompressionConfig
    store: str
    summarizer: Summarizer | None = None
    namespace: str | None = None
    counter: TokenCounter = field(default_factory=TiktokenCounter)

    async def compress(self, source: Reading, on_progress: ProgressHook) -> list[SessionReport]:
        """Compress every session of `source`, all of them read before the first is worked on.

        Raises:
            CommandError: a message is malformed, a session does not fit, or the store cannot be used.
        """
        for session in source.sessions:
            read_messages(session)
        namespaces = name_sessions(source, self.namespace)
        return [
            await self._compress_one(source, number, namespaces[number - 1], on_progress)
            for number in range(1, len(source.sessions) + 1)
        ]

    async def _compress_one(
        self, source: Reading, number: int, namespace: str, on_progress: ProgressHook
    ) -> SessionReport:
        session = source.sessions[number - 1]
        history = read_messages(session)
        placeholders = _missing_results(history)
        ours = self._make_system(namespace)
        memory, events = ours.memory, ours.events
        with _collected_logs() as logged:
            try:
                for start in range(0, len(history), _MESSAGES_PER_STEP):
                    step = history[start : start + _MESSAGES_PER_STEP]
                    await memory.add(step)
                    on_progress(len(step))
                    await asyncio.sleep(0)  # small messages are counted without a pause; Ctrl-C needs one
                await memory.add(placeholders)
                view = await memory.get_memory()
                alone = await self._store_thoughts(history, namespace)
            except ContextOverflowError as error:
                reason = str(error).replace("max_total_tokens", "--budget")
                raise CommandError(f"{session.place()}: {reason}", NO) from None
            finally:
                await memory.aclose()
        failures = [event.error for event in events if event.kind == "failure" and event.error is not None]
        for failure in failures:
            if failure.startswith("Offload"):  # it is lost; notes that failed were made by other means
                raise CommandError(f"--store {self.store}: {failure}")
        if history and not view:
            kinds = "thoughts alone" if alone else "nothing that is said"
            raise CommandError(f"{session.place()}: none of its {len(history)} messages can be sent: {kinds}")
        written = to_openai(view)
        pairs = {json.dumps(written[place : place + 2]) for place in range(len(written))}
        done = [note for record in logged if _is_done(note := record.getMessage(), session, pairs)]
        repairs = [_in_words(note, session) for note in done]
        repairs = grouped_texts((note, note) for note in repairs)
        failed = [f"the summariser failed, rules wrote instead: {failure}" for failure in failures]
        failed = grouped_texts((note, note) for note in failed)
        notes = [*failed, *session.notes, *_told_of_thoughts(alone), *repairs, *_told(placeholders)]
        prefix = f"{session.source}: " if source.form is Form.DIRECTORY else ""
        return SessionReport(
            number=number,
            line=session.line,
            namespace=namespace,
            messages=len(history),
            view=written,
            stats=memory.stats(),
            stand_ins=(*alone, *(stand_in for msg in view if (stand_in := _stand_in(msg)) is not None)),
            events=tuple(events),
            notes=tuple(f"{prefix}{note}" for note in dict.fromkeys(notes)),
            failures=tuple(failed),
        )

    async def _store_thoughts(self, history: Sequence[Msg], namespace: str) -> list[StandIn]:
        """Store replies of thoughts alone, which no provider takes; return where they are stored."""
        store = FileOffloadStore(self.store, namespace)
        found = []
        for index, msg in enumerate(history):
            thoughts = [block.get("thinking") for block in msg.get_content_blocks("thinking")]
            text = "\n\n".join(thought for thought in thoughts if isinstance(thought, str))
            if text.strip() and is_empty_assistant(msg) and with_refusal_as_text(msg) is msg:
                try:
                    found.append(StandIn("thoughts", (await store.write(text),), (index,)))
                except OffloadError as error:
                    raise CommandError(f"--store {self.store}: {error}") from None
        return found

    def _make_system(self, namespace: str) -> Ours:
        try:
            store = KeepingStore(FileOffloadStore(self.store, namespace))  # for the output of earlier runs
        except ValueError as error:
            raise CommandError(f"--{error}") from None
        counter = CachedCounter(self.counter)
        return Ours(self.config.budget, counter, store=store, summarizer=self.summarizer, config=self.config)


def _told_of_thoughts(alone: Sequence[StandIn]) -> list[str]:
    if not alone:
        return []
    return [f"left out: replies of thoughts alone ({len(alone)}), which no provider takes; they are stored"]


def _told(placeholders: Sequence[Msg]) -> list[str]:
    """Return a note on the placeholders that answer calls at the end, if there are any."""
    if not placeholders:
        return []
    count = len(placeholders)
    calls = "1 call at the end that waits" if count == 1 else f"{count} calls at the end that wait"
    return [f"{calls} for a result answered by a placeholder, as providers ask for one"]


def read_messages(session: Session) -> list[Msg]:
    """Return the messages of a session, each under an id that says where it stands.

    Raises:
        CommandError: one is malformed; names file, line and field.
    """
    try:
        history = from_openai(session.messages)
    except InvalidMessageError as error:
        found = _MESSAGE_INDEX.match(str(error))
        place = session.place(int(found[1]) if found else None)
        raise CommandError(f"{place}: {error}") from None
    for index, msg in enumerate(history):
        msg.id, msg.timestamp = f"messages[{index}]", ""
    return history


def name_sessions(source: Reading, namespace: str | None) -> list[str]:
    """Return a namespace for each session: as asked for, else from the file's name or the session's own id.

    A name from outside only lends letters, and a digest of the messages keeps sessions apart that share it.
    """
    if namespace is not None:
        count = len(source.sessions)
        return [namespace] if count == 1 else [f"{namespace}-{number}" for number in range(1, count + 1)]
    stem = PurePath(source.name).name.split(".")[0] or "session"
    names = []
    for number, session in enumerate(source.sessions, 1):
        name = session.id or (stem if len(source.sessions) == 1 else f"{stem}-{number}")
        digest = hashlib.sha256(json.dumps(session.messages).encode()).hexdigest()[:8]
        names.append(f"{slug_of(name, _SLUG_CHARACTERS)}-{digest}")
    return names


def _missing_results(history: Sequence[Msg]) -> list[Msg]:
    """Return placeholders for the results that calls at the end wait for: a view withholds such calls, and
    what is written would lack them.
    """
    builder = ExchangeBuilder()
    for msg in history:
        builder.feed(msg.id, msg)
    builder.settle()
    made = []
    originals = {msg.id: tool_calls(msg) for msg in history}
    for exchange in builder.flush():
        renamed: dict[str, str] = {}
        for message in exchange:
            if message.placeholder:
                (result,) = tool_results(message.msg)
                result["id"] = renamed.get(result["id"], result["id"])
                made.append(message.msg)
            else:
                calls = zip(tool_calls(message.msg), originals[message.key], strict=False)
                renamed |= {call["id"]: original["id"] for call, original in calls}
    return made


def _is_done(note: str, session: Session, written: set[str]) -> bool:
    """Tell whether what is noted of a message is seen in the pairs of messages that are written."""
    found = _MESSAGE_INDEX.search(note)
    if found is None:
        return True
    index = int(found[1])
    return json.dumps(session.messages[index : index + 2]) not in written


def _in_words(note: str, session: Session) -> str:
    """Return a note on a message, with its place as the tables name it."""
    found = _MESSAGE_INDEX.search(note)
    if found is None:
        return note
    index = int(found[1])
    line = session.message_lines[index] if index < len(session.message_lines) else None
    place = f"message {index}" if line is None else f"line {line}"
    return re.sub(r"message messages\[\d+\]\S*", f"{place}:", note)


def _stand_in(msg: Msg) -> StandIn | None:
    provenance = provenance_of(msg)
    if not provenance:
        return None
    covers = [int(found[1]) for id in provenance["covered_ids"] if (found := _MESSAGE_INDEX.match(id))]
    return StandIn(provenance["kind"], refs_shown(msg), tuple(covers))


@contextmanager
def _collected_logs() -> Iterator[list[logging.LogRecord]]:
    """Collect what the library logs, repairs included, instead of letting it run into the report."""
    logger = logging.getLogger("context_compressor")
    before = logger.level, logger.propagate
    collector = BufferingHandler(sys.maxsize)
    logger.addHandler(collector)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield collector.buffer
    finally:
        logger.removeHandler(collector)
        logger.setLevel(before[0])
        logger.propagate = before[1]
