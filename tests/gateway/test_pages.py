"""The gateway's page shows what goes on, to whoever may see it; nothing of a transcript runs in it."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from context_compressor.gateway.backend import Backend
from tests.gateway.served import PATHS, notes, serving
from tests.integrations.clients_support import CHAT
from tests.lab.measure.browser import Browser, find_chromium
from tests.lab.measure.reports import HOSTILE
from tests.support.model_server import ModelServer

PROGRAM = find_chromium()
LOOKS = [(1280, "light"), (390, "dark"), (390, "light"), (1280, "dark")]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if PROGRAM is None:
        pytest.skip("there is no Chromium on PATH to look at pages with")
    with Browser(PROGRAM) as found:
        yield found


@pytest.mark.parametrize(
    ("headers", "token", "status"),
    [
        ({}, None, 200),
        ({"host": "gateway.example"}, None, 403),
        ({"x-forwarded-for": "10.0.0.7"}, None, 403),
        ({}, "t", 403),
        ({"host": "gateway.example", "authorization": "Bearer t"}, "t", 200),
        ({"authorization": "Bearer no"}, "t", 403),
    ],
)
async def test_contents_are_for_this_machine_or_with_the_token(
    headers: dict[str, str], token: str | None, status: int
) -> None:
    """Health, metrics and the empty page are for all."""
    async with serving("http://127.0.0.1:9/v1", token=token) as served, served.http(headers=headers) as http:
        inside = [
            await http.get(path)
            for path in ("/gateway/sessions", "/gateway/sessions/a", "/gateway/texts/0123456789abcdef")
        ]
        outside = [await http.get(path) for path in ("/", "/gateway/page.js", "/healthz", "/metrics")]

    assert [one.status_code for one in inside] == ([200, 404, 404] if status == 200 else [403] * 3)
    assert {one.status_code for one in outside} == {200}
    assert "default-src 'none'" in outside[0].headers["content-security-policy"]


async def test_sessions_are_counted_and_events_keep_both_views() -> None:
    async with ModelServer(lambda _: "Well.") as server, serving(server) as served:
        client, said = served.client(CHAT), notes(12)
        for _ in range(2):
            await CHAT.ask(client, said, stream=False, asynchronous=True)
            said += [{"role": "assistant", "content": "Well."}, *notes(4)]
        await client.close()
        async with served.http() as http:
            [row] = (await http.get("/gateway/sessions")).json()["sessions"]
            [event] = row["events"]
            views = (await http.get(f"/gateway/sessions/{row['name']}/events/{event['number']}")).json()
            text = await http.get(f"/gateway/texts/{event['refs'][0].removeprefix('ctx://')}")
            metrics = (await http.get("/metrics")).text

    assert (row["requests"], row["label"][:7], row["api"]) == (2, "Note 0:", PATHS["chat"])
    assert row["tokens_with"] < row["tokens_without"]
    assert [one["is_ours"] for one in views["before"]] == [False] * 12
    assert [one["is_ours"] for one in views["after"]].count(True) == 1
    assert "Note 1: word" in text.json()["text"]
    assert 'context_compressor_requests_total{api="/v1/chat/completions",done="view"} 2.0' in metrics
    assert 'context_compressor_events_total{kind="compress"} 1.0' in metrics


async def test_one_event_among_workers(tmp_path: Path) -> None:
    """Two that have one backend get the same list at once: one makes the event, and both send its view."""
    pytest.importorskip("sqlalchemy", reason="needs the extra `sql`")
    url = f"sqlite:///{tmp_path / 'states.db'}"
    async with (
        ModelServer(lambda _: "Well.") as server,
        serving(server, Backend(url)) as one,
        serving(server, Backend(url)) as other,
    ):
        clients = [one.client(CHAT), other.client(CHAT)]
        asked = [CHAT.ask(each, notes(24), stream=False, asynchronous=True) for each in clients]
        await asyncio.gather(*asked)
        for each in clients:
            await each.close()
        await one.gateway.journal.write()  # it does so a second later by itself
        async with other.http() as http:
            [row] = (await http.get("/gateway/sessions")).json()["sessions"]

    first, second = (json.dumps(each.json["messages"]) for each in server.requests)
    assert first == second
    assert len(row["events"]) == 1


@pytest.mark.variants(2)
@pytest.mark.parametrize(("width", "scheme"), LOOKS)
async def test_the_page_fits_and_nothing_hostile_runs(browser: Browser, width: int, scheme: str) -> None:
    """At both widths, light and dark: no console message, no foreign request, no markup of a transcript's."""
    said = [{"role": "user", "content": f"{HOSTILE} {n} {'word ' * 300}"} for n in range(12)]
    async with ModelServer(lambda _: HOSTILE) as server, serving(server) as served:
        async with served.http() as http:
            for more in ([], notes(12)):
                said += more
                body = json.dumps({"model": HOSTILE, "messages": said})
                assert (await http.post(PATHS["chat"], content=body)).status_code == 200
        await asyncio.to_thread(look, browser, served.address.root, width, scheme)


def look(browser: Browser, root: str, width: int, scheme: str) -> None:
    browser.open(f"{root}/", width=width, scheme=scheme)
    browser.wait_for("document.querySelector('.row')")
    browser.evaluate("document.querySelector('.row').click()")
    browser.wait_for("document.querySelector('#one details')")
    browser.evaluate("document.querySelector('#one details').open = true")
    browser.wait_for("document.querySelector('.message .ref')")
    browser.evaluate("document.querySelector('.message .ref').click()")
    browser.wait_for("document.querySelector('.message details')")

    assert browser.complaints() == []
    assert {url.removeprefix(root)[:9] for url in browser.requests()} <= {"/", "/gateway/"}
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    assert browser.evaluate("document.querySelectorAll('main script, main img, main iframe').length") == 0
    if folder := os.environ.get("SCREENSHOTS"):
        browser.screenshot(Path(folder) / f"gateway-{width}-{scheme}.png", whole=True)
    browser.open("about:blank", width=width)  # which asks the gateway no more
