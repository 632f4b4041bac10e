"""A gateway under load: latency of requests with views beside requests that pass, errors, and memory.

    python benchmarks/gateway.py [--seconds N] [--connections N] [--workers N] [--pause SECONDS]
                                 [--answer SECONDS] [--results DIR]
    python benchmarks/gateway.py --faults [--kills N]

A gateway of several workers on a Redis of its own stands before a model server on loopback, which answers
after `--answer` seconds: 0.05, sooner than a model does; with 0 nothing is measured but the gateway. Each
connection has two conversations that grow from 20 to 100 messages of some 200 tokens, calls among them, and
then begin anew: one gets views, the other passes through the same workers untouched. In slices of 15
seconds all connections go on with the one or with the other, and wait `--pause` seconds on average between
an answer and the next request. It ends with 1 where a request fails, where latency with views is more than
twice (p50) or three times (p99) what it is without, or where a worker's memory grows by more than a tenth
in the second half.

With `--faults` a worker is killed while it waits for notes, so many times, and the client asks again until it
is answered. It ends with 1 where more than one part is paid for twice for a killed worker, or the metric does
not tell of it; where requests are counted as open at the end; or where the caller's key, another one in each
run, is found in Redis, the page, the metrics, or what the gateway printed.

- kind: of requests. `event` are those in which something left the view; the limits are for the others
- requests; per second; failed: that were not answered with 200, and in full
- p50 ms, p99 ms, longest ms: from the first byte sent to the last byte received
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import random
import re
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.reporting import make_parser, markdown_table, notes_of, print_table, write_results
from tests.support.servers import start_redis, stop

SLICE_SECONDS = 15.0
RAMP_SECONDS = 15.0
LIMITS = {0.5: 2.0, 0.99: 3.0}
"""How many times as long as a request that passes one with a view may take."""
MOST_GROWTH = 1.1
READY_MB = 100
"""A worker that holds so much has read its vocabulary."""
BUDGET = 16_000
COLUMNS = ("kind", "requests", "per second", "failed", "p50 ms", "p99 ms", "longest ms")
PATHS = {"view": "/v1/chat/completions", "passed": "/v1/untouched/chat/completions"}
SAID = "## Facts and values\n- host 17 was restarted, disk is at 61 %"
"""What the model says, whatever it is asked; notes as well."""
IN_PLACE = b"This message is from your memory"
TOOLS = [
    {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
]
WORDS = ("disk", "host", "deploy", "error", "route", "cache", "queue", "shard", "probe", "retry", "limit")


# The model server: a process of its own


def run_upstream(listening: socket.socket, seconds: float) -> None:
    """Answer requests until the process ends."""
    left: dict[str, int] = {}
    notes: list[int] = []
    """The port of who asked, for each request for notes."""
    reply = {
        "id": "c", "object": "chat.completion", "created": 1, "model": "m",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": SAID}}],
    }  # fmt: skip

    async def answer(request: web.Request) -> web.Response:
        if request.method == "GET":
            return web.json_response(notes)
        body = await request.read()
        if b'"tools"' not in body or IN_PLACE in body:
            notes.append((request.get_extra_info("peername") or ("", 0))[1])
            await asyncio.sleep(float(request.headers.get("x-notes-take", 0)))
        elif seconds:
            await asyncio.sleep(seconds)
        name, said = request.headers.get("x-conversation", ""), int(request.headers.get("x-said", 0))
        gone = said - body.count(b'"role":')
        is_event = left.get(name, 0) != gone
        left[name] = gone
        return web.json_response(reply, headers={"x-event": str(int(is_event))})

    app = web.Application(client_max_size=2**26)
    app.router.add_route("*", "/{path:.*}", answer)
    web.run_app(app, sock=listening, print=None, access_log=None)


# What is measured


@dataclass
class Measured:
    """Requests of one kind."""

    seconds: list[float] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    def at(self, share: float) -> float:
        """Return how many milliseconds this share of them took at most."""
        ordered = sorted(self.seconds)
        return 1_000 * ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")


def conversation(rng: random.Random) -> list[dict[str, Any]]:
    """Return a hundred messages of some 200 tokens: requests, calls, and what tools said."""
    said: list[dict[str, Any]] = [{"role": "system", "content": "You watch over a hundred hosts."}]
    for number in range(33):
        text = " ".join(f"{rng.choice(WORDS)}-{rng.randrange(1_000)}" for _ in range(60))
        call = {"id": f"call_{number}", "type": "function", "function": {"name": "look", "arguments": "{}"}}
        said += [
            {"role": "user", "content": f"Look at host {number}. {text}"},
            {"role": "assistant", "content": text[::-1], "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"call_{number}", "content": f"{number}: {text.upper()}"},
        ]
    return said


def growing(rng: random.Random, name: str) -> Iterator[tuple[list[dict[str, Any]], str]]:
    """Yield one conversation after the other, request by request, and what each is called."""
    for number in count():
        said = conversation(rng)
        for end in range(19 if number else rng.randrange(19, 60, 3), len(said) + 1, 3):
            yield said[:end], f"{name}-{number}"


@dataclass
class Load:
    """Connections that ask until a time is over."""

    url: str
    seconds: float
    connections: int
    pause: float
    measured: dict[str, Measured] = field(
        default_factory=lambda: {kind: Measured() for kind in ("passed", "view", "event")}
    )

    async def run(self) -> None:
        """Ask; what is asked in the first seconds, while connections begin one by one, is not counted."""
        connector = aiohttp.TCPConnector(limit=0)
        timeout = aiohttp.ClientTimeout(total=120)
        self._began = time.monotonic() + RAMP_SECONDS
        self._end = self._began + self.seconds
        async with aiohttp.ClientSession(self.url, connector=connector, timeout=timeout) as session:
            await asyncio.gather(*(self._ask(session, number) for number in range(self.connections)))

    def _kind(self) -> str:
        return ("view", "passed")[int((time.monotonic() - self._began) / SLICE_SECONDS) % 2]

    async def _ask(self, session: aiohttp.ClientSession, number: int) -> None:
        """Go on with a conversation that gets views, and with another one that passes, each in its slices."""
        rng = random.Random(number)
        lists = {kind: growing(rng, f"{kind}-{number}") for kind in PATHS}
        await asyncio.sleep(rng.uniform(0, RAMP_SECONDS))
        while time.monotonic() < self._end:
            kind = self._kind()
            await self._send(session, kind, *next(lists[kind]))
            if self.pause:
                await asyncio.sleep(rng.expovariate(1 / self.pause))

    async def _send(
        self, session: aiohttp.ClientSession, kind: str, said: list[dict[str, Any]], name: str
    ) -> None:
        headers = {
            "authorization": "Bearer sk-load", "content-type": "application/json",
            "x-conversation": name, "x-said": str(len(said)),
        }  # fmt: skip
        content = json.dumps({"model": "m", "messages": said, "tools": TOOLS}).encode()
        began = time.monotonic()
        try:
            async with session.post(PATHS[kind], data=content, headers=headers) as answer:
                told = await answer.read()
                took = time.monotonic() - began
                done = answer.headers.get("x-context-compressor")
                is_well = answer.status == 200 and SAID[:9].encode() in told
                if not is_well or done != ("view" if kind == "view" else None):
                    self.measured[kind].failed.append(f"{answer.status} {done}: {told[:300]!r}")
                    return
                if kind == "view" and answer.headers.get("x-event") == "1":
                    kind = "event"
        except (aiohttp.ClientError, TimeoutError) as error:
            self.measured[kind].failed.append(repr(error))
            return
        if began > self._began:
            self.measured[kind].seconds.append(took)


# Processes


@contextmanager
def upstream_at(seconds: float) -> Iterator[int]:
    """Give the port of a model server that runs until the end."""
    with socket.create_server(("127.0.0.1", 0), backlog=512) as listening:
        port: int = listening.getsockname()[1]
        fork = multiprocessing.get_context("fork")
        process = fork.Process(target=run_upstream, args=(listening, seconds), daemon=True)
        process.start()
    try:
        yield port
    finally:
        process.kill()
        process.join()


@contextmanager
def gateway_at(upstream: str, *options: str) -> Iterator[tuple[str, subprocess.Popen[str], list[str]]]:
    """Give the address of a gateway, its process, whose children are the workers, and what it will print."""
    printed: list[str] = []
    command = [str(Path(sys.executable).parent / "context-compressor"), "serve", "--port", "0"]
    command += ["--upstream", upstream, *options]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stderr is not None
    try:
        found = None
        while found is None:
            line = process.stderr.readline()
            if not line:
                raise SystemExit("the gateway did not start")
            found = re.search(r"http://[\d.:]+", line.partition(" at ")[2])
        yield found[0], process, printed
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(20)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        printed.append(process.stderr.read())
        sys.stderr.write(printed[-1])


def workers_of(process: int, wanted: int) -> list[int]:
    """Return the processes that serve, children or the only one, when all of them do."""
    found = [process]
    while len(found) < wanted or any(memory_of(one) < READY_MB for one in found):
        time.sleep(0.2)
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
        named = [int(one) for one in children if b"spawn_main" in Path(f"/proc/{one}/cmdline").read_bytes()]
        found = named if wanted > 1 else [process]
    time.sleep(1)
    return found


def memory_of(process: int) -> float:
    """Return the megabytes that a process holds."""
    status = Path(f"/proc/{process}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024  # type: ignore[index]


def cpu_of(process: int) -> float:
    """Return the seconds that a process has worked."""
    told = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(told[11]) + int(told[12])) / os.sysconf("SC_CLK_TCK")


async def measure(load: Load, workers: list[int]) -> list[list[float]]:
    """Run a load; return what each worker held, over time."""
    held: list[list[float]] = []

    async def watch() -> None:
        while True:
            held.append([memory_of(one) for one in workers])
            await asyncio.sleep(5)

    watching = asyncio.create_task(watch())
    await load.run()
    watching.cancel()
    return held


@contextmanager
def stage(options: Namespace) -> Iterator[tuple[str, str, int, int, list[str]]]:
    """Give the URLs of a gateway and its upstream, Redis's port, the process, and what that will print."""
    with tempfile.TemporaryDirectory() as name, upstream_at(options.answer) as port:
        redis = start_redis(Path(name))
        backend = f"redis://127.0.0.1:{redis.port}"
        more = ["--max-total-tokens", str(BUDGET), "--workers", str(options.workers), "--backend", backend]
        try:
            with gateway_at(f"http://127.0.0.1:{port}/v1", *more) as (url, process, printed):
                workers_of(process.pid, options.workers)
                yield url, f"http://127.0.0.1:{port}", redis.port, process.pid, printed
        finally:
            stop(redis.process)


