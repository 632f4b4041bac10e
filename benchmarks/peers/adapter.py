"""What every adapter shares: the pipe to the run, and the originals of what a peer left as it was.

An adapter runs in its peer's own environment, so this knows the standard library only. Lines of JSON go both
ways; `piped` has the other end. While an adapter answers, it may ask back: for
the tokens of messages, and for a summary. What would differ from run to run without being the peer's doing,
random ids and where the run's folders are, is the same in every session.
"""

from __future__ import annotations

import gc
import json
import os
import random
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import suppress
from typing import Any, NoReturn, Protocol

Chat = dict[str, Any]

INSTRUCTION_ROLES = ("system", "developer")
LEAST_CHARACTERS = 8
"""A text below this may stand in any prompt."""
SEED = 0
"""Of what random ids are made from, in every session."""


class Parent:
    """The run at the other end of the pipe.

    Args:
        source: the file descriptor of its lines.
        target: that of ours.
    """

    def __init__(self, source: int, target: int) -> None:
        self._lines = os.fdopen(source, encoding="utf-8")
        self._out = os.fdopen(target, "w", encoding="utf-8")
        self.waited = 0.0
        """Seconds spent waiting for answers."""
        self._tokens: dict[Hashable, int] = {}

    def read(self) -> Chat | None:
        """Return the next request; None when the run has gone."""
        line = self._lines.readline()
        return json.loads(line) if line else None

    def write(self, answer: Chat) -> None:
        self._out.write(json.dumps(answer) + "\n")
        self._out.flush()

    def _ask(self, question: Chat) -> Chat:
        began = time.perf_counter()
        self.write(question)
        answer = self.read()
        self.waited += time.perf_counter() - began
        if answer is None:
            raise SystemExit("the run has gone")
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer

    def count(self, items: Sequence[Any], key: Callable[[Any], Hashable], chat: Callable[[Any], Chat]) -> int:
        """Return the tokens of a peer's messages, by the run's counter, each message counted once.

        Args:
            items: the messages in the peer's form.
            key: what is the same for two messages only if they cost the same.
            chat: makes a chat dict of one.
        """
        keys = [key(item) for item in items]
        new = {k: item for k, item in zip(keys, items, strict=True) if k not in self._tokens}
        if new:
            answer = self._ask({"op": "count", "messages": [chat(item) for item in new.values()]})
            self._tokens.update(zip(new, answer["tokens"], strict=True))
        return sum(self._tokens[k] for k in keys)

    def summarize(self, prompt: Sequence[str], messages: Iterable[Chat]) -> str:
        """Return a summary of messages.

        Args:
            prompt: the texts that a model would have read to write it: what its input costs.
            messages: what the prompt shows, as chat dicts.
        """
        question = {"op": "summarize", "prompt": list(prompt), "messages": list(messages)}
        return str(self._ask(question)["text"])


class Adapter(Protocol):
    """A peer, for one session."""

    def send(self, new: Sequence[Chat]) -> list[Chat]:
        """Take in new messages, and return what the peer would send for the next assistant message."""
        ...

    def convert(self, messages: Sequence[Chat]) -> list[Chat]:
        """Return messages as they come back from the peer's form."""
        ...

    def stored(self) -> dict[str, str]:
        """Return every text that the peer has put elsewhere, by the name that its views give it."""
        ...


class Storeless:
    """A peer that keeps nothing beside its view."""

    def stored(self) -> dict[str, str]:
        return {}


class Originals:
    """The chat dicts that a peer's messages were made from.

    What a peer left as it was returns to the run as it came: a wire format is no doing of the peer's.
    """

    def __init__(self) -> None:
        self._of: dict[Hashable, tuple[Any, Chat]] = {}

    def keep(self, key: Hashable, pristine: Any, chat: Chat) -> None:
        """Note what a message of this key was made from, and what shows that it is unchanged."""
        self._of[key] = pristine, chat

    def restore(self, key: Hashable, now: Any) -> Chat | None:
        """Return the chat dict of a message that is unchanged; None for others."""
        pristine, chat = self._of.get(key, (None, None))
        return chat if chat is not None and (now is pristine or now == pristine) else None


def split_instructions(history: Sequence[Chat]) -> int:
    """Return how many messages at the start are instructions: what a peer has as its system prompt."""
    for index, message in enumerate(history):
        if message.get("role") not in INSTRUCTION_ROLES:
            return index
    return len(history)


