import pytest

from context_compressor.summarizers.identifiers.finding import count_identifiers, is_number
from context_compressor.summarizers.identifiers.ranking import Source, rank_identifiers


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("see src/utils/dates.py, line 42.", ["src/utils/dates.py"]),
        ("def parse_date(value): return self.cache", ["parse_date", "self.cache"]),
        (
            "order #W1234567 of mia_garcia_4516 (mia@example.com)",
            ["#W1234567", "mia_garcia_4516", "mia@example.com"],
        ),
        ("getOrderDetails, SQLCompiler and URLs", ["getOrderDetails", "SQLCompiler"]),
        ('"id": "credit_card_4065275"', ["credit_card_4065275"]),
        (
            "at https://docs.python.org/3/library/re.html#syntax.",
            ["https://docs.python.org/3/library/re.html#syntax"],
        ),
        ("in ./app/main.py and ../lib/x_y.py", ["app/main.py", "lib/x_y.py"]),
        ("订单号是A-20931，路径为/etc/hosts。", ["A-20931", "/etc/hosts"]),
        ("打开src/服务/订单.py，见`销售明细_v2.xlsx`：50行", ["src/服务/订单.py", "销售明细_v2.xlsx"]),
        (
            "合同/HT-2025-5001.md 29 lines，纪要/sub/notes_1.md；和/或",
            ["合同/HT-2025-5001.md", "纪要/sub/notes_1.md"],
        ),
        ("调用os.path.join，第1.a步，版本v2.0，和/或", ["os.path.join"]),
        ("Datei docs/Über_uns.md von müller@example.de", ["docs/Über_uns.md", "müller@example.de"]),
        ("файл отчёт_2024.xlsx на сервер-01.example.ru.", ["отчёт_2024.xlsx", "сервер-01.example.ru"]),
        ("to ann+invoices@example.com, +49", ["ann+invoices@example.com"]),
        ("naïve Größe über Straße, 3×4", []),
        ("plain words, Sentences. And so on... v1 a_b", []),
        (
            "33-from django.conf import x\n82-class Meta, a 2-digit year of 2024-q1",
            ["django.conf", "2024-q1"],
        ),
        (
            "https://example.org/a/b... or https://example.org/c...(cut), a_1__...__a_n, see lib/x_y...",
            ["lib/x_y"],
        ),
        ("<output>\\nNext</output>", []),
        ("Promise<OrderLine> of <app.Door object>", ["OrderLine", "app.Door"]),
        (
            r'{"\u91cd\u91cf": "\u7ea623.5kg", "\u5730\u5740": "\u4e3a192.168.1.15"}',
            ["23.5kg", "192.168.1.15"],
        ),
        (
            r"D:\Alte Pläne (2)\new\test_1.pdf, c:\tmp\a.txt. At E:\Human …",
            [r"D:\Alte Pläne (2)\new\test_1.pdf", r"c:\tmp\a.txt"],
        ),
        (r'{"at": "C:\\new\\a.txt\nC:\\b.txt"}', [r"C:\new\a.txt", r"C:\b.txt"]),
        (
            r"copy \\fs-01\Team Files\plan.xlsx to \\nas.local\x1",
            [r"\\fs-01\Team Files\plan.xlsx", r"\\nas.local\x1"],
        ),
        (r'{"at": "\\\\fs-01\\team\\plan.xlsx"}', [r"\\fs-01\team\plan.xlsx"]),
        (
            r"src\app\main.cs(12,3), .\tests\a_test.cs and ..\lib\x.dll",
            [r"src\app\main.cs", r".\tests\a_test.cs", r"..\lib\x.dll"],
        ),
        (r'{"path": "src\\app\\main.cs"}', [r"src\app\main.cs"]),
        (
            r"import os.path\nself.run_it\tand r'^\w+\.py' in \section{x} of CORP\jdoe",
            ["os.path", "self.run_it"],
        ),
        (r"src\core\main_x.py, Note:\nNext_step", ["Next_step", r"src\core\main_x.py"]),
        ("read src/long_na…, then order_1", ["order_1"]),
        ("số_điện_thoại trong Đặng_Ngọc.xlsx", ["số_điện_thoại", "Đặng_Ngọc.xlsx"]),
        ("Bu\u0308ro_Pla\u0308ne.pdf und Fu\u0308\u00dfe", ["Bu\u0308ro_Pla\u0308ne.pdf"]),
        ("call +84 905 123456 or +1 (415) 555-0132", ["+84 905 123456", "+1 (415) 555-0132"]),
        ("x = a +1 2 3 and +12 345", []),
        ("于2024年10月1日付¥16,123.50元，年底", ["2024年10月1日", "16,123.50元"]),
        ("2025년 8월 4일까지 8,017원, 3円", ["2025년 8월 4일", "8,017원"]),
        (
            "보고서_2024.xlsx와 レポート_最終.docx, عقد_12.pdf",
            ["보고서_2024.xlsx", "レポート_最終.docx", "عقد_12.pdf"],
        ),
        ("见2024年5月1日报告.pdf", ["见2024年5月1日报告.pdf"]),
        (
            "due March 4, 2025, sent 4 Mar 2025 10:15 (Tue Mar  4 10:15:00 UTC 2025), the 4th of May 1999",
            ["March 4, 2025", "4 Mar 2025 10:15", "Mar  4 10:15:00 UTC 2025", "4th of May 1999"],
        ),
        ("we may 20 2025 times, in March 2025, 3 Marches 2025", []),
        ("3.528,13 €, 35 450,46 zł, 12 000 ₽", ["3.528,13 €", "35 450,46 zł", "12 000 ₽"]),
        ("IBAN: DE26 8794 3526 4923 5174 16 ab", ["DE26 8794 3526 4923 5174 16"]),
        ("x" * 60 + "1" * 61, []),
        ("ctx://0123456789abcdef", []),
        ("MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj", []),
        ("/Users/Ann3/Documents/Projects/Workspace2024/Repository/Source/Main1", None),
        ("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", None),
        ("AbstractSingletonProxyFactoryBeanConfigurationResolverStrategyBase2", None),
    ],
)
def test_identifiers_are_found_whole(text: str, found: list[str] | None):
    assert list(count_identifiers(text)) == ([text] if found is None else found)


