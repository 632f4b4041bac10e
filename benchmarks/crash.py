"""Processes and servers that are killed at random points, and what is left of their sessions.

    python benchmarks/crash.py [--backend NAME ...] [--kills N] [--server-kills N] [--minutes N]
                               [--longest MS] [--state DIR] [--anew] [--url NAME=URL ...] [--results DIR]

A worker adds messages to a session, marks and deletes them, and shows views whose texts move to an offload
store of the same backend. After 10 to 300 ms of that (`--longest`) it is killed by SIGKILL, or while it still
opens the session. Where the server is killed, and started again, the worker has to go on with the same memory
until it is killed as well. Then the next process opens the session, and checks:

- what was acknowledged is there, once and in order; of the step that was under way all is there, or nothing;
- every ref of view and ledger reads back as the text that it names;
- the view keeps the rules of chat completions and its budget;
- where nothing changed since a view was shown, it is that view again, byte for byte, rebuilt from history
  and ledger.

Backends: sqlite, postgresql, mariadb, redis (`appendfsync always`), redis-everysec, which may lose the last
two seconds of what it acknowledged, and nothing in the midst of it, and file: an `InMemoryMemory` that is
saved by `save(path)` after every step, its texts in a `FileOffloadStore`. Servers are started for this. What
was done is kept under `--state`: who starts the program again goes on. `--url` names a server that runs,
which is not killed. The program ends with 1 if anything of the above fails. Of each backend:

- worker kills, server kills: how often a process was killed;
- steps: that were acknowledged, and events: of compression among them;
- under way: steps that were cut off, and in brackets those of them that had happened;
- same view: views that were compared with the one shown before; refs: that were read back, and in brackets
  those whose text was gone and whose messages were read instead: of files alone, where a step that deletes
  was cut off before its state was saved;
- lost: acknowledged steps that were gone after a kill;
- faults: whatever else was not as it must be; minutes: that it took.
"""

from __future__ import annotations

import json
import os
import random
import select
import shutil
import signal
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import IO, Any, NamedTuple

import pytest
from crash_worker import Journal, opened, run_worker, warm_up
from reporting import make_parser, markdown_table, notes_of, print_table, write_results

from tests.support import servers

BACKENDS = ("sqlite", "postgresql", "mariadb", "redis", "redis-everysec", "file")
COLUMNS = (
    "backend", "worker kills", "server kills", "steps", "events", "under way", "same view", "refs", "lost",
    "faults", "minutes"
)  # fmt: skip
OPEN_SECONDS = 90.0
"""A worker that says nothing for so long hangs."""
MAY_LOSE_SECONDS = {"redis-everysec": 2.0}
"""Redis puts off what it writes for as long while a sync is under way."""
REMEMBERED = 2_000
"""States of which one may be found where acknowledged steps may be lost."""


@dataclass
class Life:
    """What came of one kill."""

    server: bool = False
    steps: int = 0
    events: int = 0
    cut: int = 0
    landed: int = 0
    compared: int = 0
    refs: int = 0
    remade: int = 0
    lost: int = 0
    seconds: float = 0.0
    faults: list[str] = field(default_factory=list)


class Place(NamedTuple):
    """Where sessions of a backend live."""

    url: str
    folder: Path
    restart: Callable[[], None] | None
    """Kills the server and starts it again; None: there is none, or it is somebody else's."""


