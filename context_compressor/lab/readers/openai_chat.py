"""OpenAI chat: a list of messages, an object with `messages`, or JSONL of either or of messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from context_compressor.errors import InvalidMessageError
from context_compressor.lab.readers.documents import Document, Numbered
from context_compressor.lab.readers.reader import Reader
from context_compressor.lab.readers.session import Form, Format, Session, UnreadableError
from context_compressor.lab.readers.tables import pick
from context_compressor.lab.readers.transcript import SAYS_NOTHING, dicts_in, is_message, keys_of, kind_of
from context_compressor.messages.chat import from_openai
from context_compressor.messages.repair import is_empty_assistant

_ID_KEYS = ("id", "session_id", "conversation_id", "chat_id")


def _is_own(value: Any) -> bool:
    if isinstance(value, dict):
        return "messages" in value or is_message(value)
    return isinstance(value, list) and (not value or any(map(is_message, value)))


def _with_system(
    messages: list[Any], frame: dict[str, Any] | None
) -> tuple[list[Any], dict[str, Any] | None]:
    """Return messages with the instructions from beside them in front, and the frame without these."""
    system = (frame or {}).get("system")
    texts = [system] if isinstance(system, str) else [pick(block, "text") for block in dicts_in(system)]
    if frame is None or not texts or not all(isinstance(text, str) and text.strip() for text in texts):
        return messages, frame
    rest = {key: value for key, value in frame.items() if key != "system"}
    return [{"role": "system", "content": "\n\n".join(texts)}, *messages], rest


def _without_silent(document: Document, messages: list[Any], line: int) -> list[Any]:
    """Return the messages that say something; the others are rejected."""
    kept = []
    for index, message in enumerate(messages):
        if _is_silent(message):
            document.reject(UnreadableError(f"messages[{index}]: {_silent(message)}", message=index), line)
        else:
            kept.append(message)
    return kept


def _is_silent(message: dict[str, Any]) -> bool:
    """Tell whether a message has no words and no call, result, thought or beginning of an answer."""
    content = message.get("content")
    if isinstance(content, str) and content.strip():
        return False
    return all(
        all(block.get("type") == "text" and not block["text"].strip() for block in msg.get_content_blocks())
        and (msg.role != "assistant" or is_empty_assistant(msg))
        for msg in from_openai([message])
    )


def _silent(message: dict[str, Any]) -> str:
    return f"{SAYS_NOTHING} ({keys_of(message)})"


def _check(messages: list[Any], start: int) -> None:
    """Refuse messages that are no chat dicts; `start` is the index of the first within its session."""
    try:
        from_openai(messages)
    except InvalidMessageError as error:
        why = str(error)
        raise UnreadableError(
            why if not start else why.replace("messages[0]", f"messages[{start}]", 1),
            message=next(index for index, message in enumerate(messages) if _is_malformed(message)),
            held=len(messages),
        ) from None


def _is_malformed(message: Any) -> bool:
    try:
        from_openai([message])
    except InvalidMessageError:
        return True
    return False


def _id_of(frame: dict[str, Any] | None) -> str | None:
    found = [frame[key] for key in _ID_KEYS if key in frame] if frame else []
    return next((str(value) for value in found if isinstance(value, str | int) and value != ""), None)


class _Chat(Reader):
    format = Format.OPENAI

    def claims(self, sample: Sequence[Any]) -> int:
        """Count the values that are messages or sessions of them; asked last, when nobody else knew them."""
        return sum(map(_is_own, sample))

    def is_item(self, value: Any) -> bool:
        return is_message(value)

    def unwrap(self, value: Any) -> tuple[list[Any], dict[str, Any] | None]:
        """Return the messages that a value holds, and the object around them, if there is one."""
        frame = value if isinstance(value, dict) else None
        messages = value if frame is None else frame.get("messages")
        if frame is not None and "messages" not in frame:
            found = keys_of(frame)
            raise UnreadableError(
                f"messages: expected a list of chat messages, but the key is missing ({found})"
            )
        if not isinstance(messages, list):
            where, other = ("messages: ", "") if frame is not None else ("", ' or {"messages": [...]}')
            raise UnreadableError(f"{where}expected a list of chat messages{other}, got {kind_of(messages)}")
        _check(messages, 0)
        return messages, frame

    def read(self, document: Document) -> Iterator[Session]:
        """Yield a session per value, or one of all values where these are messages; the very dicts."""
        for line, value, held in self.groups(document):
            if value is None:
                yield self._read_lines(document, held)
                return
            messages, frame = held
            kept = _without_silent(document, messages, line)
            document.taken.count += len(kept) if messages else 1
            kept, frame = _with_system(kept, frame)
            form = Form.FOREIGN if document.is_opened else Form.ONE
            yield Session(
                kept,
                document.name,
                self.format,
                Form.SESSION_LINES if document.is_lines else form,
                id=_id_of(frame),
                frame=frame,
                line=line if document.is_lines else None,
                is_indented=document.is_indented,
            )

    def _read_lines(self, document: Document, values: Iterator[Numbered]) -> Session:
        messages: list[Any] = []
        lines: list[int] = []
        for line, value in values:
            with document.rejecting(line):
                _check([value], len(messages))
                if _is_silent(value):
                    raise UnreadableError(_silent(value))
                messages.append(value)
                lines.append(line)
                document.taken.count += 1
        return Session(messages, document.name, self.format, Form.MESSAGE_LINES, message_lines=tuple(lines))


READER = _Chat()
