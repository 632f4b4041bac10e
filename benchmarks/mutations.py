"""How many wrong values of a summary are marked, and how many right ones by mistake.

Sessions of a coding agent, a customer service and a research assistant are made from templates, in English
and Chinese, each with a right summary in other words and another writing of values. Each mutation makes one
thing of a summary wrong: a digit, a part of a path, or a negation that is dropped. The summaries keep most
of the material's words; a negation that is lost in a free paraphrase is found less often. Run it from the
project's root:

    python benchmarks/mutations.py [--count 1000] [--seed 1]
"""

from __future__ import annotations

import argparse
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

from context_compressor.messages.msg import Msg
from context_compressor.summarizers.prompts import material_text
from context_compressor.summarizers.protocol import SummaryRequest
from context_compressor.summarizers.values import MARK, mark_values

KINDS = ("digit", "path", "negation", "negation in Chinese")


class Sample(NamedTuple):
    """A session, and a right summary of it."""

    material: str
    summary: str


class Figures(NamedTuple):
    """What a run found."""

    made: Counter[str]
    caught: Counter[str]
    values: int
    """Of right summaries, each counted once."""
    mistaken: int
    """Of these, how many were marked."""


def measure(count: int, seed: int) -> Figures:
    """Make `count` mutations, as many of each kind, and tell how many are marked."""
    rng = random.Random(seed)
    made: Counter[str] = Counter()
    caught: Counter[str] = Counter()
    values = mistaken = 0
    while made.total() < count:
        sample = rng.choice((_coding, _shop, _chinese_shop, _chinese_research))(rng)
        right = mark_values(sample.summary, sample.material)
        values += right.values
        mistaken += right.marked
        for kind in KINDS:
            wrong = _mutate(kind, sample, rng)
            if wrong is not None and made[kind] < -(-count // len(KINDS)) and made.total() < count:
                made[kind] += 1
                caught[kind] += mark_values(wrong, sample.material).marked > right.marked
    return Figures(made, caught, values, mistaken)


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


# Mutations


def _mutate(kind: str, sample: Sample, rng: random.Random) -> str | None:
    """Return a summary with one thing wrong; None where it has nothing of this kind."""
    makers: dict[str, Callable[[str, random.Random], Iterator[str]]] = {
        "digit": _other_digits,
        "path": _other_parts,
        "negation": _without_not,
        "negation in Chinese": _without_bu,
    }
    found = list(makers[kind](sample.summary, rng))
    return rng.choice(found) if found else None


def _other_digits(text: str, rng: random.Random) -> Iterator[str]:
    # Counts below 100 a summary may have counted itself: nobody looks at them.
    for number in re.finditer(r"(?<![\d.,])(?!\b(?<![-/:])\d\d\b(?![-/:.]\d))\d[\d,]*\d(?:\.\d+)?", text):
        at = rng.choice([at for at in range(*number.span()) if text[at].isdigit()])
        yield text[:at] + rng.choice([d for d in "123456789" if d != text[at]]) + text[at + 1 :]


def _other_parts(text: str, rng: random.Random) -> Iterator[str]:
    for part in re.finditer(r"(?<=/)[a-z_-]{3,}", text):
        letters = list(part[0])
        at = rng.randrange(len(letters) - 1)
        letters[at], letters[at + 1] = letters[at + 1], letters[at]
        other = (
            "".join(letters) if rng.random() < 0.5 else rng.choice(("shared", "models", "tests", "legacy"))
        )
        if other != part[0]:
            yield text[: part.start()] + other + text[part.end() :]


def _without_not(text: str, rng: random.Random) -> Iterator[str]:  # noqa: ARG001  # the same for all kinds
    for old, new in (
        ("must not be", "must be"),
        ("Do not change", "Change"),
        ("Never change", "Change"),
        ("is never to be", "is to be"),
        ("is not", "is"),
        ("did not start", "started"),
        ("do not pass", "pass"),
        ("Do not send", "Send"),
        ("cannot be", "can be"),
    ):
        if old in text:
            yield text.replace(old, new, 1)


def _without_bu(text: str, rng: random.Random) -> Iterator[str]:  # noqa: ARG001
    for old, new in (("不要", ""), ("不能", "可以"), ("不得", "可以"), ("没有", "已"), ("无法", "可以")):
        for found in re.finditer(old, text):
            yield text[: found.start()] + new + text[found.end() :]


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    figures = measure(arguments.count, arguments.seed)
    for kind in KINDS:
        made, caught = figures.made[kind], figures.caught[kind]
        print(f"{kind:20} {caught:4} of {made:4} marked ({caught / max(1, made):.1%})")
    total, found = figures.made.total(), figures.caught.total()
    print(f"{'all':20} {found:4} of {total:4} marked ({found / total:.1%})")
    print(
        f"right values marked{MARK}: {figures.mistaken} of {figures.values} "
        f"({figures.mistaken / figures.values:.2%})"
    )


if __name__ == "__main__":
    main()