def test_a_megabyte_without_a_break_takes_no_time():
    """Quadratic scanning would take minutes."""
    for data in ("a" * 2**20, "aB" * 2**19, "a-" * 2**19, "/" * 2**20, "0" * 2**20, "https://" + "a" * 2**20):
        assert count_identifiers(data) == {}
    for data in ("文", "文.", "文_", "文1", "a文", "文/", "a/文", "文.a1"):
        assert count_identifiers(data * 2**18) == {}
    for data in ("ก", "กa.", "한_", "가1", "1 000 ", "1.000.", "€1"):
        assert count_identifiers("€" + data * 2**18) == {}
    for data in ("+1 ", "1年", "1月", "1,000", "1,000,", "円1"):
        assert len(count_identifiers("+円" + data * 2**18)) <= 1
    for data in ("C:\\", "C:\\a ", "C:\\a b", "C:", "a b ", "a_"):
        assert len(count_identifiers(data * 2**18 + ":\\ …")) <= 1


@pytest.mark.parametrize(
    "token", ["5m20s", "3d4h", "150ms", "512Mi", "1.5GB", "2024年5月1日", "4 Mar 2025", "+84 905 123"]
)
def test_durations_and_sizes_are_numbers(token: str):
    assert is_number(token)


@pytest.mark.parametrize("token", ["v1.2.3", "a1b2c3", "5c98a2", "3des4", "12345d6e"])
def test_what_begins_with_a_digit_may_be_a_name(token: str):
    assert not is_number(token)


def test_use_in_calls_repetition_and_recency_speak_for_an_identifier():
    noise = " ".join(f"noise_{n}" for n in range(100))
    ranked, _ = rank_identifiers(
        [
            Source("result", "ls", f"{noise} used_name", 0.0),
            Source("call", "read", "used_name", 0.5),
            Source("result", "ls", "printed_again", 0.6),
            Source("result", "ls", "printed_again printed_once", 0.9),
        ]
    )
    order = [identifier.text for identifier in ranked]
    assert order[:3] == ["used_name", "printed_again", "printed_once"]