@contextmanager
def place_of(kind: str, url: str | None) -> Iterator[Place]:
    """Give a place for new sessions, with a server of its own if that takes one."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        if url is not None or kind in ("sqlite", "file"):
            yield Place(url or f"sqlite+aiosqlite:///{folder}/memory.db", folder, None)
            return
        start: Callable[..., servers.Started]
        if kind.startswith("redis"):
            form = "redis://127.0.0.1:{}"
            sync = "always" if kind == "redis" else "everysec"
            start = lambda **more: servers.start_redis(folder, sync=sync, **more)  # noqa: E731
        elif kind == "postgresql":
            form = "postgresql+asyncpg://postgres@127.0.0.1:{}/postgres"
            start = lambda **more: servers.start_postgres(folder, durable=True, **more)  # noqa: E731
        else:
            form = "mysql+asyncmy://test@127.0.0.1:{}/test"
            start = lambda **more: servers.start_mariadb(folder, durable=True, **more)  # noqa: E731
        running = start()

        def restart() -> None:
            nonlocal running
            servers.stop(running.process)
            running = start(port=running.port)

        try:
            yield Place(form.format(running.port), folder, restart)
        finally:
            servers.stop(running.process)


class Crasher:
    """Start workers over the sessions of one backend, and kill them."""

    def __init__(self, kind: str, place: Place, log: IO[bytes], longest: float) -> None:
        self._kind = kind
        self._log = log
        self._longest = longest
        opened(
            kind, place.url, place.folder, "none"
        )  # so that drivers are loaded before processes are forked
        self._place = place
        self._sessions = 0
        self._begin_session("")

    def _begin_session(self, after: str) -> None:
        self._sessions += 1
        self._session = f"session-{self._sessions}{after}"
        self._journal = Journal(REMEMBERED if self._kind in MAY_LOSE_SECONDS else 1)

    def live(self, seed: int, *, kill_server: bool) -> Life:
        """Let one process live and die; with the server in between, or by itself."""
        self._random = random.Random(seed)
        began, life = time.perf_counter(), Life(server=kill_server)
        reading, writing = os.pipe()
        process = os.fork()
        if not process:
            os.close(reading)
            os.dup2(self._log.fileno(), 2)
            place = self._place
            with suppress(BaseException):
                run_worker(writing, self._kind, place.url, place.folder, self._session, self._journal, seed)
            os._exit(1)
        os.close(writing)
        try:
            with os.fdopen(reading, "rb", buffering=0) as pipe:
                self._kill_in_time(process, pipe, life, kill_server)
        finally:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
        if self._journal.pending is not None:
            life.cut += 1
        if life.faults:
            self._begin_session("-after-a-fault")
        life.seconds = time.perf_counter() - began
        return life

    def _kill_in_time(self, process: int, pipe: Any, life: Life, kill_server: bool) -> None:
        lines = Lines(pipe)
        works = self._random.uniform(0.01, self._longest)
        if not kill_server and self._random.random() < 0.1:
            self._follow(lines, life, self._random.uniform(0, 0.15))  # while it opens the session
        elif self._follow(lines, life, OPEN_SECONDS, until="found"):
            self._follow(lines, life, works)
            if kill_server:
                assert self._place.restart is not None
                self._place.restart()
                self._follow(lines, life, 0.05)  # what it told before
                if self._follow(lines, life, OPEN_SECONDS, until="done"):
                    self._follow(lines, life, works)
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
        self._follow(lines, life, OPEN_SECONDS, until="end")

    def _follow(self, lines: Lines, life: Life, seconds: float, until: str | None = None) -> bool:
        """Take up what a worker tells, for some time or until it tells of something; whether it did."""
        for event in lines.read(seconds):
            kind = event.get("is")
            lost = 0
            if kind == "found":
                life.landed += bool(event["landed"])
                life.compared += event["compared"]
                life.refs += event["refs"]
                life.remade += event["remade"]
                lost = max(0, event["candidate"] - 1)
                life.lost += lost
                if lost and self._journal.lost_seconds(lost) > MAY_LOSE_SECONDS.get(self._kind, -1):
                    life.faults.append(f"{lost} acknowledged steps are gone")
            elif kind == "fault":
                life.faults.append(event["what"])
            elif kind == "failed":
                life.cut += 1
            elif kind == "done":
                life.steps += 1
                life.events = event["events"]
            self._journal.tell(event)
            if until is not None and kind == until:
                return True
        if until not in (None, "end"):
            life.faults.append(f"the worker did not come to tell of {until!r}")
        return False


class Lines:
    """What comes through a pipe, line by line."""

    def __init__(self, pipe: Any) -> None:
        self._pipe = pipe
        self._rest = b""

    def read(self, seconds: float) -> Iterator[dict[str, Any]]:
        """Yield what comes within some time."""
        end = time.monotonic() + seconds
        while True:
            line, cut, rest = self._rest.partition(b"\n")
            if cut:
                self._rest = rest
                yield json.loads(line)
                continue
            left = end - time.monotonic()
            if left <= 0 or not select.select([self._pipe], [], [], left)[0]:
                return
            more = self._pipe.read(65_536)
            if not more:
                return
            self._rest += more


def lives_in(file: Path) -> list[Life]:
    """Return what was done before."""
    if not file.exists():
        return []
    known = {one.name for one in fields(Life)}
    told = [json.loads(line) for line in file.read_text("utf-8").splitlines() if line.endswith("}")]
    return [Life(**{name: value for name, value in one.items() if name in known}) for one in told]


def crash(kind: str, options: Namespace, url: str | None) -> list[Life]:
    """Kill until it was done so often, or the time is over; return all that came of it."""
    file, kills, server_kills = options.state / f"{kind}.jsonl", options.kills, options.server_kills
    lives, end = lives_in(file), time.monotonic() + 60 * options.minutes
    if len(lives) >= kills:
        return lives
    with (
        place_of(kind, url) as place,
        file.open("a", encoding="utf-8") as kept,
        file.with_suffix(".log").open("ab") as log,
    ):
        crasher = Crasher(kind, place, log, options.longest / 1000)
        every = 0 if place.restart is None or not server_kills else max(1, kills // server_kills)
        while len(lives) < kills and time.monotonic() < end:
            number = len(lives)
            life = crasher.live(number, kill_server=bool(every) and number % every == every - 1)
            lives.append(life)
            kept.write(json.dumps(asdict(life)) + "\n")
            kept.flush()
            for fault in life.faults:
                print(f"{kind}, kill {number}: {fault}", file=sys.stderr, flush=True)
    return lives


def totals(lives: list[Life]) -> dict[str, Any]:
    """Return what came of all kills together."""
    numbers = [one.name for one in fields(Life) if one.name != "faults"]
    summed = {name: sum(getattr(life, name) for life in lives) for name in numbers}
    return {"kills": len(lives), **summed, "faults": [fault for life in lives for fault in life.faults]}


def row_of(kind: str, lives: list[Life]) -> list[str]:
    def total(name: str) -> int:
        return sum(getattr(life, name) for life in lives)

    return [
        kind,
        f"{sum(not life.server for life in lives):,}",
        f"{total('server'):,}",
        f"{total('steps'):,}",
        f"{total('events'):,}",
        f"{total('cut'):,} ({total('landed'):,})",
        f"{total('compared'):,}",
        f"{total('refs'):,} ({total('remade'):,})",
        f"{total('lost'):,}",
        f"{sum(len(life.faults) for life in lives):,}",
        f"{sum(life.seconds for life in lives) / 60:.1f}",
    ]


def main() -> int:
    parser = make_parser(__doc__)
    parser.add_argument("--backend", nargs="+", choices=BACKENDS, default=list(BACKENDS), metavar="NAME")
    parser.add_argument("--kills", type=int, default=500, help="of each backend (default 500)")
    parser.add_argument("--server-kills", type=int, default=50, help="of them, of the server (default 50)")
    parser.add_argument("--longest", type=int, default=300, help="ms of work before a kill (default 300)")
    parser.add_argument("--minutes", type=float, default=30, help="for each backend (default 30)")
    parser.add_argument("--state", type=Path, default=Path("build/crash"), help="(default build/crash)")
    parser.add_argument("--anew", action="store_true", help="forget what was done before")
    parser.add_argument("--url", nargs="+", default=[], metavar="NAME=URL", help="of a server that runs")
    parser.add_argument("--results", type=Path, help="folder to write crash.json and crash.md to")
    options = parser.parse_args()
    urls = dict(one.split("=", 1) for one in options.url)
    if options.anew:
        shutil.rmtree(options.state, ignore_errors=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # servers are to end, too
    options.state.mkdir(parents=True, exist_ok=True)
    warm_up()
    told: dict[str, list[Life]] = {}
    for kind in options.backend:
        try:
            told[kind] = crash(kind, options, urls.get(kind))
        except (pytest.skip.Exception, pytest.fail.Exception) as error:
            print(f"{kind}: {error}", file=sys.stderr)
            return 2
    rows = [row_of(kind, lives) for kind, lives in told.items()]
    print_table(COLUMNS, rows)
    if options.results:
        text = f"{markdown_table(COLUMNS, rows)}\n\n{notes_of(__doc__, 'worker kills')}"
        data = {kind: totals(lives) for kind, lives in told.items()}
        write_results(options.results, "crash", data, "Crashes", text)
    is_whole = all(len(lives) >= options.kills for lives in told.values())
    if not is_whole:
        print("not all was done in that time: start the program again", file=sys.stderr)
    return 0 if is_whole and not any(life.faults for lives in told.values() for life in lives) else 1


if __name__ == "__main__":
    sys.exit(main())
