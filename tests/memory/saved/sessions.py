"""The invented sessions of the saved states: what is said in each, and what is done to the memory."""

from __future__ import annotations

import base64
import json
import re
import struct
import zlib
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from context_compressor import InMemoryOffloadStore, Msg, OffloadTools, Summary, SummaryRequest
from context_compressor.errors import OffloadError

if TYPE_CHECKING:
    from tests.memory.saved.make import Making

Dict = dict[str, Any]
WORDS = [
    *("harbour", "pallet", "invoice", "ledger", "manifest", "carrier", "depot", "weight", "customs", "seal"),
    *("crane", "berth", "tariff", "driver", "route", "delay", "parcel", "scanner", "label", "queue"),
]


@dataclass(frozen=True)
class Session:
    """One session: the memory's options, and what happens in it."""

    name: str
    description: str
    config: Dict
    run: Callable[[Making], Awaitable[None]]
    remote: bool = field(default=False)
    edits: bool = field(default=False)
    """Whether the model answers with edits of the notes."""


class Store(InMemoryOffloadStore):
    """A store that refuses to write or to delete while it is told to."""

    refuses_writes = False
    refuses_deletes = False

    async def write(self, text: str) -> str:
        if self.refuses_writes:
            raise OffloadError("the disk is full")
        return await super().write(text)

    async def delete(self, ref: str) -> None:
        if self.refuses_deletes:
            raise OffloadError("the disk is read-only")
        await super().delete(ref)


class Model:
    """A model that is always there and writes the same for the same; it tells what it was given."""

    remote = True

    async def summarize(self, request: SummaryRequest) -> Summary:
        asked = [msg.get_text_content() or "" for msg in request.messages if msg.role == "user"]
        lines = ["## Goal", "The depot's manifests are to agree with the invoices.", "## Done"]
        lines += [f"- The user asked: {text[:40]}" for text in asked if text and text[0] != "["][-3:]
        lines += [f"- {len(request.messages)} messages were worked through, none of them failed."]
        if request.previous is not None:
            lines += ["- What an earlier summary told was done before that, and still holds."]
        lines += ["## Next", "The depots that are left are compared in the order of the list."]
        return Summary("\n".join(lines), input_tokens=len(request.messages) * 50, output_tokens=80)


class Editor:
    """A model that answers with edits: it adds, says anew, exchanges and drops lines."""

    remote = True
    writes_edits = True

    async def summarize(self, request: SummaryRequest) -> Summary:
        found = re.findall(r"M-\d+", " ".join(str(msg.content) for msg in request.messages))
        lines = ["## Goal", "+ The depots' manifests are to agree with the invoices."]
        if request.previous:
            *_, last = numbers = re.findall(r"^(\d+): ", request.previous, re.MULTILINE)
            lines = [f'~{last} "is next" => "was compared"', f"~{numbers[0]} All depots are to be compared."]
            lines += [f"-{number}" for number in numbers[1:-6]]
        lines += ["## Done", "### Depots"]
        lines += [
            f"+ {manifest}: its weight was 0, which is not allowed." for manifest in dict.fromkeys(found)
        ]
        lines += ["## State and next steps", f"+ What comes behind {found[-1] if found else 'that'} is next."]
        return Summary("\n".join(lines), input_tokens=len(request.messages) * 50, output_tokens=80)


def user(content: Any) -> Dict:
    return {"role": "user", "content": content}


def assistant(content: str) -> Dict:
    return {"role": "assistant", "content": content}


def system(content: str) -> Dict:
    return {"role": "system", "content": content}


def calls(*made: tuple[str, str, Dict], content: str | None = None) -> Dict:
    """Return an assistant message with calls, each an id, a tool's name and its arguments."""
    functions = [
        (id, {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)})
        for id, name, arguments in made
    ]
    tool_calls = [{"id": id, "type": "function", "function": function} for id, function in functions]
    return {"role": "assistant", "content": content, "tool_calls": tool_calls}


def result(id: str, content: Any) -> Dict:
    return {"role": "tool", "tool_call_id": id, "content": content}


