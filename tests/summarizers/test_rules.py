"""Notes without a model: what is told of a part, what is folded, what is told as missing, and laws."""

import re
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from context_compressor.messages.chat import from_openai
from context_compressor.messages.msg import Msg
from context_compressor.summarizers.rules.candidates import candidates_of
from context_compressor.summarizers.rules.choice import Worded
from context_compressor.summarizers.rules.lines import fold_stretches, kept, notes_by_rules, stretches_of
from context_compressor.summarizers.rules.pieces import head_of, split
from context_compressor.summarizers.rules.steps import Source
from context_compressor.tokens.tiktoken import TiktokenCounter
from examples import make_session
from tests.summarizers.support import assistant, call, result, user

counter = TiktokenCounter()
WORDS = ("apple", "birch", "cedar", "elm", "fir", "ginkgo", "hazel", "iris", "kauri", "larch", "oak", "pine")


def sources(messages: Sequence[Msg], first: int = 0) -> list[Source]:
    return [Source(place, f"k{place}", msg) for place, msg in enumerate(messages, first)]


def notes(*messages: Msg, room: int = 600, parts: int = 1, language: str = "en") -> list[str]:
    """Return the lines that rules write of messages which left in so many parts."""
    size = -(-len(messages) // parts)
    candidates: list[Worded] = []
    told = []
    for first in range(0, len(messages), size):
        part = sources(messages[first : first + size], first)
        candidates = list(kept([*candidates, *candidates_of(part, counter)], room))
        told += stretches_of(part)

    def tokens_of(lines: Sequence[tuple[str, str]]) -> int:
        return counter.count_text("\n".join(line for _, line in lines))

    lines = notes_by_rules(candidates, room_tokens=room, tokens_of=tokens_of, told=told, language=language)
    assert tokens_of(lines) <= room
    return [line for _, line in lines]


def test_a_request_its_work_and_its_result_stand_in_order():
    assert notes(
        user("Please fix parse_date in src/dates.py."),
        call("edit", "1", path="src/dates.py", old="return strptime(v)\n", new="return fromisoformat(v)\n"),
        result("1", "ok"),
        assistant("It reads ISO dates now."),
    ) == [
        'User: "Please fix parse_date in src/dates.py."',
        "edit src/dates.py → ok | + return fromisoformat(v)",
        "Agent: It reads ISO dates now.",
    ]


def test_a_failure_is_told_with_its_exact_error_in_the_language_of_the_conversation():
    assert notes(
        user("请运行测试。"),
        call("bash", "1", command="pytest tests/dates"),
        result("1", "collected 3 items\nValueError: 缺少时区 +08:00"),
        language="zh",
    ) == ['用户: "请运行测试。"', "bash pytest tests/dates 失败 → ValueError: 缺少时区 +08:00"]


def test_of_a_plan_the_newest_state_is_told():
    def plan(id: str, status: str) -> list[Msg]:
        return [call("todo", id, todos=[{"content": "write tests", "status": status}]), result(id, "ok")]

    assert notes(user("Go on."), *plan("1", "pending"), *plan("2", "completed"), parts=3)[-1] == (
        "completed: write tests"
    )


@pytest.mark.parametrize("room", [1_333, 2_666, 5_333])
@pytest.mark.parametrize("parts", [1, 8])
def test_one_error_among_the_logs_of_40_hosts_is_told(room: int, parts: int, monkeypatch: pytest.MonkeyPatch):
    for host in range(0, 40, 7):
        monkeypatch.setattr(make_session, "BROKEN_HOST", host)
        lines = notes(*from_openai(make_session.make_session())[2:], room=room, parts=parts)
        told = [line for line in lines if "ERROR" in line]
        assert len(told) == 1
        assert told[0].startswith(f"read_log {host} ")
        assert told[0].endswith("order 8f3a-77 dropped: disk quota exceeded on /var/spool")
        assert sum(line.startswith("39 × read_log ") for line in lines) == 1


def test_what_is_not_told_is_counted_where_it_is_missing():
    messages = [
        user(f"Question {n} about the {word} tariff of branch {n * 37}?") for n, word in enumerate(WORDS)
    ]
    lines = notes(*messages, room=120)
    gaps = [int(found[1]) for line in lines if (found := re.fullmatch(r"… (\d+) messages?", line))]
    told = sum(line.startswith("User: ") for line in lines)
    assert 0 < told < len(messages)
    assert sum(gaps) + told == len(messages)


def test_a_counter_for_which_lines_cost_nothing_gets_notes():
    candidates = candidates_of(sources([user(f"The {word} costs 5 euros.") for word in WORDS]), counter)
    assert notes_by_rules(candidates, room_tokens=40, tokens_of=lambda lines: 0, told=())


def test_stretches_stay_few_and_count_every_message():
    told = stretches_of(sources([user(f"message {n}") for n in range(2_000)]))
    few = fold_stretches(told)
    assert len(few) <= 256
    assert sum((Counter(dict(stretch.kinds)) for stretch in few), Counter()) == {"user": 2_000}


def test_older_candidates_fill_at_most_four_times_the_room():
    parts = [sources([user(f"{word} costs {n} euros in {word}-{n}")], n) for n, word in enumerate(WORDS * 40)]
    candidates = [one for part in parts for one in candidates_of(part, counter)]
    assert sum(known.one.tokens for known in kept(candidates, 600)) <= 2_400


SENTENCES = st.lists(
    st.sampled_from(
        [
            "Never deploy on Friday.",
            "The budget is 4,200 EUR for host db-7.",
            "Please move invoices_2024.csv to archive/old.",
            "我住在上海，每周三开会。",
            "Where is the log?",
        ]
    ),
    min_size=1,
    max_size=4,
)


@settings(max_examples=40, deadline=None)
@given(
    spoken=st.lists(SENTENCES, min_size=1, max_size=8), printed=st.lists(st.text(max_size=300), min_size=16)
)
def test_which_words_of_users_are_kept_does_not_depend_on_what_tools_print(spoken, printed):
    """Law 13."""

    def kept_of(outputs: Sequence[str]) -> list[str]:
        messages: list[Msg] = []
        for n, said in enumerate(spoken):
            messages += [user(" ".join(said)), call("run", str(n), n=n), result(str(n), outputs[n])]
        return [line for line in notes(*messages, room=200, parts=3) if line.startswith("User: ")]

    assert kept_of(printed[:8]) == kept_of(printed[8:])


@given(st.text(alphabet="ab1 ,.;，。中文", max_size=400), st.integers(4, 60))
def test_no_quote_ends_within_a_word_or_number(text: str, most: int):
    line = " ".join(text.split())
    words = set(re.findall(r"[ab1]+", line))
    for piece in [*split(line, most), head_of(line, most).removesuffix("…")]:
        assert len(piece) <= most
        assert set(re.findall(r"[ab1]+", piece)) <= words


def test_of_a_stack_the_line_is_told_that_says_what_was_raised():
    stack = 'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\n    get()\n'
    [line] = notes(
        call("bash", "1", cmd="python a.py"), result("1", f"{stack}models.Missing: no permission 7\n$ \nbye")
    )
    assert line == "bash python a.py FAILED → models.Missing: no permission 7"


def test_what_is_said_or_printed_again_and_again_is_told_once():
    said = [
        m
        for n in range(9)
        for m in (call("run", str(n), n=n * n), result(str(n), f"[done]\n{WORDS[n]} ripe"))
    ]
    told = "\n".join(notes(*said, *[assistant("On my way."), user("Go on with the work.")] * 3))
    assert [told.count(words) for words in ("[done]", "Go on with the work.", "On my way.")] == [0, 1, 1]
    assert all(f"{WORDS[n]} ripe" in told for n in range(9))


@pytest.mark.parametrize("pieces", [9, 90])
def test_the_room_is_filled_where_there_is_more_to_tell(pieces: int):
    shelves = [f"{WORDS[n % 12]}{'x' * (n // 12)} costs {n * n} euros" for n in range(pieces * 4)]
    page = "\n".join(shelves)
    lines = notes(call("visit", "1", url="https://a.example"), result("1", page), room=pieces * 10)
    assert counter.count_text("\n".join(lines)) > 0.8 * pieces * 10
