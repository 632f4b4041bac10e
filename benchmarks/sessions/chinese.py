"""Chinese documents: contracts, minutes and notices of a building site that contradict each other."""

from __future__ import annotations

import random
import re
from typing import NamedTuple

from context_compressor.lab.commands.demo_agent import Call

from .files import Files, hits_of
from .recorder import Recorded, Recorder, listed

SYSTEM = (
    "你是项目部的文档助理。先读原文再下结论，引用合同编号、条款和文件路径；发现不一致就在台账中登记，只在用户同意时修改文件。"
    "可用工具：list_files、read_file、grep、edit_file、write_file。"
)
FIRMS = ("华辰建材", "东岭机电", "瑞和物流", "海川设备", "恒泰钢构", "明远监理", "佳信劳务", "金桥电缆")
GOODS = ("镀锌钢管", "阻燃电缆", "消防水泵", "铝合金门窗", "预制楼梯", "配电柜", "保温板", "外墙涂料")
PLACES = ("一号楼地下室", "二号楼三层", "东侧堆场", "设备机房", "南门仓库", "屋面工程段")
PEOPLE = ("王建国", "李秀兰", "陈志强", "刘敏", "赵晓东", "周雪梅", "孙立平", "吴丽华")
CLAUSES = (
    "乙方应当在交货前三个工作日内书面通知甲方，并提供出厂检验报告、材质证明书及装箱清单。",
    "货物运抵{place}后，由双方代表共同清点并签署验收单，数量短缺的由乙方在五日内补足。",
    "质量保证期自最终验收合格之日起计算，期限为{months}个月；保证期内的维修费用由乙方承担。",
    "任何一方因不可抗力不能履行合同的，应当在四十八小时内通知对方，并在十五日内提交证明文件。",
    "乙方逾期交货的，每逾期一日按合同总价的千分之{rate}支付违约金，累计不超过合同总价的百分之五。",
    "未经甲方书面同意，乙方不得将本合同项下的权利义务全部或者部分转让给第三方。",
    "双方往来文件以书面形式为准，联系人为甲方{person}、乙方{other}，变更联系人应提前通知。",
    "因本合同发生争议的，双方应当协商解决；协商不成的，提交项目所在地人民法院诉讼解决。",
    "包装应当适合长途运输，具备防潮、防锈、防震措施，因包装不当造成的损失由乙方负责。",
    "乙方现场作业人员应当遵守安全生产规定，佩戴劳动防护用品，并接受甲方的安全教育。",
)


class Contract(NamedTuple):
    """What a contract says, and what the minutes make of it."""

    number: str
    firm: str
    goods: str
    price: int
    minuted_price: int
    due: str
    minuted_due: str
    batch: str

    @property
    def path(self) -> str:
        return f"合同/{self.number}.md"

    @property
    def minutes_path(self) -> str:
        return f"会议纪要/{self.number[3:]}-例会.md"


def make_contracts(rng: random.Random, count: int) -> list[Contract]:
    contracts = []
    for number in range(count):
        price = rng.randint(180, 9_600) * 100
        due = f"2025年{rng.randint(3, 11)}月{rng.randint(1, 28)}日"
        wrong_price = price + rng.choice((1, -1)) * 90 * 100 if number % 2 == 0 else price
        wrong_due = f"2025年12月{rng.randint(1, 28)}日" if number % 2 else due
        contracts.append(
            Contract(
                f"HT-2025-{rng.randint(1, 9)}{number:03}",
                rng.choice(FIRMS),
                rng.choice(GOODS),
                price,
                wrong_price,
                due,
                wrong_due,
                f"PC{rng.randint(100000, 999999)}",
            )
        )
    return contracts


