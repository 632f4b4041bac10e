"""Plant typed facts in a conversation, compress it round after round, and count what the view still says.

    python benchmarks/canaries.py                     # our own: labelled, plain, and half of them in Chinese
    python benchmarks/canaries.py --kit               # those of a public kit: make.py canaries installs it
    python benchmarks/canaries.py --session my.json   # somebody else's
    python benchmarks/canaries.py --system ours langchain-summarize   # peers too: make peers installs them

One memory holds the whole conversation. Each round adds eight exchanges of small talk about the work, and
calls `compress_now`; what is probed is the view, whose budget is a share of the first text's characters. No
model summarises. A fact is held when all its keys stand in the view. Other systems have no such call: they
are asked for the view before each answer, as in `savings.py`, and may exceed the budget; *view* is the
largest of the last round's, of the budget.

A session file is `{"turns": [[role, text], ...], "filler": [text, ...], "facts": [...]}`, a fact being
`{"type": ..., "text": ..., "keys": [...]}`.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from peers import PEER_SYSTEMS, leave_out_missing

from context_compressor import CompressedMemory, CompressionConfig, Msg, to_openai
from context_compressor.lab.measure import SYSTEMS, CachedCounter, Chat, content_text

ROUNDS = 5
ADDED = 8
"""Exchanges that a round adds."""
CHARACTERS_PER_TOKEN = 4
TYPES = ("rule", "constraint", "preference", "fact", "goal")
REPLY = "Understood, going on."


class Fact(NamedTuple):
    """Something that the user said once, and that has to be known later."""

    type: str
    label: str
    english: str
    keys: tuple[str, ...]
    chinese: str
    chinese_keys: tuple[str, ...]


FACTS = (
    Fact(
        "rule",
        "SAFETY",
        "Never print the contents of the .env.vault file, not even when asked to debug.",
        ("never print", ".env.vault"),
        "绝不打印 .env.vault 文件的内容，调试时也不行。",
        ("绝不打印", ".env.vault"),
    ),
    Fact(
        "rule",
        "SAFETY",
        "Do not delete customer rows without a signed ticket.",
        ("do not delete", "signed ticket"),
        "没有签字的工单，不得删除客户数据行。",
        ("不得删除", "工单"),
    ),
    Fact(
        "rule",
        "SAFETY",
        "If a script asks for root, stop and ask me first.",
        ("root", "ask me first"),
        "如果脚本要求 root 权限，先停下来问我。",
        ("root", "问我"),
    ),
    Fact(
        "rule",
        "SAFETY",
        "Patient records must stay on the clinic's own machines.",
        ("patient records", "must stay"),
        "病历必须留在诊所自己的机器上。",
        ("病历", "必须留在"),
    ),
    Fact(
        "constraint",
        "LIMIT",
        "The trip may cost 1,850 euros in all; anything above needs my word.",
        ("1,850 euros", "needs my word"),
        "整个行程总共最多 1850 欧元，超出要先经我同意。",
        ("1850 欧元", "同意"),
    ),
    Fact(
        "constraint",
        "LIMIT",
        "Only Node 20 is installed on the build host. Nothing newer will run there.",
        ("node 20", "build host"),
        "构建主机上只装了 Node 20，更新的版本跑不了。",
        ("node 20", "构建主机"),
    ),
    Fact(
        "constraint",
        "LIMIT",
        "Report every duration in minutes, never in hours.",
        ("in minutes", "never in hours"),
        "所有时长都必须用分钟报告，不要用小时。",
        ("分钟", "不要用小时"),
    ),
    Fact(
        "constraint",
        "LIMIT",
        "No deploys on Fridays until the freeze ends.",
        ("no deploys", "fridays"),
        "冻结期结束之前，周五禁止部署。",
        ("周五", "禁止部署"),
    ),
    Fact(
        "preference",
        "PREFERENCE",
        "I prefer tables over bullet lists in summaries.",
        ("prefer tables",),
        "总结里我偏好表格，而不是列表。",
        ("偏好表格",),
    ),
    Fact(
        "preference",
        "PREFERENCE",
        "Keep commit messages in the past tense.",
        ("past tense",),
        "提交说明请一律用过去时。",
        ("过去时",),
    ),
    Fact(
        "preference",
        "PREFERENCE",
        "She wants the short form of every city name.",
        ("short form", "city name"),
        "她希望所有城市名都用简称。",
        ("城市名", "简称"),
    ),
    Fact(
        "preference",
        "PREFERENCE",
        "I'd rather see one option than five.",
        ("one option",),
        "我希望只看到一个方案，而不是五个。",
        ("一个方案",),
    ),
    Fact(
        "fact",
        "FACT",
        "The billing service listens on port 7443 in rack K-12.",
        ("7443", "k-12"),
        "计费服务在 K-12 机柜，监听 7443 端口。",
        ("7443", "k-12"),
    ),
    Fact(
        "fact",
        "FACT",
        "Our contact at the supplier is Ilse Brandvold.",
        ("ilse brandvold", "supplier"),
        "供应商那边的联系人是 Ilse Brandvold。",
        ("ilse brandvold", "供应商"),
    ),
    Fact(
        "fact",
        "FACT",
        "The release is called Heron and ships on 2027-03-09.",
        ("heron", "2027-03-09"),
        "这个版本叫 Heron，2027-03-09 发布。",
        ("heron", "2027-03-09"),
    ),
    Fact(
        "fact",
        "FACT",
        "Test data lives at https://fixtures.heron.example/v4.",
        ("fixtures.heron.example", "/v4"),
        "测试数据在 https://fixtures.heron.example/v4。",
        ("fixtures.heron.example", "/v4"),
    ),
    Fact(
        "goal",
        "STATE",
        "We are on step 3 of 7 of the index rebuild; step 4 is the reverse index.",
        ("3 of 7", "reverse index"),
        "索引重建做到 7 步中的第 3 步，第 4 步是反向索引。",
        ("第 3 步", "反向索引"),
    ),
    Fact(
        "goal",
        "STATE",
        "The branch is fix/lock-order, cut from 9f3c2ab.",
        ("fix/lock-order", "9f3c2ab"),
        "分支是 fix/lock-order，从 9f3c2ab 切出。",
        ("fix/lock-order", "9f3c2ab"),
    ),
    Fact(
        "goal",
        "STATE",
        "Two tests still fail: test_replay_gap and test_slow_start.",
        ("test_replay_gap", "test_slow_start"),
        "还有两个测试失败：test_replay_gap 和 test_slow_start。",
        ("test_replay_gap", "test_slow_start"),
    ),
    Fact(
        "goal",
        "STATE",
        "Still open: whether the cache is shared between tenants.",
        ("cache is shared", "tenants"),
        "还没定：缓存是否在租户之间共享。",
        ("缓存", "租户"),
    ),
)
FILLER = (
    "The nightly import took a little longer than last week.",
    "We moved the charts to the second tab of the dashboard.",
    "The parser warns about unknown columns, which is fine for now.",
    "I read through the notes of the last review this morning.",
    "The docs build is green again after the theme update.",
    "Someone renamed the helper for dates, the rest is as it was.",
    "The queue was empty for most of the afternoon.",
    "Let's go through the open pull requests one after the other.",
    "The new colleague has an account and a badge now.",
    "Caching of the start page works as we had planned it.",
)


def own_session(*, labels: bool, chinese: bool) -> dict[str, Any]:
    """Return a session of our own; with `chinese` every second fact is said in Chinese."""
    turns, facts = [["system", "You are a careful assistant to a small team."]], []
    # Types take turns, so that each has facts early and late.
    order = sorted(range(len(FACTS)), key=lambda n: (n % 4, n // 4))
    for place, number in enumerate(order):
        fact = FACTS[number]
        in_chinese = chinese and place % 2 == 1
        text = fact.chinese if in_chinese else fact.english
        said = f"{fact.label}: {text}" if labels else text
        for step in range(2):
            turns += [["user", FILLER[(2 * place + step) % len(FILLER)]], ["assistant", REPLY]]
        turns += [["user", said], ["assistant", REPLY]]
        facts.append(
            {"type": fact.type, "text": said, "keys": fact.chinese_keys if in_chinese else fact.keys}
        )
    return {"turns": turns, "filler": list(FILLER), "facts": facts}


EXPORT = """
import json
from compaction_kit.canaries import seeded_canaries
from compaction_kit.session import _FILLER, build_seeded_session
facts = [{"type": c.type.value, "text": c.content, "keys": c.required_tokens} for c in seeded_canaries()]
turns = [[turn.role, turn.text] for turn in build_seeded_session().turns]
print(json.dumps({"turns": turns, "filler": _FILLER, "facts": facts}))
"""
KIT_TYPES = {
    "safety_rule": "rule",
    "hard_constraint": "constraint",
    "user_preference": "preference",
    "goal_state": "goal",
}
_LABEL = re.compile(r"[A-Z ]+: ")


def kit_session(*, labels: bool) -> dict[str, Any]:
    """Return the kit's session, its facts with or without their labels."""
    python = Path(__file__).parent / "peers" / ".venvs" / "canaries" / "bin" / "python"
    if not python.exists():
        raise SystemExit("the kit is not installed: python benchmarks/peers/make.py canaries")
    shown = subprocess.run([python, "-c", EXPORT], capture_output=True, check=True, text=True)
    session: dict[str, Any] = json.loads(shown.stdout)
    for fact in session["facts"]:
        fact["type"] = KIT_TYPES.get(fact["type"], fact["type"])
    if not labels:
        session["turns"] = [[role, _LABEL.sub("", text, count=1)] for role, text in session["turns"]]
    return session


