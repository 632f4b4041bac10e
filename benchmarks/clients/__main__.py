"""Run real clients through the gateway: `python -m benchmarks.clients [client ...]`, or `make clients`.

Each works for 60 turns with its own tools in a folder of logs. Its model is scripted, is as strict as a
provider, and has a window of 32,000 tokens, or of 64,000 for Claude Code. It runs by way of a gateway, then
straight. What is needed is installed into build/clients; each client runs with a home and an environment of
its own, and nothing of ours in it.

- turns: of the model with calls of the client's tools
- history: tokens of all that was said, in thousands
- largest: the largest request that the provider took, in tokens
- requests: that the provider got, those for notes among them
- notes: requests for notes
- read back: how a text that left was read back, alone and beside a call of the client's
- refused: requests that the provider refused
- straight: after how many turns the provider refused the same run without the gateway
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

import httpx

from benchmarks.clients.catalogue import CLIENTS, INSTALLED, KEY, Client
from benchmarks.clients.installing import install
from benchmarks.clients.task import DONE, READ_TOOL, TURNS, Model, make_folder
from benchmarks.reporting import make_parser, markdown_table, notes_of, print_table, write_results
from tests.support.model_server import ModelServer
from tests.support.wires import wire_of

SHARE = 7 / 8
"""Of the window that is the budget of a view."""
LEAST_RAW_TOKENS = 150_000
MOST_SECONDS = 300.0
SECONDS_AFTER_REFUSAL = 10.0
"""For how long a client that was refused may go on: some try again, or summarise by themselves."""
_MOST_TOLD = 2**24
"""Characters that a gateway may tell before anybody reads them; it should tell none."""
COLUMNS = (
    "client",
    "turns",
    "history",
    "largest",
    "requests",
    "notes",
    "read back",
    "refused",
    "straight",
)


@dataclass(frozen=True)
class Ran:
    """What became of one run."""

    finished: bool
    turns: int
    """Until the first refusal."""
    raw_tokens: int
    largest: int
    requests: int
    notes: int
    read_back: list[str]
    refusals: list[str]
    seconds: float
    conversations: int
    """That the gateway knows."""
    events: int
    faults: list[str]

    def problems(self) -> list[str]:
        """Return what should have been otherwise, by way of the gateway."""
        found = list(self.faults)
        if not self.finished:
            found.append("it did not finish")
        if self.turns < TURNS:
            found.append(f"{self.turns} of {TURNS} turns")
        if self.raw_tokens < LEAST_RAW_TOKENS:
            found.append(f"a history of {self.raw_tokens} tokens only")
        if self.refusals:
            found.append(f"{len(self.refusals)} refused: {self.refusals[0]}")
        if len(self.read_back) < 2:
            found.append(
                "no text was read back" if not self.read_back else f"read back only {self.read_back[0]}"
            )
        return found


async def run(client: Client, *, with_gateway: bool) -> Ran:
    """Let a client work on the task."""
    place = INSTALLED / "runs" / client.name / ("gateway" if with_gateway else "straight")
    shutil.rmtree(place, ignore_errors=True)
    folder, home = place / "folder", place / "home"
    home.mkdir(parents=True)
    make_folder(folder)
    model = Model(folder, pauses=bool(client.going_on))
    budget = int(SHARE * client.window)
    told: list[str] = []
    rows: list[dict[str, Any]] = []
    began = time.monotonic()
    async with ModelServer(model, client.window) as server:
        root = server.anthropic_url
        if with_gateway:
            async with _gateway(root + client.upstream, budget, told) as gateway:
                said = await _started(client, gateway + client.path, place, server)
                rows = await _conversations(gateway)
        else:
            said = await _started(client, root + client.upstream, place, server)
        taken = [one for one in server.requests if not one.refused]
        # What a client does of itself after a refusal, such as compacting, does not count.
        before = takewhile(lambda one: not one.refused, server.requests)
        asked = sum(bool(one.tools) for one in before)
        return Ran(
            finished=DONE in said,
            turns=min(model.turns, asked),
            raw_tokens=model.raw_tokens,
            largest=max((wire_of(one.path).count(one) for one in taken), default=0),
            requests=len(server.requests),
            notes=model.notes,
            read_back=model.read_back,
            refusals=server.refusals,
            seconds=round(time.monotonic() - began, 1),
            conversations=len(rows),
            events=sum(len(row["events"]) for row in rows),
            faults=[*model.faults, *told, *_leaks(home, said)],
        )


@asynccontextmanager
async def _gateway(upstream: str, budget: int, told: list[str]) -> AsyncIterator[str]:
    """Run a gateway; gives its address, and at the end what it told."""
    command = [sys.executable, "-m", "context_compressor", "serve", "--upstream", upstream]
    options = ["--max-total-tokens", str(budget), "--port", "0"]
    process = await asyncio.create_subprocess_exec(
        *command, *options, stderr=subprocess.PIPE, limit=_MOST_TOLD
    )
    assert process.stderr is not None
    try:
        first = (await process.stderr.readline()).decode()
        assert first.startswith("serving"), first
        yield first.partition(" at ")[2].partition("/v1;")[0]
    finally:
        process.send_signal(signal.SIGTERM)
        told += (await process.stderr.read()).decode().splitlines()
        await process.wait()


async def _conversations(gateway: str) -> list[dict[str, Any]]:
    """Return what a gateway's page shows of conversations."""
    async with httpx.AsyncClient() as http:
        rows: list[dict[str, Any]] = (await http.get(f"{gateway}/gateway/sessions")).json()["sessions"]
        return rows