def image(seed: int) -> Dict:
    """Return a picture of 12 by 12 dots that no other seed gives."""
    rows = b"".join(b"\0" + bytes((seed * 40 + x * y * 3) % 256 for x in range(12)) for y in range(12))
    # Not deflated but stored, so that every release of zlib writes the same.
    parts = {
        b"IHDR": struct.pack(">IIBBBBB", 12, 12, 8, 0, 0, 0, 0),
        b"IDAT": zlib.compress(rows, 0),
        b"IEND": b"",
    }
    chunks = [
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in parts.items()
    ]
    data = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"".join(chunks)).decode("ascii")
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}


def prose(seed: int, sentences: int) -> str:
    """Return sentences that no other seed gives."""
    return " ".join(
        f"The {WORDS[(seed * 7 + n) % 20]} of {WORDS[(seed + n * 3) % 20]} {seed * 31 + n} waits for "
        f"{WORDS[(seed * 3 + n * 11) % 20]} {(seed * 17 + n * 5) % 97}."
        for n in range(sentences)
    )


def log(seed: int, lines: int) -> str:
    """Return a log in which one line tells of an error."""
    day = f"2026-10-{seed % 28 + 1:02}"
    said = [
        f"{day} 08:{n % 60:02}:11 INFO depot{seed} {WORDS[n % 20]}-{seed * 100 + n} loaded in "
        f"{(seed + n) * 13 % 400} ms"
        for n in range(lines)
    ]
    said[lines // 2] = f"{day} ERROR depot{seed} manifest M-{seed}77: weight 0 is not allowed"
    return "\n".join(said)


def table(seed: int, rows: int) -> str:
    """Return a CSV table."""
    lines = [
        f"{seed}{n:04},{WORDS[n % 20]},{n * seed % 89}.50,{'late' if n % 9 == 0 else 'sent'}"
        for n in range(rows)
    ]
    return "\n".join(["parcel,kind,weight_kg,state", *lines])


def code(seed: int, functions: int) -> str:
    """Return a Python file."""
    parts = [
        f"def {WORDS[n % 20]}_{seed}(rows: list[Row]) -> int:\n"
        f'    """Count the {WORDS[(n + seed) % 20]} rows of depot {seed}."""\n'
        f"    return sum(row.weight > {n * seed} for row in rows if row.depot == {seed})\n"
        for n in range(functions)
    ]
    return "\n\n".join(["from depots import Row", *parts])


def work(first: int, turns: int, lines: int = 14) -> Iterator[Dict]:
    """Give turns of a request, a look into a log, and an answer."""
    for n in range(first, first + turns):
        yield user(f"Look at depot {n}, please. {prose(n, 2)}")
        yield calls((f"look{n}", "read_file", {"path": f"logs/depot_{n}.log"}), content=f"Opening depot {n}.")
        yield result(f"look{n}", log(n, lines))
        yield assistant(f"Depot {n}: manifest M-{n}77 has weight 0, the rest was loaded. {prose(n + 500, 2)}")


async def merged_segments(making: Making) -> None:
    await making.say(system("You compare manifests. Never change a manifest yourself."))
    await making.go(user("Go through the depots one by one. Always name the manifest by its number."))
    await making.go(*work(1, 23))


async def compact_stubs(making: Making) -> None:
    await making.go(user("Write the counting functions for all depots, and run them."))
    for n in range(1, 6):
        path = f"src/depot_{n}.py"
        await making.go(
            calls((f"w{n}", "write_file", {"path": path, "content": code(n, 9)})),
            result(f"w{n}", f"wrote {path}"),
            calls(
                (f"r{n}", "run", {"command": f"python {path} --all"}),
                (f"t{n}", "read_table", {"name": f"depot_{n}", "limit": 30}),
            ),
            result(f"r{n}", log(n, 30)),
            result(f"t{n}", table(n, 30)),
            assistant(f"Depot {n} is written and counted. {prose(n, 1)}"),
        )


async def pins_and_hints(making: Making) -> None:
    await making.say(user("Compare the depots with the list below."))
    (rule,) = await making.say(user(f"The list, which stays: {prose(90, 6)}"), marks="pinned")
    await making.go(*work(1, 5))
    await making.say(user("Hint: three depots are done, go on with the next."), marks="hint")
    await making.go(*work(6, 3))
    await making.memory.delete_by_mark("hint")
    history = await making.memory.get_history()
    kept = next(msg for msg in history if msg.get_text_content() and "Look at depot 2" in str(msg.content))
    await making.memory.update_messages_mark("pinned", msg_ids=[kept.id])
    await making.go(*work(9, 4))
    await making.memory.update_messages_mark("done", msg_ids=[rule.id, history[4].id])
    await making.say(user("Hint: be brief now."), marks=["hint", "once"])
    await making.memory.get_memory()


async def deletions(making: Making) -> None:
    await making.go(user("Go through the depots, and forget what I tell you to forget."))
    await making.go(*work(1, 6))
    first, *_ = [msg for msg in await making.memory.get_memory() if msg.id not in await _ids(making)]
    covered = first.metadata["compression"]["covered_ids"]
    await making.memory.delete(covered[1:3])
    await making.memory.get_memory()
    await making.say(user(f"The code of the gate is 4471. {prose(70, 3)}"), marks="secret")
    await making.go(*work(7, 5))
    await making.memory.delete_by_mark("secret")
    history = await making.memory.get_history()
    await making.go(*work(12, 3))
    await making.memory.delete(
        [history[-2].id, history[-9].id]
    )  # a result, whose call stays, and another one
    await making.memory.get_memory()
    (twice,) = await making.say(user("The same id, later."))
    await making.memory.add(Msg("user", "The same id once more.", "user", id=twice.id), allow_duplicates=True)
    await making.go(*work(15, 2))


async def _ids(making: Making) -> set[str]:
    return {msg.id for msg in await making.memory.get_history()}


async def refused_write(making: Making) -> None:
    await making.go(user("Go through the depots."))
    await making.go(*work(1, 6))
    making.store.refuses_writes = making.store.refuses_deletes = True
    await making.go(*work(7, 3))
    history = await making.memory.get_history()
    await making.memory.delete([history[5].id, history[6].id])
    await making.go(assistant("Depot 2 is left out."), *work(10, 1))
    await making.go(calls(("big", "read_file", {"path": "all.log"})), result("big", log(60, 40)))


async def synced_list(making: Making) -> None:
    said = [system("You compare manifests."), user("Go through the depots, please.")]
    sync, view = making.memory.sync, making.memory.get_memory
    for message in work(1, 8):
        said.append(message)
        await sync(said)
        await view()
    said[6] = user("Look at depot 2, but only at its errors.")  # in the midst of what was summarised
    await sync(said)
    await view()
    said[-3:] = [assistant("Depot 8 is left out.")]  # another end
    await sync(said)
    await view()
    for message in work(20, 5):
        said.append(message)
        await sync(said)
        await view()


async def chinese(making: Making) -> None:
    await making.say(system("你是仓库对账助手。不要修改任何单据。"))
    await making.memory.update_compressed_summary("昨天已核对一号至三号仓库，均无差异。")
    await making.go(user("请逐个核对仓库的出库单，金额一律以人民币计，始终写出单号。"))
    for n in range(4, 20):
        rows = "\n".join(
            f"出库单 CK-2026-{n}{row:02}，{'木箱纸箱铁桶麻袋'[row % 4 * 2 :][:2]} {row * n % 37 + 1} 件，"
            f"金额 {row * 125 + n}.50 元，状态：{'待核' if row % 5 == 0 else '已核'}"
            for row in range(12)
        )
        arguments = {"仓库": f"{n}号", "日期": f"2026-10-{n:02}"}
        await making.go(
            user(f"现在核对{n}号仓库，重点看待核的单据。"),
            calls((f"cx{n}", "query_orders", arguments), content=f"正在查询{n}号仓库。"),
            result(f"cx{n}", rows),
            assistant(f"{n}号仓库核对完毕：待核三单，其中 CK-2026-{n}05 的金额与发票相差 {n} 元，其余一致。"),
        )


async def images(making: Making) -> None:
    await making.go(
        user([{"type": "text", "text": "This is what a good label looks like."}, image(0)]),
        assistant("I see: the seal is on the left."),
    )
    for n in range(1, 9):
        shown = [{"type": "text", "text": f"Label of parcel {n}. {prose(n, 3)}"}, image(n)]
        await making.go(
            user(shown),
            calls((f"scan{n}", "scan", {"parcel": n})),
            result(f"scan{n}", [{"type": "text", "text": log(n, 8)}, image(100 + n)]),
            assistant(f"The seal of parcel {n} is on the {'left' if n % 2 else 'right'}."),
        )


async def large_arrivals(making: Making) -> None:
    tools = OffloadTools(making.memory)
    rows = [
        {"parcel": n, "kind": WORDS[n % 20], "weight": n * 3 % 50, "depot": {"id": n % 7}} for n in range(90)
    ]
    await making.go(
        user("Find the parcels that are late."),
        calls(("big1", "query", {"sql": "SELECT * FROM parcels"})),
        result("big1", json.dumps(rows)),
        calls(("big2", "read_file", {"path": "src/late.py"}), ("big3", "read_table", {"name": "late"})),
        result("big2", code(3, 28)),
        result("big3", table(8, 130)),
    )
    read = {"ref": (await making.memory.reachable_refs())[0], "offset": 40, "limit": 60}
    page = await tools.call("read_offloaded", read)
    await making.go(calls(("back1", "read_offloaded", read)), result("back1", str(page)))
    await making.go(*work(1, 4))
    found = await tools.call("search_history", {"query": "manifest M-277"})
    await making.go(
        calls(("back2", "search_history", {"query": "manifest M-277"})), result("back2", str(found))
    )
    await making.go(user(f"One more list, by hand: {prose(44, 110)}"), *work(5, 3))


async def agent_notes(making: Making) -> None:
    await making.go(user("Go through the depots. From now on, answer in one sentence."))
    await making.go(*work(1, 5, lines=8))
    await making.memory.compress_now(keep="Depot 3 is still open: ask for manifest M-377 again.")
    await making.go(*work(6, 4, lines=8))
    await making.memory.compress_now(
        keep="The tariff of depot 7 is 12.40.\nDo not call the carrier before ten."
    )
    await making.go(*work(10, 9, lines=8))
    await making.memory.compress_now()
    await making.go(*work(19, 1, lines=8))


async def calibrated(making: Making) -> None:
    memory = making.memory
    await making.go(user("Go through the depots."))
    for n in range(1, 9):
        await making.go(*work(n, 1))
        memory.record_usage(int(memory.stats().view_tokens * 1.2) + 150)
    memory.record_overflow(limit=2_600)
    await memory.get_memory()
    for n in range(9, 13):
        await making.go(*work(n, 1))
        memory.record_usage(int(memory.stats().view_tokens * 1.25) + 150)
    await memory.get_memory()
    await making.say(user("And what about depot 99? No view has shown this question yet."))


async def model_summaries(making: Making) -> None:
    await making.say(system("You compare manifests with invoices."))
    await making.say(result("gone", "a result without its call"))
    await making.go(user("Go through the depots. Keep the invoice numbers as they are."))
    for n in range(1, 15):
        await making.go(
            user(f"Compare depot {n} with its invoices. {prose(n, 3)}"),
            calls((f"a{n}", "read_log", {"depot": n}), (f"b{n}", "read_invoices", {"depot": n}))
            | {"reasoning_content": f"Depot {n} has a log and invoices; both can be read at once."},
            result(f"b{n}", table(n, 9)),
            result(f"a{n}", log(n, 7)),
            assistant(f"Depot {n} agrees but for manifest M-{n}77. {prose(n + 300, 2)}"),
        )
    await making.say(calls(("lost", "read_log", {"depot": 15})), user("That takes too long, go on with 16."))
    await making.memory.get_memory()
    await making.say(
        calls(("a16", "read_log", {"depot": 16}), ("b16", "read_invoices", {"depot": 16})),
        result("a16", log(16, 5)),
    )
    await making.memory.get_memory()


async def notes(making: Making) -> None:
    await making.go(user("Go through the depots. Never book a weight of 0; ask me first."))
    await making.go(*work(1, 15, lines=8))
    late, *_ = await making.say(user("Depot 16 is closed, leave it out."), marks="pinned")
    await making.go(*work(17, 5, lines=8))
    ids = [msg.id for msg in await making.memory.get_history()]
    await making.memory.delete(ids[ids.index(late.id) + 1 :][:4])
    await making.go(*work(22, 7, lines=8))


SESSIONS = [
    Session(
        "merged_segments",
        "Twenty-three turns of logs in a small budget: segments that were merged several times.",
        {"max_total_tokens": 2_400, "keep_recent_count": 4},
        merged_segments,
    ),
    Session(
        "compact_stubs",
        "Mode compact, parallel calls: stubs for results and for long arguments, no summary.",
        {
            "mode": "compact",
            "max_total_tokens": 6_000,
            "max_tool_message_tokens": 300,
            "preview_tokens": 80,
            "keep_recent_count": 6,
        },
        compact_stubs,
    ),
    Session(
        "pins_and_hints",
        "A pinned message, one that was pinned after it had been summarised, and hints that come and go.",
        {"max_total_tokens": 2_600, "keep_recent_count": 4, "volatile_marks": ["hint", "once"]},
        pins_and_hints,
    ),
    Session(
        "deletions",
        "Messages deleted from a segment, by mark, and a result whose call stays; an id that was used twice.",
        {"max_total_tokens": 2_200, "keep_recent_count": 4},
        deletions,
    ),
    Session(
        "refused_write",
        "A store that refuses: refs that are pending, and a text that could not be removed.",
        {"max_total_tokens": 2_200, "keep_recent_count": 4},
        refused_write,
    ),
    Session(
        "synced_list",
        "A list of chat dicts that was synced, edited in the midst and at its end, and went on.",
        {"max_total_tokens": 2_400, "keep_recent_count": 4},
        synced_list,
    ),
    Session(
        "chinese",
        "A Chinese session in mode compress, in groups, beside a summary of the base memory's own.",
        {"mode": "compress", "max_total_tokens": 4_000, "group_token_threshold": 900, "keep_recent_count": 6},
        chinese,
    ),
    Session(
        "images",
        "Images in what the user says and in results: the older ones are in the store.",
        {"max_total_tokens": 4_500, "keep_images": 8, "keep_recent_count": 4},
        images,
    ),
    Session(
        "large_arrivals",
        "Results that were too large as they came, a page read back, a search, and a long text by hand.",
        {
            "max_total_tokens": 4_000,
            "arrival_ratio": 0.2,
            "keep_recent_tokens": 900,
            "exclude_tools": ["scan"],
        },
        large_arrivals,
    ),
    Session(
        "agent_notes",
        "Compressed by hand with notes of the agent's, in groups; the view has few messages.",
        {
            "mode": "compress",
            "max_total_tokens": 3_000,
            "max_view_messages": 24,
            "group_token_threshold": 700,
        },
        agent_notes,
    ),
    Session(
        "calibrated",
        "Reported usage and a refusal: views cost less than the budget. One message was not shown yet.",
        {"max_total_tokens": 3_200, "reserved_tokens": 200, "keep_recent_count": 4},
        calibrated,
    ),
    Session(
        "model_summaries",
        "Summaries by a model, parallel calls, repairs, and a last exchange that waits for a result.",
        {
            "max_total_tokens": 3_000,
            "keep_recent_count": 5,
            "background_ratio": None,
            "summary_instructions": "Name every manifest.",
        },
        model_summaries,
        remote=True,
    ),
    Session(
        "notes_by_rules",
        "One text of notes for several parts, by rules; of the newest part messages were deleted.",
        {"max_total_tokens": 2_600, "keep_recent_count": 4},
        notes,
    ),
    Session(
        "notes_by_model",
        "The same by a model that edits: lines added, said anew, exchanged, dropped; others by rules.",
        {"max_total_tokens": 2_600, "keep_recent_count": 4, "background_ratio": None},
        notes,
        remote=True,
        edits=True,
    ),
]
