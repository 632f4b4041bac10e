"""How many wrong values of a summary are marked, and how many right ones by mistake.

The summaries are right ones of recorded sessions, JSON files in a folder:

    {"recording": "pi.jsonl.gz", "line": 0, "start": 12, "stop": 34, "summary": "..."}

`recording` is a file of conversations in chat form, one a line, in the folder that `--recordings` names;
the messages from `start` up to `stop` are what the summary tells of. Without a folder they are made from
templates, in English and Chinese. Each mutation makes one value wrong that was not marked: a digit of a
number, a character of an id, a part of a path, a word of a quote. Run it from the project's root:

    python benchmarks/mutations.py [FOLDER --recordings FOLDER] [--count 1000] [--seed 1]
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from context_compressor import from_openai
from context_compressor.messages.msg import Msg
from context_compressor.summarizers.prompts import material_text
from context_compressor.summarizers.protocol import SummaryRequest
from context_compressor.summarizers.values import MARK, Shown, marked

_FORMS = {
    "quote": re.compile(r"[\"“「]([^\"“”「」\n]+)[\"”」]"),
    "path": re.compile(r"(?<![\w/.@])(?=\S*[a-z]\S*[._~-]|/|\S+/\S+/)[~./]*(?:[\w.-]+/)+[\w.-]*\w", re.ASCII),
    "id": re.compile(r"(?<![\w/.-])(?=[\w-]*\d)(?=[\w-]*[A-Za-z])[A-Za-z0-9][\w-]{3,}(?![\w/.])", re.ASCII),
    "number": re.compile(r"(?<![\w./:-])\d(?:[\d,]*\d)?(?:\.\d+)?(?![\w./:-]*\w)", re.ASCII),
}
"""What a value looks like, in the order in which they are looked for; none lies within another."""
KINDS = tuple(_FORMS)


class Sample(NamedTuple):
    """A session, and a right summary of it."""

    material: str
    summary: str


class Figures(NamedTuple):
    """What a run found."""

    made: Counter[str]
    caught: Counter[str]
    values: int
    """Of right summaries."""
    mistaken: list[str]
    """What was marked of these, with the words before it."""


class _Value(NamedTuple):
    kind: str
    text: str
    start: int
    end: int


def measure(samples: Sequence[Sample], count: int, seed: int) -> Figures:
    """Make `count` mutations, as many of each kind, and tell how many are marked."""
    rng = random.Random(seed)
    figures = Figures(Counter(), Counter(), 0, [])
    sound: list[tuple[Sample, Shown, int, _Value]] = []
    for sample in samples:
        shown = Shown(sample.material)
        pieces = marked(sample.summary, shown).split(MARK)
        figures.mistaken.extend(piece[-60:] for piece in pieces[:-1])
        ends = [sum(map(len, pieces[: n + 1])) for n in range(len(pieces) - 1)]
        values = list(_values(sample.summary))
        figures = figures._replace(values=figures.values + len(values))
        sound += [
            (sample, shown, len(ends), value)
            for value in values
            if not any(value.start < end <= value.end + 3 for end in ends)
        ]
    rng.shuffle(sound)
    for sample, shown, marks, value in sound * 10:
        if figures.made[value.kind] < -(-count // len(KINDS)):
            wrong = _mutated(value, rng)
            if wrong.casefold() not in sample.material.casefold():
                figures.made[value.kind] += 1
                text = sample.summary[: value.start] + wrong + sample.summary[value.end :]
                figures.caught[value.kind] += marked(text, shown).count(MARK) > marks
    return figures


def _values(text: str) -> Iterator[_Value]:
    taken = [" "] * len(text)
    for kind, form in _FORMS.items():
        for match in form.finditer(text):
            start, end = match.span(1) if form.groups else match.span()
            if "x" in taken[start:end]:
                continue
            taken[start:end] = "x" * (end - start)
            said = text[start:end]
            is_small = kind == "number" and float(said.replace(",", "")) < 100
            is_word = kind == "quote" and not re.search(r"\w\W*\s\W*\w|[\u3400-\u9fff]{4}", said)
            if not is_small and not is_word and "…" not in text[start : end + 1]:
                yield _Value(kind, said, start, end)


def _mutated(value: _Value, rng: random.Random) -> str:
    """Return a value with one thing wrong."""
    text = value.text
    if value.kind == "number":
        return _exchanged(text, [at for at, c in enumerate(text) if c.isdigit()], rng)
    if value.kind == "id":
        return _exchanged(text, [at for at, c in enumerate(text) if c.isalnum()], rng)
    parts = re.findall(r"[^\W_]{3,}|[\u3400-\u9fff]", text) or re.findall(r"\w", text)
    part = rng.choice(parts)
    others = [other for other in _OTHERS if other != part]
    other = rng.choice(others)
    if value.kind == "path" and rng.random() < 0.5 and len(set(part)) > 1:
        at = next(at for at in range(1, len(part)) if part[at] != part[at - 1])
        other = f"{part[: at - 1]}{part[at]}{part[at - 1]}{part[at + 1 :]}"
    return text.replace(part, other, 1)


_OTHERS = ("shared", "models", "tests", "legacy", "never", "always", "client", "second", "main", "file")
"""What stands in place of a part of a path, or of a word of a quote; most sessions have most of them."""


def _exchanged(text: str, places: list[int], rng: random.Random) -> str:
    """Return a text with one digit exchanged for another, or one letter."""
    at = rng.choice(places)
    others = "123456789" if text[at].isdigit() else "abcdefghijklmnopqrstuvwxyz"
    other = rng.choice([c for c in others if c != text[at].lower()])
    return text[:at] + (other.upper() if text[at].isupper() else other) + text[at + 1 :]


def recorded(folder: Path, recordings: Path) -> Iterator[Sample]:
    """Yield the summaries in a folder, with what each tells of."""
    for file in sorted(folder.glob("*.json")):
        told = json.loads(file.read_text())
        with gzip.open(recordings / told["recording"], "rt") as lines:
            line = next(line for number, line in enumerate(lines) if number == told["line"])
        messages = from_openai(json.loads(line)["messages"][told["start"] : told["stop"]])
        yield Sample(material_text(SummaryRequest(tuple(messages), 500)), told["summary"])


def made(count: int, seed: int) -> Iterable[Sample]:
    """Return summaries made from templates."""
    rng = random.Random(seed)
    return [rng.choice((_coding, _shop, _chinese_shop, _chinese_research))(rng) for _ in range(count)]


# Sessions


def _material(*said: tuple[str, str]) -> str:
    messages = tuple(Msg(role, text, role) for role, text in said)
    return material_text(SummaryRequest(messages, 500))


def _path(rng: random.Random) -> str:
    folders = rng.sample(
        ("src", "lib", "core", "api", "jobs", "utils", "billing", "auth", "views", "parser"), 3
    )
    name = rng.choice(("dates", "invoice", "token_cache", "login_form", "rate_limit", "user-import", "queue"))
    return "/".join([*folders, f"{name}{rng.randint(2, 99)}.{rng.choice(('py', 'ts', 'go', 'rs'))}"])


def _coding(rng: random.Random) -> Sample:
    edited, kept, broken = _path(rng), _path(rng), _path(rng)
    line, passed, failed, seconds = (
        rng.randint(11, 900),
        rng.randint(11, 400),
        rng.randint(11, 60),
        rng.random() * 90,
    )
    version, port, limit = (
        f"{rng.randint(1, 9)}.{rng.randint(0, 30)}.{rng.randint(0, 9)}",
        rng.randint(2000, 9999),
        rng.randint(1000, 99_999),
    )
    function = rng.choice(("parse_date", "load_rows", "retry_call", "render_page"))
    material = _material(
        (
            "user",
            f"Please make {function} in {edited} faster. Do not change {kept}, and never "
            f"raise the limit of {limit}.",
        ),
        (
            "assistant",
            f'{{"path": "/home/dev/{edited}", "old": "for row in rows:", '
            f'"new": "for row in {function}(rows):"}}',
        ),
        (
            "user",
            f"/home/dev/{edited}:{line}: warning: unused variable\n{failed} failed, "
            f"{passed} passed in {seconds:.2f}s",
        ),
        (
            "assistant",
            f"The server on port {port} did not start with version {version}. The tests of "
            f"{broken} do not pass yet.",
        ),
    )
    summary = (
        f"## Goal\n- Make {function} in {edited.split('/', 1)[1]} faster\n## User instructions\n"
        f"- "
        f"{rng.choice((f'{kept} must not be changed', f'Do not change `{kept}`', f'Never change {kept}'))}\n"
        f"- The limit of {limit:,} is {rng.choice(('never to be raised', 'not to be raised'))}\n"
        f'## Done\n1. /home/dev/{edited}: "for row in rows:" became "for row in '
        f'{function}(rows):"; unused variable in '
        f"line {line}\n2. Tests: {passed} passed, {failed} failed ({seconds:.2f} s)\n## Failures\n"
        f"- Version {version} did not start on port {port}\n- The tests of {broken} do not pass\n"
    )
    return Sample(material, summary)


def _shop(rng: random.Random) -> Sample:
    name = rng.choice(("Mei Lin", "Omar Haddad", "Ines Duarte", "Pavel Novak"))
    order, refund, card = (
        f"W{rng.randint(10**6, 10**7)}",
        f"RF-{rng.randint(10**4, 10**5)}",
        rng.randint(1000, 9999),
    )
    amount, month, day = (
        rng.randint(1000, 9999) + rng.randint(1, 99) / 100,
        rng.randint(1, 12),
        rng.randint(10, 28),
    )
    hour, minute = rng.randint(1, 9), rng.randint(10, 59)
    mail = f"{name.split()[0].lower()}{rng.randint(10, 99)}@example.com"
    material = _material(
        (
            "user",
            f"I am {name}. Order #{order} arrived broken. Don't send the receipt to {mail}, "
            f"and I did not get {card}.",
        ),
        (
            "assistant",
            f'{{"order": "#{order}", "total": {amount:.2f}, "card": "{card}", "status": "delivered"}}',
        ),
        ("user", f"refund {refund} accepted on 2026-{month:02}-{day} at {hour:02}:{minute}"),
        (
            "assistant",
            f"The refund {refund} cannot be split. The coupon SAVE{card} is not valid for order #{order}.",
        ),
    )
    summary = (
        f"## Done\n- {name}, order {order} (broken): ${amount:,.2f} refunded as {refund} on "
        f"2026-{month}-{day}, "
        f"{hour}:{minute}; card {card}\n## User instructions\n"
        f"- "
        f"{rng.choice((f'Do not send the receipt to {mail}', f'The receipt is not to be sent to {mail}'))}\n"
        f"## Decisions\n- Refund {refund} cannot be split\n- Coupon SAVE{card} is not valid "
        f"for order {order}\n"
    )
    return Sample(material, summary)


def _chinese_shop(rng: random.Random) -> Sample:
    order, parcel = f"DD{rng.randint(10**6, 10**7)}", f"SF{rng.randint(10**9, 10**10)}"
    amount, phone, month, day = (
        rng.randint(100, 9999),
        rng.randint(10**10, 2 * 10**10),
        rng.randint(1, 12),
        rng.randint(10, 28),
    )
    material = _material(
        ("user", f"请查询订单 {order} 的物流。不要拨打电话 {phone}，退款金额不能超过 {amount}.00 元。"),
        ("assistant", f"订单 {order} 已发货，快递单号 {parcel}，预计 {month} 月 {day} 日到达。"),
        ("assistant", f"包裹 {parcel} 没有签收。订单 {order} 无法修改收货地址。"),
    )
    summary = (
        f"## 目标\n- 查询订单{order}的物流\n## 用户的指示\n- "
        f"{rng.choice(('不要拨打电话', '不能拨打电话'))} {phone}\n"
        f"- 退款金额{rng.choice(('不能', '不得'))}超过 {amount:,} 元\n## 已完成\n"
        f"- 订单 {order}：快递单号 {parcel}，预计{month}月{day}日到达\n## 现状与下一步\n- "
        f"包裹 {parcel} 没有签收\n"
        f"- 订单 {order} 无法修改收货地址\n"
    )
    return Sample(material, summary)


def _chinese_research(rng: random.Random) -> Sample:
    path = "data/" + _path(rng)
    rows, share, year = rng.randint(1000, 99_999), rng.randint(110, 989) / 10, rng.randint(2011, 2025)
    material = _material(
        ("user", f"分析 {path}，一共 {rows} 行。不要删除文件 {path}。"),
        (
            "assistant",
            f"{year} 年的增长率是 {share}%。模型 v{rows} 没有收敛，报告说：“样本量过小，结论仅供参考”。",
        ),
        ("assistant", f"{year} 年以前的数据没有公布。"),
    )
    summary = (
        f"## 用户的指示\n- 不要删除文件 {path}\n## 已完成\n- {path.split('/', 1)[1]}："
        f"{rows:,} 行，{year} 年增长率 {share}%，"
        f"报告说“样本量过小，结论仅供参考”\n## 失败与教训\n- 模型 v{rows} 没有收敛\n- "
        f"{year} 年以前的数据没有公布\n"
    )
    return Sample(material, summary)


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--recordings", type=Path)
    parser.add_argument("--count", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", action="store_true", help="print what is marked by mistake")
    arguments = parser.parse_args()
    if (arguments.folder is None) is not (arguments.recordings is None):
        sys.exit("give a folder of summaries and --recordings together, or neither")
    if arguments.folder is None:
        samples = list(made(arguments.count // 4, arguments.seed))
    else:
        samples = list(recorded(arguments.folder, arguments.recordings))
    figures = measure(samples, arguments.count, arguments.seed)
    for kind in KINDS:
        found, of = figures.caught[kind], figures.made[kind]
        print(f"{kind:8} {found:4} of {of:4} marked ({found / max(1, of):.1%})")
    total, found = figures.made.total(), figures.caught.total()
    print(f"{'all':8} {found:4} of {total:4} marked ({found / max(1, total):.1%})")
    mistaken, of = len(figures.mistaken), figures.values
    print(
        f"right values marked: {mistaken} of {of} ({mistaken / max(1, of):.2%}), in {len(samples)} summaries"
    )
    if arguments.show:
        print(*figures.mistaken, sep="\n---\n")


if __name__ == "__main__":
    main()
