"""Many processes write into one session at the same time, and many sessions live over one pool.

    python benchmarks/writers.py --backend sqlite redis --runs 20
    python benchmarks/writers.py --backend postgres --faults 8 --runs 20
    python benchmarks/writers.py --backend redis --sessions 1000

Servers are started on loopback from what is installed. Each of 16 processes adds 200 messages and looks at
the view after every fourth; a model that takes 50 to 200 ms notes each time that it is paid. With `--faults`
processes are killed and begin again, or stand still for up to three times as long as a lease holds: so many
times in each run but the first.

It ends with 1 when anything of this is not so: every acknowledged message is there, once, in the order of its
writer, and behind all that was acknowledged before it was begun; those who look at one head see the same
bytes; a view lacks nothing that was acknowledged before, and is within budget; each part of the notes is
committed, and paid for, once, unless somebody was killed or stood still, and then the statistics tell.

- looks: views that were noted
- heads: of those, heads at which several processes looked
- events: parts of the notes that were committed
- paid: parts that were paid for
- taken: events that were begun by somebody who was killed or stood still, as the statistics tell
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing.process import BaseProcess
from pathlib import Path
from uuid import uuid4

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.reporting import make_parser
from benchmarks.writers_check import Outcome, check
from benchmarks.writers_work import CONNECTIONS, Job, opened, read_notes, serve, write

URLS = {
    "sqlite": "sqlite+aiosqlite:///{folder}/memory.db",
    "redis": "redis://127.0.0.1:{port}/0",
    "postgres": "postgresql+asyncpg://postgres@127.0.0.1:{port}/postgres",
    "mariadb": "mysql+asyncmy://test@127.0.0.1:{port}/test",
}
_FAULTY_LEASE_SECONDS = 1.0
FORK = multiprocessing.get_context("fork")


@contextmanager
def url_of(backend: str, folder: Path) -> Iterator[str]:
    """Give the URL of a backend, whose server runs until the end."""
    if backend == "sqlite":
        yield URLS[backend].format(folder=folder)
        return
    from tests.support.servers import running

    with running(backend, folder) as port:
        yield URLS[backend].format(port=port)


def run(job: Job, *, faults: int = 0) -> Outcome:
    """Let processes write into one session, and check what they leave."""
    outcome, began = Outcome(), time.monotonic()
    jobs = [
        Job(job.url, job.session, job.folder, number, job.writers, job.messages, job.lease_seconds)
        for number in range(job.writers)
    ]
    running = {one.number: _start(one) for one in jobs}
    left = faults
    try:
        while alive := [number for number, process in running.items() if process.is_alive()]:
            time.sleep(0.05 if not left else random.uniform(0.05, 0.4))
            for process in running.values():
                if process.exitcode not in (None, 0):
                    outcome.anomalies.append(f"a writer ended with {process.exitcode}")
                    return outcome
            if left:
                left -= 1
                _disturb(running, random.choice(alive), jobs, outcome)
    finally:
        for process in running.values():
            process.kill()
            process.join()

    async def look() -> None:
        async with opened(job.url) as pool:
            await check(pool, job, outcome)

    asyncio.run(look())
    outcome.seconds = time.monotonic() - began
    return outcome


def _start(job: Job) -> BaseProcess:
    process = FORK.Process(target=write, args=(job,))
    process.start()
    return process


def _disturb(running: dict[int, BaseProcess], number: int, jobs: list[Job], outcome: Outcome) -> None:
    process = running[number]
    assert process.pid is not None
    if random.random() < 0.5:
        process.kill()
        process.join()
        outcome.kills += 1
        running[number] = _start(jobs[number])
    else:
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGSTOP)
            outcome.pauses += 1
            time.sleep(random.uniform(0.1, 3) * _FAULTY_LEASE_SECONDS)
            os.kill(process.pid, signal.SIGCONT)


def serve_sessions(job: Job, sessions: int) -> list[str]:
    """Let eight processes go through many sessions; return what is wrong."""
    processes = [
        FORK.Process(
            target=serve, args=(Job(job.url, job.session, job.folder, number, 8, job.messages), sessions // 8)
        )
        for number in range(8)
    ]
    for process in processes:
        process.start()
    most = 0
    while any(process.is_alive() for process in processes):
        most = max(most, asyncio.run(_connections(job.url)))
        time.sleep(0.5)
    wrong = [f"a process ended with {process.exitcode}" for process in processes if process.exitcode]
    print(f"  {sessions} sessions, at most {most} connections of 8 processes")
    if most > 8 * CONNECTIONS:
        wrong.append(f"{most} connections of 8 pools of {CONNECTIONS}")
    for number in range(8):
        served = [note for note in read_notes(job.folder / f"operations-{number}.jsonl") if "files" in note]
        if len(served) == 2:
            first, last = served
            print(f"  process {number}: {first['size']} MB after a fifth, {last['size']} MB at the end")
            if last["memories"] or last["tasks"] > 1 or last["files"] > first["files"] + CONNECTIONS:
                wrong.append(f"process {number} kept {last}")
    return wrong


async def _connections(url: str) -> int:
    """Return how many connections a server has but this one; 0 where there is none."""
    if url.startswith("sqlite"):
        return 0
    asked = {
        "postgresql": "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'",
        "mysql": "SELECT count(*) FROM information_schema.processlist WHERE user = 'test'",
    }
    async with opened(url) as pool:
        if pool.redis is not None:
            return len(await pool.redis.client_list()) - 1
        async with pool.engine.connect() as connection:
            found = await connection.exec_driver_sql(asked[url.partition("+")[0]])
            return int(found.scalar_one()) - 1


def main() -> int:
    parser = make_parser(__doc__)
    parser.add_argument("--backend", nargs="+", choices=URLS, default=list(URLS))
    parser.add_argument("--url", help="of a server that runs, for one backend")
    parser.add_argument("--writers", type=int, default=16)
    parser.add_argument("--messages", type=int, default=200)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--faults", type=int, default=0, help="kills and pauses in each run but the first")
    parser.add_argument("--sessions", type=int, default=0, help="go through so many sessions instead")
    options = parser.parse_args()
    wrong = 0
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        for backend in options.backend:
            shared = Path(name)
            url = options.url or stack.enter_context(url_of(backend, shared))
            for number in range(options.runs):
                folder = shared / f"{backend}-{number}"
                folder.mkdir()
                faults = options.faults if number else 0
                lease = _FAULTY_LEASE_SECONDS if faults else 30.0
                job = Job(url, uuid4().hex, folder, 0, options.writers, options.messages, lease)
                if options.sessions:
                    print(backend, flush=True)
                    anomalies = serve_sessions(job, options.sessions)
                else:
                    outcome = run(job, faults=faults)
                    anomalies = outcome.anomalies
                    print(
                        f"{backend} {number}: {outcome.seconds:.0f} s, {outcome.looks} looks, "
                        f"{outcome.shared_heads} heads, {outcome.committed} events, {outcome.paid} paid, "
                        f"{outcome.taken_over} taken, {outcome.kills} kills, {outcome.pauses} pauses, "
                        f"{len(anomalies)} anomalies",
                        flush=True,
                    )
                for text in dict.fromkeys(anomalies):
                    print(f"  {text}")
                wrong += len(anomalies)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