def make_documents(rng: random.Random, contracts: list[Contract], clauses: int) -> dict[str, str]:
    """Return the documents by path."""

    def clause() -> str:
        return rng.choice(CLAUSES).format(
            place=rng.choice(PLACES),
            months=rng.choice((12, 18, 24)),
            rate=rng.randint(1, 5),
            person=rng.choice(PEOPLE),
            other=rng.choice(PEOPLE),
        )

    texts = {}
    for one in contracts:
        head = [f"# 采购合同 {one.number}", f"甲方：北岸新区项目部　乙方：{one.firm}", ""]
        points = [
            f"采购内容：{one.goods}，批次号 {one.batch}，数量 {rng.randint(20, 900)} 件。",
            f"合同总价：人民币 {one.price} 元，含税。",
            f"交货日期：{one.due}前，地点为{rng.choice(PLACES)}。",
            *(clause() for _ in range(clauses)),
        ]
        texts[one.path] = "\n".join(
            [*head, *(f"第{number}条 {point}" for number, point in enumerate(points, 1))]
        )
        talk = [
            f"# 例会纪要（{one.number}）", f"主持：{rng.choice(PEOPLE)}　记录：{rng.choice(PEOPLE)}", "",
            f"1. {one.firm}汇报{one.goods}生产情况，批次 {one.batch} 已排产。",
            f"2. 会议确认总价 {one.minuted_price} 元，交货日期为{one.minuted_due}。",
            *(f"{number}. {rng.choice(PEOPLE)}提出：{clause()}" for number in range(3, 3 + clauses // 2)),
        ]  # fmt: skip
        texts[one.minutes_path] = "\n".join(talk)
    for number in range(len(contracts) // 2):
        one = contracts[number * 2]
        rows = [f"{rng.choice(PLACES)}：{clause()}" for _ in range(clauses)]
        texts[f"通知/TZ-{number:03}.md"] = "\n".join([f"# 关于 {one.number} 到货安排的通知", *rows])
    return texts


class ChineseSession:
    """Contracts are held against minutes, one after the other."""

    def __init__(self, max_tokens: int, seed: int) -> None:
        self.rng = random.Random(seed)
        is_small = max_tokens < 20_000
        self.contracts = make_contracts(self.rng, 12 if is_small else 60)
        self.files = Files(make_documents(self.rng, self.contracts, 8 if is_small else 26))
        self.agent = Recorder(self.files, SYSTEM, max_tokens)
        self.done: list[Contract] = []

    def record(self) -> Recorded:
        agent = self.agent
        agent.user(
            "月底要付款了。请逐份核对合同与例会纪要中的总价和交货日期，把不一致的地方记到“台账.md”，纪要写错的地方直接改正，"
            "合同原文不要动。金额一律写不含税价格以外的含税总价，未经郑凯签字不得对外发函。付款日是 28 日。"
        )
        agent.plant(
            "goal", "用户要求核对什么，结果记在哪里？", "核对合同与纪要的总价和交货日期，记到台账.md",
            ("总价和交货日期", "总价、交货日期"), "台账",
        )  # fmt: skip
        agent.plant("constraint", "对外发函有什么条件？", "须经郑凯签字", "发函", "郑凯")
        agent.plant(
            "constraint", "哪些文件不能改？", "合同原文", "合同原文", ("不要动", "不得", "不能", "不改")
        )
        self._plan_payment("28")
        agent.act(
            "计划：一、看目录；二、逐份对照合同与纪要；三、登记台账并改正纪要；四、汇总。先看目录。",
            ("list_files", {}),
        )
        for number, contract in enumerate(self.contracts):
            if agent.is_full and number:
                break
            self._compare(contract, number)
            if number % 4 == 3:
                self._asked_back()
            if number == 3:
                agent.user("付款日提前到 25 日，请继续。")
                self._plan_payment("25")
        agent.user("可以了。请把结论写成给财务的说明，注明编号和文件。")
        agent.one("先读一遍台账，以免出错。", "read_file", path="台账.md")
        agent.say(f"核对结果如下：\n{listed(agent.findings)}")
        return agent.recorded()

    def _plan_payment(self, day: str) -> None:
        ways = [f"付款日{verb}{day} 日" for verb in ("是 ", "提前到 ", "：", "为 ")]
        self.agent.plant("value", "付款日是哪一天？", f"{day} 日", ways, about="payment")

    def _compare(self, one: Contract, number: int) -> None:
        agent = self.agent
        calls: list[Call] = [
            ("read_file", {"path": one.path}),
            ("grep", {"pattern": one.number, "limit": 20}),
        ]
        _, found = agent.act(f"下一份：{one.number}（第 {number + 1} 份）。", *calls)
        if number % 5 == 0:
            wrong = f"会议纪要/{one.number}.md"
            error = agent.one("对应的纪要。", "read_file", path=wrong)
            agent.one(
                f"{error.split(': ')[1]} 不存在，看看纪要是怎样命名的。", "list_files", folder="会议纪要/"
            )
            agent.plant("failure", f"读取 {wrong} 结果如何？", error, wrong, ("no such file", "不存在"))
        minutes = next(path for path, _, _ in hits_of(found) if path.startswith("会议纪要/"))
        text = agent.one(f"{one.firm}，批次 {one.batch}。再看 {minutes}。", "read_file", path=minutes)
        said = re.findall(r"会议确认总价 (\d+) 元，交货日期为([^。]+)。", text)[0]
        wrong = f"会议确认总价 {said[0]} 元，交货日期为{said[1]}。"
        right = f"会议确认总价 {one.price} 元，交货日期为{one.due}。"
        what = (
            f"总价 {said[0]} 元应为 {one.price} 元"
            if said[0] != str(one.price)
            else f"交货日期{said[1]}应为{one.due}"
        )
        about = f"{one.number}（{one.firm}，{one.goods}，批次 {one.batch}）"
        finding = f"{about}：{minutes} 中{what}，已按 {one.path} 改正"
        if number % 3 == 0:
            agent.one(f"不一致：{what}。", "edit_file", path=minutes, old=wrong.replace("，", ","), new=right)
            agent.one("原文用的是全角逗号，重试。", "edit_file", path=minutes, old=wrong, new=right)
        else:
            agent.one(f"不一致：{what}。", "edit_file", path=minutes, old=wrong, new=right)
        book = self.files.texts.get("台账.md", "# 核对台账")
        agent.findings.append(finding)
        self.done.append(one)
        agent.act(
            f"改好了，登记 {one.number}，并复核一遍。",
            ("write_file", {"path": "台账.md", "text": f"{book}\n- {finding}"}),
            ("grep", {"pattern": "会议确认总价", "path": minutes}),
        )
        new = str(one.price) if said[0] != str(one.price) else one.due
        agent.plant(
            "value",
            f"{one.number} 中纪要写错的内容应改为什么？",
            what,
            one.number,
            f"应为{' ' if new.isdigit() else ''}{new}",
        )
        agent.plant(
            "artifact", f"{one.number} 的供应商和批次号是什么？", about, one.number, one.firm, one.batch
        )
        agent.plant(
            "status",
            f"{minutes} 是否已改正？依据是什么？",
            f"已按 {one.path} 改正",
            minutes,
            f"已按 {one.path}",
        )

    def _asked_back(self) -> None:
        """Let the user come back to a contract from long ago."""
        agent, one = self.agent, self.done[self.rng.randrange(max(1, len(self.done) - 2))]
        nth = self.done.index(one) + 1
        agent.user(f"财务问：第 {nth} 份合同的批次号和质保条款是怎样写的？")
        found = agent.one(
            f"那是 {one.number}，批次 {one.batch}。", "grep", pattern="批次号|质量保证期", path=one.path
        )
        lines = "；".join(f"第 {line} 行“{text}”" for _, line, text in hits_of(found))
        agent.say(f"{one.path}：{lines} 接着核对下一份。")


def record(max_tokens: int, seed: int) -> Recorded:
    """Record a session over Chinese documents."""
    return ChineseSession(max_tokens, seed).record()
