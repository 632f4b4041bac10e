"""Drive a real Chromium by its DevTools protocol."""

import asyncio
import base64
import contextlib
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any, Self

import aiohttp

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_FLAGS = (
    "--headless=new",
    "--no-sandbox",  # a container has none to offer
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--remote-debugging-port=0",
)


def find_chromium() -> str | None:
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Browser:
    """A Chromium with one page. What its console says and what it asks of the network is kept."""

    def __init__(self, program: str) -> None:
        self._program = program
        self._runner = asyncio.Runner()
        self._next_id = 0
        self._events: list[dict[str, Any]] = []

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self._run(self._start())
        return self

    def __exit__(self, *error: object) -> None:
        self._run(self._stop())
        self._runner.close()
        self._folder.cleanup()

    def open(self, page: Path | str, *, width: int, scheme: str = "light") -> float:
        """Open a file or a URL, and return the seconds until it was loaded and drawn."""
        self._events.clear()
        metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", **metrics)
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.call("Emulation.setEmulatedMedia", features=[feature])
        self.call("Page.navigate", url=page if isinstance(page, str) else page.as_uri())
        self._run(self._until("Page.loadEventFired"))
        # Two frames: when the second begins, the first is drawn.
        script = (
            "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done("
            "performance.now()))))"
        )
        return float(self.evaluate(script)) / 1000

    def evaluate(self, script: str) -> Any:
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def wait_for(self, script: str) -> None:
        """Return when a script says something true."""
        look = f"const look = () => ({script}) ? done() : setTimeout(look, 20); look()"
        self.evaluate(f"new Promise(done => {{ {look} }})")

    def screenshot(self, path: Path, *, whole: bool = False) -> None:
        data = self.call("Page.captureScreenshot", captureBeyondViewport=whole)["data"]
        path.write_bytes(base64.b64decode(data))

    def complaints(self) -> list[dict[str, Any]]:
        """Return what the console was told, and exceptions."""
        kinds = {"Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown"}
        return [event for event in self._events if event["method"] in kinds]

    def requests(self) -> list[str]:
        """Return the addresses that were asked for."""
        return [
            event["params"]["request"]["url"]
            for event in self._events
            if event["method"] == "Network.requestWillBeSent"
        ]

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self._run(self._call(method, parameters))

    def _run(self, work: Any) -> Any:
        return self._runner.run(asyncio.wait_for(work, 120))

    async def _start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            self._program,
            *_FLAGS,
            f"--user-data-dir={self._folder.name}",
            "about:blank",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        while not (found := re.search(rb"ws://([^/]+)/", line := await self._process.stderr.readline())):
            assert line, "Chromium ended before it listened"
        self._drain = asyncio.create_task(self._process.stderr.read())
        self._http = aiohttp.ClientSession()
        async with self._http.get(f"http://{found[1].decode()}/json/list") as response:
            pages = await response.json(content_type=None)
        address = next(page["webSocketDebuggerUrl"] for page in pages if page["type"] == "page")
        self._socket = await self._http.ws_connect(address, max_msg_size=0)
        for domain in ("Page", "Runtime", "Log", "Network"):
            await self._call(f"{domain}.enable", {})

    async def _stop(self) -> None:
        await self._socket.close()
        await self._http.close()
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()
        await self._process.wait()
        await self._drain

    async def _call(self, method: str, parameters: dict[str, Any]) -> dict[str, Any]:
        self._next_id += 1
        number = self._next_id
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        while (message := await self._socket.receive_json()).get("id") != number:
            self._events.append(message)
        assert "error" not in message, message
        return message["result"]

    async def _until(self, method: str) -> None:
        while all(event["method"] != method for event in self._events):
            self._events.append(await self._socket.receive_json())
