"""Sessions that are forked from one process, and what is the same in all of them."""

import json
import os
import select
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from benchmarks.peers import piped as piped_module
from benchmarks.peers.piped import PipedError
from benchmarks.peers.processes import ForkServer
from context_compressor.lab.measure import Chat
from tests.benchmarks.peers import make_system, write_peer
from tests.lab.measure.support import says

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

TELL = """
def answer(self, new):
    return [{"role": "user", "content": json.dumps(eval(new[-1]["content"]))}]
"""
"""Says what an expression is in its process."""


async def ask(system, expression: str):
    """Return what an expression is in the process of a system that tells."""
    new: list[Chat] = [says("user", expression)]
    return json.loads((await system.send(new, new))[0]["content"])


async def ask_once(server: ForkServer, expression: str):
    """Return what it is in a session of its own."""
    system = make_system(server)
    try:
        return await ask(system, expression)
    finally:
        await system.aclose()


async def wait_for_end(server: ForkServer, pid: int) -> None:
    """Go on until a fork is gone: the server waits for what has ended when it forks again."""
    for _ in range(1_000):
        assert await ask_once(server, "1 + 1") == 2
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
    pytest.fail(f"process {pid} still runs")


@pytest.fixture
def telling(tmp_path: Path) -> Iterator[ForkServer]:
    """A server whose sessions say what an expression is; its start leaves a line in `started`."""
    imports = "import secrets, uuid\nfrom pathlib import Path\n"
    head = f"{imports}open({str(tmp_path / 'started')!r}, 'a').write('started\\n')\nseen = []\n"
    with closing(ForkServer(write_peer(tmp_path, TELL, head))) as server:
        yield server


async def test_no_session_sees_what_another_left(telling: ForkServer) -> None:
    """Neither in its modules nor where it works and is at home; not even if they overlap."""
    first, second = make_system(telling), make_system(telling)
    try:
        assert await ask(first, "[seen.append(1), open('left', 'w').close(), seen]") == [None, None, [1]]
        assert await ask(second, "[seen, os.listdir(), os.listdir(Path.home())]") == [[], [], []]
        assert await ask(first, "[seen, os.listdir(), os.listdir(Path.home())]") == [[1], ["left"], ["left"]]
    finally:
        await first.aclose()
        await second.aclose()


async def test_random_ids_are_the_same_in_every_session(telling: ForkServer) -> None:
    """Within a session they differ; views and files are named by them."""
    ids = "[[str(uuid.uuid4()), secrets.token_hex(), random.random()] for _ in range(2)]"
    first, second = await ask_once(telling, ids), await ask_once(telling, ids)
    assert first == second
    assert all(one != other for one, other in zip(*first, strict=True))


async def test_a_session_that_crashes_leaves_the_next_ones(telling: ForkServer, tmp_path: Path) -> None:
    """It says why; nothing is imported again."""
    with pytest.raises(PipedError, match=r"(?s)ended without an answer: .*SystemExit: out of order"):
        await ask_once(telling, "sys.exit('out of order')")
    with pytest.raises(PipedError, match=r"ended without an answer: $"):
        await ask_once(telling, "os.kill(os.getpid(), 9)")
    assert await ask_once(telling, "1 + 1") == 2
    assert (tmp_path / "started").read_text() == "started\n"


async def test_a_session_that_hangs_is_killed_and_leaves_the_others(
    telling: ForkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One at work at the same time, and the next."""
    hanging, other = make_system(telling), make_system(telling)
    pid = await ask(hanging, "os.getpid()")
    assert await ask(other, "seen") == []
    monkeypatch.setattr(piped_module, "ANSWER_SECONDS", 0.05)
    with pytest.raises(PipedError, match="did not answer within"):
        await ask(hanging, "signal.pause()")
    monkeypatch.undo()
    await hanging.aclose()
    await wait_for_end(telling, pid)
    assert await ask(other, "1 + 1") == 2
    await other.aclose()


async def test_a_server_that_cannot_start_says_why_and_is_started_again(tmp_path: Path) -> None:
    """What it lacked may be there by then."""
    command = write_peer(tmp_path, TELL, "import out_of_print\n")
    with closing(ForkServer(command)) as server:
        for _ in range(2):
            with pytest.raises(PipedError, match="No module named 'out_of_print'"):
                await ask_once(server, "1 + 1")
        (tmp_path / "out_of_print.py").touch()
        assert await ask_once(server, "1 + 1") == 2
    with closing(ForkServer([str(tmp_path / "nowhere")])) as server, pytest.raises(FileNotFoundError):
        await ask_once(server, "1 + 1")


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGKILL])
def test_nothing_outlives_the_run(tmp_path: Path, ending: signal.Signals) -> None:
    """Neither the server nor a session that hangs, however the run ends."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    # The server and its forks hold it open.
    command = write_peer(tmp_path, TELL, f"life = open({str(fifo)!r}, 'w')\n")
    run = f"""
    import asyncio
    from benchmarks.peers import processes
    from tests.benchmarks.test_forks import ask_once
    processes.END_SECONDS = 0.05
    expression = "[life.write('hanging'), life.flush(), signal.pause()]"
    asyncio.run(ask_once(processes.ForkServer({command!r}), expression))
    """
    root = Path(__file__).parents[2]
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(run)],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root), "TMPDIR": str(tmp_path)},
        stderr=subprocess.DEVNULL,
        # A shell that runs the tests in the background has them, and their children, ignore Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    with process, fifo.open("rb", buffering=0) as life:
        assert read_within(life.fileno(), 60) == b"hanging"
        process.send_signal(ending)
        assert read_within(life.fileno(), 60) == b""


def read_within(descriptor: int, seconds: float) -> bytes:
    """Return what can be read, b"" at the end; fail if there is nothing for so long."""
    assert select.select([descriptor], [], [], seconds)[0]
    return os.read(descriptor, 100)
