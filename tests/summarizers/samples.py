"""Conversations that summaries in the tests are about, and good summaries of them. All invented."""

from __future__ import annotations

from context_compressor.messages.msg import Msg
from tests.summarizers.support import assistant, call, result, user

CODING: tuple[Msg, ...] = (
    user(
        "Please fix parse_date in src/utils/dates.py, it loses the time zone. Do not touch src/legacy/. "
        "Your request limit is 30 per minute, set in nginx.conf."
    ),
    call("read", "c1", path="src/utils/dates.py"),
    result("c1", "\n".join(f"{n}: value_{n} = parse(part, {n * 37})" for n in range(1, 120)), "read"),
    call(
        "edit", "c2", path="src/utils/dates.py", old="return naive", new="return naive.replace(tzinfo=zone)"
    ),
    result("c2", "1 replacement made", "edit"),
    call("bash", "c3", command="pytest -q tests/test_dates.py"),
    result(
        "c3",
        "2 failed, 41 passed in 3.62s\nTypeError: zone must be a tzinfo, not 'str' (src/utils/dates.py:88)\n"
        "requests.exceptions.ConnectionError: connection to api.example refused, request timed out",
        "bash",
    ),
    assistant(
        "The connection error comes from a test that needs the network; I am sorry about that. The server "
        "rejects tokens after 15 minutes, so login.tsx warns the user. We have a retry "
        "limit of 5 in client.py."
    ),
    user("Thank you. The 404 pages render from app/routes.py now? The model is unavailable in staging."),
    assistant("Yes: app/routes.py holds the route table, and rate limiting moved into middleware.py."),
)
SHOP: tuple[Msg, ...] = (
    user("Hi, I am Mei Lin. Order #W8841 arrived broken and I would like a refund, please."),
    call("get_order", "o1", order="#W8841"),
    result(
        "o1",
        '{"order": "#W8841", "customer": "Mei Lin", "total": 1249.50, "status": "delivered"}',
        "get_order",
    ),
    assistant("I can refund $1,249.50 to your card ending in 4417. Shall I go ahead?"),
    user("Yes, please proceed. Do not send the receipt to mei.old@example.com any more."),
    call("refund", "o2", order="#W8841", amount=1249.5),
    result("o2", "refund RF-20933 accepted on 2026-03-05 09:05", "refund"),
    assistant("Done: refund RF-20933 of $1,249.50 was accepted. Sorry for the trouble."),
    user("Thanks! I also wonder whether the green kettle is back in stock."),
)
CHINESE: tuple[Msg, ...] = (
    user("请帮我查询订单 DD2025 的物流，并且不要联系客户王芳。退款金额不能超过 128.00 元。"),
    call("query_order", "q1", order="DD2025"),
    result(
        "q1",
        "订单 DD2025 已发货，快递单号 SF1029384756，预计 3月11日 到达。E1032 网络异常已关闭。",
        "query_order",
    ),
    assistant(
        "订单 DD2025 已发货，由顺丰承运。系统请求超时一次，重试三次后成功。用户没有修改 src 目录的权限。"
    ),
    user("好的，谢谢。另外请把退款 W1 改为换货，这个问题不能复现就关闭。"),
)
GERMAN: tuple[Msg, ...] = (
    user("Bitte prüfe die Rechnung RE-2026-117 von Kunde Bergmann. Es darf keine Mahnung verschickt werden."),
    call("rechnung", "r1", nummer="RE-2026-117"),
    result("r1", "RE-2026-117: Betrag 4.318,20 EUR, offen seit 14.02.2026, Kunde Bergmann GmbH", "rechnung"),
    assistant("Die Rechnung ist offen. Leider fehlt der Lieferschein LS-5521; ich habe das Lager gefragt."),
)
GOOD = {
    "coding": (
        CODING,
        "## Goal\n- Fix parse_date in src/utils/dates.py: it loses the time zone\n## User "
        "instructions\n- Do not touch "
        "src/legacy/\n## Done\n- src/utils/dates.py: `return naive` became `return "
        "naive.replace(tzinfo=zone)`\n"
        '## Failures\n- pytest -q tests/test_dates.py: 2 failed, 41 passed; "TypeError: '
        "zone must be a tzinfo, not "
        "'str'\" at dates.py line 88\n## State and next steps\n- pass a tzinfo as zone",
    ),
    "coding, without form": (
        CODING,
        "The user wants parse_date in src/utils/dates.py to keep the time zone. The edit "
        "was made, and pytest says 2 "
        "failed, 41 passed in 3.62 s, because zone is a str. Nothing in src/legacy was touched.",
    ),
    "shop": (
        SHOP,
        "## Done\n- Mei Lin, order W8841 (broken on arrival): refund RF-20933 of $1249.50 "
        "accepted on 2026-03-05 at "
        "9:05, card ending 4417\n## User instructions\n- No receipt to "
        "mei.old@example.com\n## State and next steps\n"
        "- Mei Lin asks whether the green kettle is in stock",
    ),
    "shop, without form": (
        SHOP,
        "Mei Lin's order #W8841 arrived broken; the refund of $1,249.50 was accepted as RF-20933.",
    ),
    "shop, in English prose without names": (
        SHOP,
        "The customer got her refund for the broken order and now wonders about the green kettle in stock.",
    ),
    "chinese": (
        CHINESE,
        "## 目标\n- 查询订单 DD2025 的物流\n## 用户的指示\n- 不要联系客户王芳；退款金额不能超过 128 元\n"
        "## 已完成\n- 订单 DD2025：已发货，快递单号 SF1029384756，预计3月11日到达\n## "
        "现状与下一步\n- 退款 W1 改为换货",
    ),
    "chinese, without form": (CHINESE, "用户查询订单 DD2025，已发货；退款 W1 改为换货，不要联系客户王芳。"),
    "german": (
        GERMAN,
        "## Ziel\n- Rechnung RE-2026-117 von Kunde Bergmann prüfen\n## Stand\n- 4.318,20 "
        "EUR offen seit 14.2.2026; keine "
        "Mahnung; der Lieferschein LS-5521 fehlt",
    ),
    "german, without form": (
        GERMAN,
        "Der Nutzer lässt die Rechnung von Kunde Bergmann prüfen. Sie ist offen, der Lieferschein fehlt.",
    ),
}
