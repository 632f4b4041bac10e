"""Make the saved states beside this file: fourteen invented sessions, with the views that their states give.

It was run once for each form of the saved state: form 1 stands in this folder, form 2 in `form_2`, and in
`notes` what form 2 holds since notes took the place of segments. The files are not to be made again: they
stand for what users have on their disks. A new form gets new files beside these. What today's code saves is
seen, and such new files are made, by

    python -m tests.memory.saved.make FOLDER

It writes a state of `compress_messages` as well, to `FOLDER/stateless/state.json`, with the `messages` it
is of, `config`, and the `wire` that came of them. Each other file holds

- `name` and `description`;
- `config`: what `CompressionConfig` was given;
- `remote`: whether a model wrote the summaries;
- `state`: of `state_dict`;
- `texts`: what the offload store held, by ref; what it had refused is not there;
- `refs`: what the ledger named, by `reachable_refs`;
- `budget_tokens`: what a view might cost by all that was known;
- `view`: the messages, by `Msg.to_dict`;
- `wire`: the view by `to_openai`.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any
from unittest import mock

from context_compressor import (
    CompressedMemory,
    CompressionConfig,
    InMemoryOffloadStore,
    Msg,
    compress_messages,
    from_openai,
    to_openai,
)
from context_compressor.messages import msg as messages_module
from tests.memory.saved.sessions import (
    SESSIONS,
    Editor,
    Model,
    Session,
    Store,
    assistant,
    calls,
    log,
    prose,
    result,
    user,
)

BEGIN = datetime(2026, 11, 2, 9)


class Making:
    """The memory of one session in the making; ids and times are counted, so they are always the same."""

    def __init__(self, session: Session) -> None:
        self.store = Store()
        self.memory = CompressedMemory(
            config=CompressionConfig(**session.config),
            store=self.store,
            summarizer=model_of(session),
        )
        self._numbers = count(1)

    async def say(self, *said: dict[str, Any], marks: str | list[str] | None = None) -> list[Msg]:
        """Add chat dicts, and return the messages."""
        added = from_openai(list(said))
        for msg in added:
            number = next(self._numbers)
            msg.id = f"m{number:03}"
            msg.timestamp = _time(number)
        await self.memory.add(added, marks=marks)
        return added

    async def go(self, *said: dict[str, Any]) -> None:
        """Add chat dicts as an agent's loop does: the view is asked for wherever the agent's turn is."""
        for message in said:
            if message["role"] == "assistant":
                await self.memory.get_memory()
            await self.say(message)
        await self.memory.get_memory()


def model_of(session: Session) -> Model | Editor | None:
    """Return who writes in a session beside the rules."""
    return (Editor() if session.edits else Model()) if session.remote else None


def _time(number: int) -> str:
    return (BEGIN + timedelta(seconds=7 * number)).isoformat(sep=" ", timespec="milliseconds")


@contextmanager
def counted_ids() -> Iterator[None]:
    """Let messages that are made meanwhile, as `sync` makes them, have numbers as ids and times."""
    ids, times = count(1), count(1)
    with (
        mock.patch.object(messages_module, "new_id", side_effect=lambda: f"s{next(ids):05}"),
        mock.patch.object(messages_module, "datetime") as clock,
    ):
        clock.now.side_effect = lambda: BEGIN + timedelta(seconds=7 * next(times))
        yield


async def made(session: Session) -> dict[str, Any]:
    """Run a session; return what its file says."""
    making = Making(session)
    with counted_ids():
        await session.run(making)
    state = json.loads(json.dumps(making.memory.state_dict()))
    texts = dict(sorted(making.store.texts().items()))
    resumed = CompressedMemory(
        config=CompressionConfig(**session.config),
        store=InMemoryOffloadStore(texts),
        summarizer=model_of(session),
    )
    resumed.load_state_dict(state)
    view = await resumed.get_memory()
    if view != await making.memory.get_memory():
        raise SystemExit(f"{session.name}: the state does not give the view that it was saved with")
    await making.memory.aclose()
    await resumed.aclose()
    return {
        "name": session.name,
        "description": session.description,
        "config": session.config,
        "remote": session.remote,
        "state": state,
        "texts": texts,
        "refs": await resumed.reachable_refs(),
        "budget_tokens": resumed.budget_tokens,
        "view": [msg.to_dict() for msg in view],
        "wire": to_openai(view),
    }


def made_stateless() -> dict[str, Any]:
    """Compress a list as it grows, without a memory; return what its file says."""
    config = {"max_total_tokens": 2_400, "keep_recent_count": 4}
    messages: list[dict[str, Any]] = []
    state, wire = None, list[dict[str, Any]]()
    for n in range(24):
        messages += [user(f"Depot {n}? {prose(n, 3)}"), calls((f"a{n}", "read_log", {"depot": n}))]
        messages += [result(f"a{n}", log(n, 9)), assistant(f"Depot {n} agrees. {prose(n + 300, 4)}")]
        done = compress_messages(messages, config=CompressionConfig(**config), state=state)
        state, wire = json.loads(json.dumps(done.state)), done.messages
    return {"config": config, "messages": messages, "state": state, "wire": wire}


def main(folder: Path) -> None:
    """Write a file for each session."""
    (folder / "stateless").mkdir(parents=True, exist_ok=True)
    files = {f"{session.name}.json": asyncio.run(made(session)) for session in SESSIONS}
    for name, content in {**files, "stateless/state.json": made_stateless()}.items():
        said = json.dumps(content, ensure_ascii=False, indent=1)
        file = folder / name
        file.write_text(f"{said}\n", encoding="utf-8")
        print(f"{file}  {file.stat().st_size:,} bytes")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit("usage: python -m tests.memory.saved.make FOLDER")
    main(Path(sys.argv[1]))