def text_of(message: Chat) -> str:
    """Return the text of a chat dict's content."""
    content = message.get("content")
    if isinstance(content, list):
        return "\n".join(part.get("text") or "" for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def shown_in(prompt: str, messages: Sequence[Chat], clip: int = 400) -> list[Chat]:
    """Return the messages that a prompt shows, judged by the first characters of what they say or call.

    Calls and their results are shown together; texts too short to tell by are no evidence.
    """
    exchanges: list[list[Chat]] = []
    for message in messages:
        if message["role"] == "tool" and exchanges and exchanges[-1][0].get("tool_calls"):
            exchanges[-1].append(message)
        else:
            exchanges.append([message])
    return [message for exchange in exchanges if _is_shown(prompt, exchange, clip) for message in exchange]


def _is_shown(prompt: str, exchange: Sequence[Chat], clip: int) -> bool:
    for message in exchange:
        said = [text_of(message), *(c["function"]["arguments"] for c in message.get("tool_calls") or ())]
        if any(text.strip()[:clip] in prompt for text in said if len(text.strip()) >= LEAST_CHARACTERS):
            return True
    return False


def serve(make: Callable[[int, Parent], Adapter]) -> None:
    """Answer the run until it goes; called with `--forks`, each session in a process of its own."""
    if sys.argv[1:2] == ["--forks"]:
        serve_forks(make, socket.socket(fileno=int(sys.argv[2])))
    source, target = os.dup(0), os.dup(1)
    # What a peer prints must not reach the pipe, and it must not read from it.
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    serve_session(make, Parent(source, target))


def serve_forks(make: Callable[[int, Parent], Adapter], control: socket.socket) -> NoReturn:
    """Fork for each session whose socket comes through `control`; at its end kill what still runs.

    Raises:
        RuntimeError: importing the peer started threads, which a fork would be without.
    """
    started = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
    if started:
        raise RuntimeError(f"forks would be without the threads {started}; give each session a process")
    forks: set[int] = set()
    while session := socket.recv_fds(control, 1, 1)[1]:
        forks -= {pid for pid in forks if os.waitpid(pid, os.WNOHANG)[0]}
        pid = os.fork()
        if pid == 0:
            control.close()
            _serve_fork(make, session[0])
        forks.add(pid)
        os.close(session[0])
    for pid in forks:
        os.kill(pid, signal.SIGKILL)
    os._exit(0)


def _serve_fork(make: Callable[[int, Parent], Adapter], session: int) -> NoReturn:
    status = 1
    try:
        os.set_inheritable(session, False)
        # Writes to every object, so copies now what a peer would else copy, and pay for, in its first turns.
        gc.collect()
        serve_session(make, Parent(session, os.dup(session)))
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        # Without what the server would do at its own end.
        with suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def serve_session(make: Callable[[int, Parent], Adapter], parent: Parent) -> None:
    """Answer what the run asks in a session."""
    adapter: Adapter | None = None
    sent: list[Chat] = []
    stored: dict[str, str] = {}
    while (request := parent.read()) is not None:
        operation = request["op"]
        try:
            if operation == "start":
                settle(request["folder"])
                adapter, sent, stored = make(request["budget"], parent), [], {}
                parent.write({"ready": True, "pid": os.getpid()})
                continue
            assert adapter is not None
            if operation == "send":
                parent.waited, began = 0.0, time.perf_counter()
                try:
                    view = adapter.send(request["new"])
                finally:
                    seconds = time.perf_counter() - began - parent.waited
                texts = adapter.stored()
                fresh = {name: text for name, text in texts.items() if stored.get(name) != text}
                keep = _common(sent, view)
                answer = {"keep": keep, "messages": view[keep:], "stored": fresh, "seconds": seconds}
                sent, stored = view, texts
                parent.write(answer)
            elif operation == "convert":
                parent.write({"messages": adapter.convert(request["messages"])})
        except Exception as error:
            print(f"{operation}: {error!r}", file=sys.stderr)
            parent.write({"error": f"{type(error).__name__}: {error}"[:500]})


def settle(folder: str) -> None:
    """Work, and be at home, in a folder; draw random ids from a seed, as views name files by them."""
    os.chdir(folder)
    os.environ["HOME"] = folder
    random.seed(SEED)
    # Of these `uuid4` and `secrets` are made.
    os.urandom = random._urandom = random.Random(SEED).randbytes  # type: ignore[attr-defined]


def _common(before: Sequence[Chat], now: Sequence[Chat]) -> int:
    same = 0
    for old, new in zip(before, now, strict=False):
        if old is not new and old != new:
            break
        same += 1
    return same
