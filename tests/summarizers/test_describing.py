import pytest

from context_compressor.summarizers.extracts.index import Index
from context_compressor.summarizers.identifiers.describing import describe
from context_compressor.summarizers.identifiers.ranking import Source, rank_identifiers


@pytest.mark.parametrize(
    ("kind", "text", "token", "described"),
    [
        ("result", '{"aCamelKeyWhichGoesOnAndOnForLong": "x_77"}', "x_77", "x_77"),
        ("result", '{"order_id": "#W123456", "status": "open"}', "#W123456", "order_id #W123456"),
        ("result", "12: def parse_date(value):", "parse_date", "def parse_date"),
        ("result", "class DateParser:\n    x", "DateParser", "class DateParser"),
        ("call", "path: src/a.py", "src/a.py", "path src/a.py"),
        ("result", "a = b\nparse_date(1)", "parse_date", "parse_date"),
        ("result", "quota exceeded\npart_0.py", "part_0.py", "part_0.py"),
        ("user", "I am done, \nx_1000.py", "x_1000.py", "x_1000.py"),
        ("user", "please cancel reservation 3FRNFB now", "3FRNFB", "please cancel reservation 3FRNFB"),
        ("user", "3FRNFB is the one", "3FRNFB", "3FRNFB is the"),
        ("result", "in the x_y", "x_y", "x_y"),
        ("result", "订单号：A-20931", "A-20931", "订单号 A-20931"),
        ("result", '{"상품ID": "P33470549"}', "P33470549", "상품ID P33470549"),
        ("result", "请看订单ID：A-20931", "A-20931", "请看订单ID A-20931"),
        ("user", "neue Größe_3 für Bestellung KD-48213", "KD-48213", "für Bestellung KD-48213"),
        ("result", "Größe KD-48213", "KD-48213", "Größe KD-48213"),
        ("result", "заказ: 48213-77", "48213-77", "заказ 48213-77"),
        ("user", "주문번호 ORD-2024-001", "ORD-2024-001", "주문번호 ORD-2024-001"),
        ("user", "it costs $1,000-1,500 now", "000-1", "it costs $1,000-1,500"),
        ("result", "battery: 5,500mAh", "500mAh", "battery 5,500mAh"),
        ("result", "7,100234,200-300", "100234", "100234"),
        ("result", "x1000-1 and y", "000-1", "000-1"),
        ("assistant", "modify `parse_date` first", "parse_date", "modify parse_date"),
        ("assistant", '{"price": 54.85}', "54.85", "price: 54.85"),
        ("user", "use fixed rates: CHF 1.0642", "1.0642", "fixed rates: CHF 1.0642"),
        ("user", "lunch at T’s TanTan", "TanTan", "lunch at T’s TanTan"),
        ("user", "deliver it 15:00-17:00 please", "00-17", "deliver it 15:00-17:00"),
        ("user", "共1,000-1,500元", "000-1", "共 1,000-1,500"),
        ("result", "at 09:41:39.542Z", "39.542Z", "09:41:39.542Z"),
        ("result", '"end": "2026-06-12T11:15:00+02:00"', "2026-06-12T11", "end 2026-06-12T11:15:00+02:00"),
        ("assistant", "it costs 87 USD/kWh today", "USD/kWh", "it costs 87 USD/kWh"),
        ("assistant", "on Friday 12 June, 10:30-11:15", "30-11", "Friday 12 June, 10:30-11:15"),
        ("assistant", "(item 6777246137, $918.92)", "918.92", "$918.92"),
        ("result", "StaticText '€1,299.50'", "299.50", "StaticText €1,299.50"),
        ("assistant", "总价864,000.00元", "000.00", "总价 864,000.00"),
        ("result", '{"رقم_الطلب": "SA-10293"}', "SA-10293", "رقم_الطلب SA-10293"),
        ("result", "номер_заказа: ЗК-12345", "ЗК-12345", "номер_заказа ЗК-12345"),
        ("result", "ग्राहक_संख्या: GH-9981", "GH-9981", "ग्राहक_संख्या GH-9981"),
        ("user", "तिवारी जी का ऑर्डर IN-12345", "IN-12345", "जी का ऑर्डर IN-12345"),
        ("user", "về đơn hàng số DH-123", "DH-123", "đơn hàng số DH-123"),
        ("result", "<電話番号>090-1234-5678</電話番号>", "090-1234-5678", "電話番号 090-1234-5678"),
        ("result", "Betrag 3.528,13 EUR", "3.528", "Betrag 3.528,13"),
        ("result", "<td>AB-1234</td>", "AB-1234", "AB-1234"),
        ("result", "phone: +84 905 123456", "+84 905 123456", "phone +84 905 123456"),
        ("assistant", "陈丽华（工号E20417）", "E20417", "工号 E20417"),
        ("result", "net_difference: -1204.37", "1204.37", "net_difference -1204.37"),
        ("result", '["fee","-152.24"]', "152.24", "-152.24"),
        ("result", "gap: ORD-12345", "ORD-12345", "gap ORD-12345"),
        ("result", "a - 12345", "12345", "12345"),
        ("result", "at 2025-03-04T10:11:00.873Z", "00.873Z", "2025-03-04T10:11:00.873Z"),
        ("result", "at 2025-03-27T19:45:00+01:00", "00+01", "2025-03-27T19:45:00+01:00"),
    ],
)
def test_a_word_beside_an_identifier_says_what_it_is(kind, text: str, token: str, described: str):
    assert str(describe(token, Source(kind, "label", text, 0.0))) == described


@pytest.mark.parametrize(
    ("text", "token", "described"),
    [
        ("image: ghcr.io/team/app:1.4.2", "ghcr.io/team/app", "image ghcr.io/team/app:1.4.2"),
        ("image: ghcr.io/team/app:1.4.2", "1.4.2", "image ghcr.io/team/app:1.4.2"),
        ("at hub.local:5000/app@x", "hub.local", "hub.local:5000"),
        ("as arn:aws:iam::123456789012:role/Deploy.", "role/Deploy", "arn:aws:iam::123456789012:role/Deploy"),
        (
            "as arn:aws:iam::123456789012:role/Deploy.",
            "123456789012",
            "arn:aws:iam::123456789012:role/Deploy",
        ),
        ("id urn:isbn:0451450523", "0451450523", "urn:isbn:0451450523"),
        ("connect db-3.internal:5432 failed", "db-3.internal", "connect db-3.internal:5432"),
        ("on 10.0.0.12:8080", "10.0.0.12", "10.0.0.12:8080"),
        ("src/a/b.py:120:7: error", "src/a/b.py", "src/a/b.py:120:7"),
        ("git@github.com:org/repo.git", "org/repo.git", "git@github.com:org/repo.git"),
        ("tests/test_a.py::TestX::test_y[a-1] PASSED", "test_y", "tests/test_a.py::TestX::test_y[a-1]"),
        ('{"order_id":"W_1234"}', "W_1234", "order_id W_1234"),
        ("order_id:W_1234", "W_1234", "order_id W_1234"),
    ],
)
def test_what_colons_join_is_named_whole(text: str, token: str, described: str):
    assert str(describe(token, Source("result", "label", text, 0.0))) in (
        described,
        f"as {described}",
        f"id {described}",
    )


def test_the_parts_of_what_colons_join_are_not_named_again():
    sources = [Source("result", "run", "pulled ghcr.io/team/app:1.4.22 as sha_77", 1.0)]
    lines, _, complete = Index(sources, rank_identifiers(sources)[0]).lines((), 1_000)
    assert "".join(lines).count("1.4.22") == 1
    assert "sha_77" in lines[0]
    assert complete