def _leaks(home: Path, said: str) -> list[str]:
    """Return where a client has the name of a tool of ours: in what it said, or wrote into its home."""
    files = [path for path in home.rglob("*") if path.is_file()]
    name = READ_TOOL.encode()
    found = [str(path.relative_to(home)) for path in files if name in path.read_bytes()]
    return [f"{READ_TOOL} reached {one}" for one in [*found, *["its output"] * (READ_TOOL in said)]]


async def _started(client: Client, url: str, place: Path, server: ModelServer) -> str:
    """Run a client until it ends, or was refused and does not end; return what it said."""
    home = place / "home"
    for name, text in client.settings(url).items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text, encoding="utf-8")
    node = str(Path(shutil.which("node") or "node").parent)
    environment = {"PATH": f"{node}:/usr/bin:/bin", "HOME": str(home)}
    environment |= dict.fromkeys(("OPENAI_API_KEY", "ANTHROPIC_API_KEY"), KEY)
    until = time.monotonic() + MOST_SECONDS
    with (place / "client.log").open("wb") as written:
        for command in filter(None, (client.command(url), client.going_on)):
            process = await asyncio.create_subprocess_exec(
                *command,
                cwd=place / "folder",
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=written,
                stderr=written,
                start_new_session=True,
            )
            while process.returncode is None and time.monotonic() < until:
                if server.refusals:
                    until = min(until, time.monotonic() + SECONDS_AFTER_REFUSAL)
                with suppress(TimeoutError):
                    await asyncio.wait_for(process.wait(), 0.5)
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
            if process.returncode or server.refusals:
                break
    return (place / "client.log").read_text(errors="replace")


def _row(name: str, through: Ran, straight: Ran) -> list[str]:
    return [
        name,
        str(through.turns),
        f"{through.raw_tokens / 1000:.0f}",
        str(through.largest),
        str(through.requests),
        str(through.notes),
        ", ".join(through.read_back) or "-",
        str(len(through.refusals)),
        f"refused after {straight.turns}" if straight.refusals else "NOT REFUSED",
    ]


def main() -> int:
    parser = make_parser(__doc__)
    parser.add_argument("client", nargs="*", help=f"one of {', '.join(CLIENTS)}; default: all")
    parser.add_argument("--results", type=Path, help="where to write clients.json and clients.md")
    given = parser.parse_args()
    unknown = set(given.client) - set(CLIENTS)
    if unknown:
        parser.error(f"no such client: {', '.join(sorted(unknown))}")
    rows: list[list[str]] = []
    told: dict[str, Any] = {}
    for name in given.client or CLIENTS:
        client = CLIENTS[name]
        install(client.environment)
        through = asyncio.run(run(client, with_gateway=True))
        straight = asyncio.run(run(client, with_gateway=False))
        problems = through.problems() + ([] if straight.refusals else ["straight it is not refused"])
        print(f"{name}: {'; '.join(problems) or 'fine'}", flush=True)
        rows.append(_row(name, through, straight))
        told[name] = {"problems": problems, "gateway": asdict(through), "straight": asdict(straight)}
        if given.results is not None:
            text = f"{markdown_table(COLUMNS, rows)}\n\n{notes_of(__doc__, 'turns')}"
            title = "Real clients through the gateway"
            write_results(given.results, "clients", {"clients": told}, title, text)
    print()
    print_table(COLUMNS, rows)
    return int(any(one["problems"] for one in told.values()))


if __name__ == "__main__":
    sys.exit(main())