async def held_facts(
    session: dict[str, Any], share: float, system: str
) -> tuple[list[tuple[str, bool]], float]:
    """Return the type of each fact and whether the view says it after the last round, and the view's size."""
    turns = session["turns"]
    limit = int(share * len("\n".join(f"[{role}] {text}" for role, text in turns)))
    talk = talk_of(system, limit // CHARACTERS_PER_TOKEN)
    filler = itertools.cycle(session["filler"])
    try:
        await talk.say(turns)
        for _ in range(ROUNDS):
            await talk.say(
                [
                    turn
                    for text in itertools.islice(filler, ADDED)
                    for turn in (("user", text), ("assistant", REPLY))
                ]
            )
            view = await talk.compressed()
            if system == "ours":
                assert len(view) <= limit, f"{len(view)} characters of {limit}"
    finally:
        await talk.aclose()
    said = view.lower()
    held = [(fact["type"], all(key.lower() in said for key in fact["keys"])) for fact in session["facts"]]
    return held, len(view) / limit


def talk_of(system: str, budget: int) -> Talk:
    """Return a conversation with a memory of this library, or one that another system shortens."""
    return OwnTalk(budget) if system == "ours" else OtherTalk(system, budget)


class Talk(Protocol):
    """A conversation and what keeps it within the budget."""

    async def say(self, turns: Iterable[Sequence[str]]) -> None:
        """Take turns: who speaks, and what."""
        ...

    async def compressed(self) -> str:
        """Return the view at the end of a round."""
        ...

    async def aclose(self) -> None:
        """End it."""
        ...


class OwnTalk:
    """A conversation with a memory of this library."""

    def __init__(self, budget: int) -> None:
        config = CompressionConfig(max_total_tokens=budget)
        self._memory = CompressedMemory(config=config, counter=CharacterCounter())

    async def say(self, turns: Iterable[Sequence[str]]) -> None:
        await self._memory.add([Msg(role, text, role) for role, text in turns])

    async def compressed(self) -> str:
        await self._memory.compress_now()
        return text_of(to_openai(await self._memory.get_memory()))

    async def aclose(self) -> None:
        await self._memory.aclose()


class OtherTalk:
    """A conversation that another system is asked about before each answer."""

    def __init__(self, system: str, budget: int) -> None:
        counter = CachedCounter(CharacterCounter())
        self._system = (SYSTEMS | PEER_SYSTEMS)[system](budget, counter)
        self._history: list[Chat] = []
        self._new: list[Chat] = []
        self._view: list[Chat] = []

    async def say(self, turns: Iterable[Sequence[str]]) -> None:
        for role, text in turns:
            if role == "assistant" and self._new:
                self._view, self._new = await self._system.send(self._history, self._new), []
            self._history.append({"role": role, "content": text})
            self._new.append(self._history[-1])

    async def compressed(self) -> str:
        return text_of(self._view)

    async def aclose(self) -> None:
        await self._system.aclose()


def text_of(view: Iterable[Chat]) -> str:
    return "\n".join(f"[{message['role']}] {content_text(message)}" for message in view)


class CharacterCounter:
    """Count four characters as a token, and the label of each message with them."""

    def count_text(self, text: str) -> int:
        return -(-len(text) // CHARACTERS_PER_TOKEN)

    def count_messages(self, messages: Sequence[Any]) -> int:
        chats = to_openai([msg for msg in messages if isinstance(msg, Msg)])
        chats += [message for message in messages if not isinstance(message, Msg)]
        return sum(self.count_text(text_of([message]) + "\n") for message in chats)


async def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--session", type=Path, nargs="*", help="session files, in place of our own")
    parser.add_argument("--share", type=float, nargs="*", default=[0.5, 0.3, 0.2])
    parser.add_argument("--system", nargs="+", choices=list(SYSTEMS | PEER_SYSTEMS), default=["ours"])
    parser.add_argument("--kit", action="store_true", help="the public kit's, in place of our own")
    args = parser.parse_args()
    sessions = {
        "labelled": own_session(labels=True, chinese=False),
        "plain": own_session(labels=False, chinese=False),
        "plain, half in Chinese": own_session(labels=False, chinese=True),
    }
    if args.kit:
        sessions = {
            "kit, labelled": kit_session(labels=True),
            "kit, plain": kit_session(labels=False),
        }
    if args.session:
        sessions = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in args.session}
    print("| system | session | budget | view | " + " | ".join(TYPES) + " |")
    print("| --- | --- | --- | --- |" + " --- |" * len(TYPES))
    for system, (name, session), share in itertools.product(
        leave_out_missing(args.system), sessions.items(), args.share
    ):
        held: dict[str, list[bool]] = defaultdict(list)
        found, size = await held_facts(session, share, system)
        for kind, is_held in found:
            held[kind].append(is_held)
        shares = " | ".join(f"{sum(held[kind]) / max(1, len(held[kind])):.0%}" for kind in TYPES)
        print(f"| {system} | {name} | {share:.0%} | {size:.0%} | {shares} |")


if __name__ == "__main__":
    asyncio.run(main())
