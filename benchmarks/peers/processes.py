"""Processes that answer lines with lines: started for one session, or forked from one that has imported all.

Importing what a system needs may take longer than a session. A fork server imports it once and is copied for
each session, so that no session sees what another left.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from typing import IO, Protocol, Self

END_SECONDS = 5.0
"""After which a process that was asked to end is killed."""
_LINE_BYTES = 2**30
"""What a line may have: a view of any session."""
_ERROR_CHARACTERS = 400
"""Of what a process wrote on standard error, the last so many are told."""


class Process(Protocol):
    """A process for one session, and the pipe to it."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    pid: int | None
    """None until it is known."""

    def kill(self) -> None:
        """End it at once."""
        ...

    async def aclose(self) -> None:
        """Let it end, and after `END_SECONDS` kill it."""
        ...

    async def last_words(self) -> str:
        """Return the end of what it wrote to its standard error."""
        ...


class SpawnedProcess:
    """A process that was started for its session."""

    def __init__(self, process: asyncio.subprocess.Process, errors: IO[bytes]) -> None:
        assert process.stdout is not None
        assert process.stdin is not None
        self.reader = process.stdout
        self.writer = process.stdin
        self.pid: int | None = process.pid
        self._process = process
        self._errors = errors

    @classmethod
    async def start(cls, command: Sequence[str], folder: str) -> Self:
        """Start a process that works, and is at home, in a folder.

        Raises:
            OSError: it cannot be started.
        """
        errors = tempfile.TemporaryFile()  # noqa: SIM115 - aclose closes it
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                limit=_LINE_BYTES,
                cwd=folder,
                env=_environment(folder),
            )
        except BaseException:
            errors.close()
            raise
        return cls(process, errors)

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            self._process.kill()

    async def aclose(self) -> None:
        await self._end()
        self._errors.close()

    async def _end(self) -> None:
        self.writer.close()
        try:
            async with asyncio.timeout(END_SECONDS):
                await self._process.wait()
        except TimeoutError:
            self.kill()
            await self._process.wait()

    async def last_words(self) -> str:
        # It may close its end of the pipe before it says why.
        await self._end()
        self._errors.seek(0)
        return self._errors.read().decode("utf-8", "replace")[-_ERROR_CHARACTERS:]


class ForkServer:
    """A process that is started once and forks for every session. Not on Windows, which cannot fork.

    The command is given two more arguments, `--forks` and a file descriptor: that of a socket which brings
    the socket of a new session with every byte. It forks for each; the fork reads and writes lines there. At
    the end of the first socket it kills what it forked, and ends; so it does not outlive this process. It is
    started when the first session needs it, and anew when it is gone.

    Args:
        command: how to start it.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self._command = list(command)
        self._server: _Server | None = None

    async def start(self) -> ForkedProcess:
        """Return a fork for a new session. What it works in it has to be told.

        Raises:
            OSError: the server cannot be started.
        """
        if self._server is not None and not self._server.is_running:
            self.close()
        if self._server is None:
            self._server = _Server(self._command)
        return await self._server.fork()

    def close(self) -> None:
        """End the server and all that it forked. Another session starts it again."""
        server, self._server = self._server, None
        if server is not None:
            server.close()


class ForkedProcess:
    """A fork of a server's process."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, server: _Server, told_before: int
    ) -> None:
        self.reader = reader
        self.writer = writer
        self.pid: int | None = None
        self._server = server
        self._told_before = told_before

    def kill(self) -> None:
        if self.pid is None:
            # It is the server that hangs, or a fork that has not told its pid.
            self._server.kill()
        else:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    async def aclose(self) -> None:
        # It has ended when its end of the socket is closed, and until then the pid is its own.
        with suppress(ConnectionError):
            self.writer.write_eof()
            try:
                async with asyncio.timeout(END_SECONDS):
                    await self.reader.read()
            except TimeoutError:
                self.kill()
                await self.reader.read()
        self.writer.close()
        with suppress(ConnectionError):
            await self.writer.wait_closed()

    async def last_words(self) -> str:
        return self._server.told_since(self._told_before)


class _Server:
    """A running fork server."""

    def __init__(self, command: Sequence[str]) -> None:
        self._control, theirs = socket.socketpair()
        # Peers look for settings, and leave files, where they are started and at home.
        self._folder = tempfile.TemporaryDirectory(prefix="peers-")
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - _release closes it
        try:
            self._process = subprocess.Popen(
                [*command, "--forks", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=self._errors,
                stderr=self._errors,
                pass_fds=[theirs.fileno()],
                cwd=self._folder.name,
                env=_environment(self._folder.name),
                # Ctrl-C is for the run, at whose end this ends; and a group can be killed.
                start_new_session=True,
            )
        except BaseException:
            self._release()
            raise
        finally:
            theirs.close()

    @property
    def is_running(self) -> bool:
        """Whether it holds its end of the socket, on which it never writes.

        Whoever waits for one of its forks sees this before it can be seen that the process has ended.
        """
        try:
            return bool(self._control.recv(1, socket.MSG_DONTWAIT))
        except BlockingIOError:
            return True
        except ConnectionError:
            return False

    @property
    def told_bytes(self) -> int:
        """How much it, and its forks, have written to standard error."""
        return os.fstat(self._errors.fileno()).st_size

    def told_since(self, start: int) -> str:
        if self._errors.closed:
            return ""
        if not self.is_running:
            # Why it has ended it may have said before the session was asked for.
            start = 0
        # Not by seek: the processes write where the shared offset is.
        end = self.told_bytes
        told = os.pread(self._errors.fileno(), end - start, start)
        return told.decode("utf-8", "replace")[-_ERROR_CHARACTERS:]

    async def fork(self) -> ForkedProcess:
        told_before = self.told_bytes
        ours, theirs = socket.socketpair()
        with theirs, suppress(ConnectionError):
            # If it is gone, the session finds the end of its socket.
            socket.send_fds(self._control, [b"+"], [theirs.fileno()])
        reader, writer = await asyncio.open_unix_connection(sock=ours, limit=_LINE_BYTES)
        return ForkedProcess(reader, writer, self, told_before)

    def kill(self) -> None:
        """End it and all that it forked."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def close(self) -> None:
        self.kill()
        self._release()

    def _release(self) -> None:
        self._control.close()
        self._errors.close()
        self._folder.cleanup()


def _environment(home: str) -> dict[str, str]:
    """Return the environment of a process: the order of sets is the same in every run."""
    return {**os.environ, "HOME": home, "PYTHONUTF8": "1", "PYTHONHASHSEED": "0"}