def put_under_load(given: Namespace) -> int:
    """Measure latency and memory; tell whether all is within limits."""
    with stage(given) as (url, _, _, process, _):
        workers = workers_of(process, given.workers)
        load = Load(url, given.seconds, given.connections, given.pause)
        held = asyncio.run(measure(load, workers))
    rows = []
    for kind, one in load.measured.items():
        figures = [f"{one.at(0.5):.1f}", f"{one.at(0.99):.1f}", f"{one.at(1):.1f}"]
        rate = f"{len(one.seconds) / given.seconds:.1f}"
        rows.append([kind, f"{len(one.seconds):,}", rate, str(len(one.failed)), *figures])
        for told in one.failed[:3]:
            print(kind, told, file=sys.stderr)
    print_table(COLUMNS, rows)
    half, end = held[len(held) // 2], held[-1]
    shown = ", ".join(f"{one:.0f} to {other:.0f} MB" for one, other in zip(half, end, strict=True))
    print(f"memory of the workers in the second half: {shown}")
    view, passed = load.measured["view"], load.measured["passed"]
    faults = [f"{len(one.failed)} {kind} failed" for kind, one in load.measured.items() if one.failed]
    faults += [
        f"p{100 * share:g} is {view.at(share) / passed.at(share):.1f} times that of requests that pass"
        for share, most in LIMITS.items()
        if not view.at(share) <= most * passed.at(share)
    ]
    if any(other > MOST_GROWTH * one for one, other in zip(half, end, strict=True)):
        faults.append("memory grows")
    print("\n".join(faults) or "within limits")
    if given.results is not None:
        text = f"{markdown_table(COLUMNS, rows)}\n\nMemory of the workers in the second half: {shown}.\n\n"
        data = {"rows": rows, "memory": held, "faults": faults}
        text += notes_of(__doc__, "kind")
        write_results(given.results, "gateway", data, "A gateway under load", text)
    return int(bool(faults))


def who_has(port: int, processes: list[int]) -> int | None:
    """Return the process that has a connection from this port of loopback."""
    for process in processes:
        with suppress(OSError):
            lines = [line.split() for line in Path(f"/proc/{process}/net/tcp").read_text().splitlines()[1:]]
            inodes = {f"socket:[{one[9]}]" for one in lines if int(one[1].partition(":")[2], 16) == port}
            for file in Path(f"/proc/{process}/fd").iterdir():
                with suppress(OSError):
                    if str(file.readlink()) in inodes:
                        return process
    return None


async def kill_in_events(given: Namespace, url: str, upstream: str, process: int, key: str) -> list[str]:
    """Kill workers that wait for notes; return what is not as it must be."""
    faults: list[str] = []
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json", "x-notes-take": "0.5"}

    async with aiohttp.ClientSession(headers=headers) as session:

        async def asked_for() -> list[int]:
            async with session.get(f"{upstream}/notes") as answer:
                return list(await answer.json())

        async def until_answered(number: int) -> None:
            said = conversation(random.Random(f"{key}{number}"))
            body = json.dumps({"model": "m", "messages": said, "tools": TOOLS})
            while True:
                with suppress(aiohttp.ClientError):
                    async with session.post(f"{url}{PATHS['view']}", data=body) as answer:
                        if answer.status == 200 and SAID[:9].encode() in await answer.read():
                            return
                await asyncio.sleep(0.2)

        await until_answered(0)
        usual = len(await asked_for())
        killed = 0
        for number in range(1, given.kills + 1):
            before, workers = len(await asked_for()), workers_of(process, given.workers)
            asking = asyncio.create_task(until_answered(number))
            while len(await asked_for()) == before:  # noqa: ASYNC110  it tells nobody
                await asyncio.sleep(0.02)
            worker = who_has((await asked_for())[-1], workers)
            if worker is not None:
                os.kill(worker, signal.SIGKILL)
                killed += 1
            await asking
            paid = len(await asked_for()) - before
            print(f"kill {number}: {paid} parts paid for, {usual} are usual", flush=True)
            if paid > usual + 1:
                faults.append(f"kill {number}: {paid} parts paid for, {usual} are usual")
        async with session.get(f"{url}/metrics") as answer:
            told = await answer.text()
        async with session.get(f"{url}/gateway/sessions") as answer:
            page = await answer.text()
    taken = sum(float(one) for one in re.findall(r"^context_compressor_taken_over_total (\S+)", told, re.M))
    print(f"{killed} workers killed, {taken:g} events taken over")
    if taken != killed:
        faults.append(f"the metric tells of {taken:g} events, {killed} were cut off")
    if "context_compressor_open_requests 0.0" not in told:
        faults.append("requests are counted as open")
    faults += [f"the key is in {what}" for what, text in (("metrics", told), ("page", page)) if key in text]
    return faults


def kill(given: Namespace) -> int:
    """Kill workers in events; tell whether all is as it must be."""
    from redis import Redis

    key = f"sk-{secrets.token_hex(16)}"
    with stage(given) as (url, upstream, port, process, printed):
        faults = asyncio.run(kill_in_events(given, url, upstream, process, key))
        redis = Redis(port=port)
        kept = b"".join(redis.dump(name) + name for name in redis.keys("*"))
    if key.encode() in kept or key in "".join(printed):
        faults.append("the key is in Redis or in what was printed")
    print("\n".join(faults) or "all is as it must be")
    return int(bool(faults))


def main() -> int:
    """Measure."""
    parser = make_parser(__doc__)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--connections", type=int, default=100)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--pause", type=float, default=2.0)
    parser.add_argument("--answer", type=float, default=0.05)
    parser.add_argument("--results", type=Path)
    parser.add_argument("--faults", action="store_true")
    parser.add_argument("--kills", type=int, default=3)
    given = parser.parse_args()
    return kill(given) if given.faults else put_under_load(given)


if __name__ == "__main__":
    sys.exit(main())
