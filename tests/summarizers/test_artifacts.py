"""The index of artifacts: what no summary may forget."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from context_compressor.messages.msg import Msg
from context_compressor.summarizers.extracts.artifacts import index_artifacts
from context_compressor.summarizers.identifiers.finding import find_identifiers
from context_compressor.summarizers.identifiers.uses import Names, Uses
from tests.summarizers.support import PieceCounter, assistant, call, result, segment, user

COUNTER = PieceCounter()
SESSION = [
    user("Please fix parse_date in src/utils/dates.py. You must never touch src/legacy.py."),
    call("read_file", "1", path="src/utils/dates.py"),
    result("1", "def parse_date(value):\n    return strptime(value, ISO_FORMAT)\n# see issue DATE-1432"),
    call("bash", "2", command="pytest tests/test_dates.py"),
    result("2", "E   ValueError: bad isoformat\n1 failed, 3 passed in 0.21s"),
    assistant("I will look at https://docs.example.org/dates next."),
]


def index_of(*messages, max_tokens: int = 400, **kw) -> str:
    return "\n".join(index_artifacts(messages or SESSION, max_tokens, COUNTER, **kw).lines)


def lines_of(*segments: str) -> list[tuple[str, frozenset[str]]]:
    return [(line, find_identifiers(line)) for segment in segments for line in segment.split("\n")]


def test_files_ids_addresses_outcomes_and_wishes_are_named() -> None:
    index = index_of()
    for name in ("src/utils/dates.py", "ISO_FORMAT", "DATE-1432", "https://docs.example.org/dates"):
        assert name in index
    assert "bash: pytest tests/test_dates.py → 1 failed, 3 passed in 0.21s" in index
    assert "user: Please fix parse_date" in index


def test_of_a_plan_that_is_handed_again_and_again_only_the_newest_state_is_told() -> None:
    plans = [
        user(f"Work by this plan. [{first}] Collect all the sources [{then}] Write the report")
        for first, then in ((" ", " "), ("x", " "), ("x", "x"))
    ]
    index = index_of(*plans)
    assert index == "user: Work by this plan. [x] Collect all the sources [x] Write the report"


def test_what_the_system_says_later_is_not_called_the_users() -> None:
    later = Msg("system", "No files have been uploaded yet.", "system")
    assert index_of(later) == "system: No files have been uploaded yet."


RULES = [f"{name} sits at table {n}, by the door." for n, name in enumerate(("Ann", "Ben", "Eva", "Joe"))]
ASKED = "What does it cost then, and who has to bring it there?"


def talk() -> list[Msg]:
    """A talk in which the assistant names far more than the user decides."""
    messages: list[Msg] = []
    for n, rule in enumerate(RULES):
        named = " ".join(f"It would be {n}{i}.5 euros at plan_{n}{i}." for i in range(20))
        messages += [user(rule), assistant(named), user(ASKED.replace("it", f"no. {n}")), assistant(named)]
    return messages


def test_of_a_talk_what_users_said_is_kept_before_what_was_named() -> None:
    lines = index_of(*talk(), max_tokens=160).splitlines()
    assert [line for line in lines if "table" in line] == [f"user: {rule}" for rule in RULES]
    # Questions were answered: they take no more room than beside calls.
    assert sum(line.endswith("?") for line in lines) < len(RULES)
    called = [call("look", "1", at="plan_00"), result("1", "free")]
    lines = index_of(*talk(), *called * 3, max_tokens=160).splitlines()
    assert sum("table" in line for line in lines) < len(RULES)


def test_of_a_talk_what_users_agreed_to_is_kept() -> None:
    """What the assistant proposed and the user only said yes to stood in no index."""
    asked = "Shall we sleep at Ridge House, which has room for all of us and no stairs?"
    lines = index_of(*talk(), assistant(asked), user("Yes."), *talk(), max_tokens=200).splitlines()
    assert f"user: Yes. (asked: “{asked}”)" in lines


def test_of_a_talk_what_asks_to_be_told_something_gives_way_to_what_users_said() -> None:
    """'Please tell me more' was taken for a wish that shall hold, and crowded out what users told."""
    asked = [user(f"Could you please explain number {n} in a bit more detail, please?") for n in range(20)]
    lines = index_of(*talk(), *asked, max_tokens=160).splitlines()
    assert [line for line in lines if "table" in line] == [f"user: {rule}" for rule in RULES]


def test_of_a_talk_what_is_told_beside_a_question_outweighs_mere_questions() -> None:
    """What a message told before it ended with a question was weighed as the question."""
    told = "We moved to 19 Mill Lane. What does that mean for the seats?"
    asked = [user(f"What does it cost at no. {n} then, and who brings it there?") for n in range(20)]
    assert f"user: {told}" in index_of(user(told), assistant("Fine."), *asked, max_tokens=100).splitlines()


def test_of_a_talk_what_users_said_outlasts_merges() -> None:
    merged = index_of(*talk(), max_tokens=160)
    for _ in range(3):
        earlier = segment("[Summary by the memory.]\n## Index\n- " + merged.replace("\n", "\n- "))
        merged = index_of(earlier, *talk()[1:4], max_tokens=160)
    assert all(f"user: {rule}" in merged for rule in RULES)


WISHES = [
    "Keep the old entry point for reference; put yours into main_new.py.",
    "Test sessions from end to end only, never with mocks.",
    "Call it rpc-mode wherever it is shown to anyone.",
]


def test_what_users_asked_for_in_the_midst_of_the_work_outlasts_merges() -> None:
    def work(n: int) -> list[Msg]:
        code = "\n".join(f"def load_{n}_{i}(key_{n}_{i}): ..." for i in range(60))
        calls = [call("read", f"{n}{i}", path=f"src/module_{n}_{i}.py") for i in range(3)]
        return [m for i, read in enumerate(calls) for m in (read, result(f"{n}{i}", code))]

    merged = index_of(*(m for n, wish in enumerate(WISHES) for m in (user(wish), *work(n))), max_tokens=420)
    for n in range(3, 7):
        assert [line for line in merged.splitlines() if line.startswith("user: ")] == [
            f"user: {wish}" for wish in WISHES
        ]
        earlier = segment("[Summary by the memory.]\n## Index\n- " + merged.replace("\n", "\n- "))
        merged = index_of(earlier, *work(n), max_tokens=420)


def test_questions_and_calls_have_none_of_the_room_that_is_kept_for_wishes() -> None:
    done = [m for n in range(40) for m in (call("count", f"{n}", of=f"t_{n}"), result(f"{n}", f"{n}17 rows"))]
    question, wish = (
        "has how many rows by now, and how many will it have?",
        "shall never be written to again.",
    )
    asked, wished = (
        index_of(*(user(f"Table_{n} of the warehouse {end}") for n in range(40)), *done, max_tokens=1200)
        for end in (question, wish)
    )
    assert wished.count(wish) > 1.2 * asked.count(question) > 5
    assert " rows" not in wished


def test_each_line_says_where_its_names_come_from() -> None:
    line = next(line for line in index_of().splitlines() if "ISO_FORMAT" in line)
    assert line.startswith("read_file dates.py: ")


def test_a_word_that_says_what_several_are_is_said_once_and_carried_on() -> None:
    ids = ("ACC-1001", "ACC-2002", "ACC-3003", "ACC-4004", "ACC-5005")
    found = result("1", "".join(f"{'-' * 200}\naccount: {name}\n" for name in ids))
    index = index_of(call("find", "1", plan="basic"), found)
    line = "find plan=basic: account ACC-2002; ACC-3003; ACC-4004"
    assert line in index
    earlier = segment(f"[Summary by the memory.]\n## Index\n- {line}")
    again = index_of(earlier, segment("[Summary by the memory.]\n## Index\n- ls: a_b.py"))
    assert all(f"account {name}" in again or f"; {name}" in again for name in ids[1:4])


def test_the_paths_of_calls_stand_beside_each_other() -> None:
    paths = [f"/src/web/api/module_{name}.ts" for name in "abc"]
    calls = [m for n, p in enumerate(paths) for m in (call("read", f"{n}", path=p), result(f"{n}", "x"))]
    assert f"read: path {'; '.join(paths)}" in index_of(*calls)


def test_what_stands_elsewhere_in_the_view_is_not_named_again() -> None:
    known = find_identifiers("ISO_FORMAT and DATE-1432 stand in another summary")
    assert "ISO_FORMAT" not in index_of(known=known)
    assert "https://docs.example.org/dates" in index_of(known=known)


STANDING = "[Summary by the memory.]\n\n## Index\n- grep -n bad: value ISO_FORMAT, issue DATE-1432\n- done"


def test_what_a_segment_before_it_names_is_named_again_beside_another_tool() -> None:
    """In a long life an old segment had the name under other work: nobody took it for a part of this one."""
    index = index_of(standing=lines_of(STANDING))
    assert "ISO_FORMAT" in index
    assert "DATE-1432" in index
    known = find_identifiers("ISO_FORMAT")
    assert "ISO_FORMAT" not in index_of(standing=lines_of(STANDING), known=known)


def test_what_a_segment_before_it_names_beside_the_same_tool_is_not_named_again() -> None:
    same = STANDING.replace("grep -n bad", "read_file other.py")
    index = index_of(standing=lines_of(STANDING, same))
    assert "ISO_FORMAT" not in index
    assert "DATE-1432" not in index
    assert "https://docs.example.org/dates" in index


def test_what_a_segment_before_it_names_is_not_named_again_for_the_agents_own_words() -> None:
    standing = "[Summary by the memory.]\n\n## Index\n- fetch: https://docs.example.org/dates"
    assert "https://docs.example.org/dates" not in index_of(standing=lines_of(standing))
    read = [*SESSION, call("curl", "3", url="docs"), result("3", "see https://docs.example.org/dates")]
    assert "https://docs.example.org/dates" in index_of(*read, standing=lines_of(standing))


def test_what_a_segment_before_it_names_is_not_carried_on_beside_it() -> None:
    earlier = segment("[Summary by the memory.]\n\n## Index\n- open_issue: DATE-1432, DATE-1433")
    again = index_of(earlier, user("Go on."), standing=lines_of(STANDING))
    assert "DATE-1433" in again
    assert "DATE-1432" not in again


def test_an_index_that_merges_carries_on_what_earlier_ones_named() -> None:
    earlier = segment(
        "[Summary by the memory.]\n## Goal\n- fix dates\n\n## Index\n- read_file a.py: OLD_NAME_7"
    )
    assert "OLD_NAME_7" in index_of(earlier, *SESSION[1:3])


def test_of_the_oldest_index_what_it_named_first_is_carried_on() -> None:
    """It named the likeliest first; what has the shortest name is not what is needed most."""
    names = [f"key k_{n}" for n in (*range(100_000, 100_020), *range(20_000, 20_020))]
    lines = "".join(f"\n- get_user: {name}" for name in names)
    oldest = segment(f"[Summary by the memory.]\n## Index{lines}")
    newest = segment("[Summary by the memory.]\n## Index\n- get_user: order W_777")
    index = index_of(oldest, newest, max_tokens=120)
    assert all(name.removeprefix("key ") in index for name in names[:5])


def test_what_was_used_again_and_again_is_not_dropped_in_a_merge_however_long_ago() -> None:
    used = ["ORD-5512-XQ", "src/billing/plan_b.py"]
    before = Uses()
    before.note("0", Names(dict.fromkeys(used, 3), frozenset(used)))
    for number in range(1, 100):
        lately = {f"TMP_{number}_{n}": 1 for n in range(4)}
        before.note(str(number), Names(lately, frozenset(lately)))
    oldest = segment(f"[Summary by the memory.]\n## Index\n- get_order: {', '.join(used)}")
    lines = "".join(f"\n- search: TMP_{number}_{n}" for number in range(1, 100) for n in range(4))
    index = index_of(oldest, segment(f"[Summary by the memory.]\n## Index{lines}"), before=before)
    assert "TMP_7_1" not in index, "there is not room for all"
    assert [name for name in used if name not in index] == []


def test_what_earlier_indexes_said_of_calls_and_wishes_keeps_its_words() -> None:
    earlier = segment(
        "[Summary by the memory.]\n## Done\n- Repaired the parser in src/parse_it.py\n\n"
        "## Index\n- user: Never touch src/legacy.py\n- bash: pytest tests/test_it.py → 1 failed"
    )
    index = index_of(earlier, segment("[Summary by the memory.]\n## Index\n- ls: a_b.py"))
    assert "src/parse_it.py" in index
    assert "user: " in index
    assert "bash: " in index


@given(st.integers(min_value=0, max_value=300))
def test_it_never_costs_more_than_it_may(max_tokens: int) -> None:
    lines = index_artifacts(SESSION, max_tokens, COUNTER).lines
    assert COUNTER.count_text("".join(f"\n- {line}" for line in lines)) <= max_tokens


def test_keys_of_json_data_are_named_only_beside_their_values() -> None:
    note = "nothing of note " * 12
    record = result("1", f'{{"note": "{note}", "zip_code": "10061", "order_ids": ["W1654332"]}}')
    index = index_of(call("get_user", "1", user_id="mia_li_3668"), record)
    assert "zip_code 10061" in index
    assert "W1654332" in index
    assert "zip_code" not in index.replace("zip_code 10061", "")


def test_ids_and_paths_that_data_are_kept_by_are_named() -> None:
    note = "nothing of note " * 12
    record = (
        f'{{"note": "{note}", "task-98f13708": {{"run_state": "busy"}}, "src/shop/cart.py": {{"hits": 3}}}}'
    )
    index = index_of(call("get_status", "1", task="task-98f13708"), result("1", record))
    assert "task-98f13708" in index
    assert "src/shop/cart.py" in index
    assert "run_state" not in index


def test_a_field_whose_name_holds_a_digit_is_named_only_beside_its_values() -> None:
    rows = ", ".join(f'{{"file": "part_{n}.bin", "sha256_hex": "{n * 7919:07x}"}}' for n in range(4))
    note = "nothing of note " * 12
    index = index_of(
        call("list_files", "1", folder="out"), result("1", f'{{"note": "{note}", "files": [{rows}]}}')
    )
    assert "sha256_hex" not in index.replace("sha256_hex 0", "")
    assert "part_0.bin" in index


def test_arguments_are_named_by_their_values_and_once_beside_their_call() -> None:
    note = result("1", "nothing of note " * 12)
    index = index_of(call("get_user", "1", user_id="mia_li_3668", page_size=25), note, max_tokens=100)
    assert index.splitlines()[-1] == "get_user: user_id mia_li_3668"


def test_the_cells_of_a_table_are_not_named() -> None:
    rows = "".join(f"row {n}  {n}17.{n + 10}  {n}4,200\n" for n in range(100, 180))
    index = index_of(call("sql", "1", query="select all"), result("1", f"total of order_9912\n{rows}"))
    assert "order_9912" in index
    assert "10017.11" not in index


def test_what_nobody_looks_up_is_not_named() -> None:
    """Rules of tables, durations, addresses in memory, names of tools, keys of a reply in JSON."""
    printed = f"built\nget_order took 131ms\n{'_' * 24}\n<app.Door object at 0x7f21b7c90a30>\nfrom 9f21b7c\n"
    printed += "".join(f"step_{n} of the build in {n}.41s\n" for n in range(60))
    index = index_of(
        call("run_build", "1", target="all"),
        result("1", printed),
        assistant('{"next_step": "ask", "order": "W-77123"}'),
        call("get_order", "2", order="W-77123"),
        max_tokens=900,
    )
    assert {"9f21b7c", "app.Door"} <= set(index.replace(",", "").split())
    for noise in ("_____", "131ms", "1.41s", "0x7f", "next_step", ": get_order"):
        assert noise not in index


def test_a_small_index_tells_what_was_wanted_and_what_failed_before_it_names_much() -> None:
    names = " ".join(f"part_{n}.py" for n in range(60))
    messages = [
        user("Never touch the ledger; only payments may change."),
        call("deploy", "1", target="payments"),
        result("1", f"Error: quota exceeded\n{names}"),
    ]
    index = index_of(*messages, max_tokens=160)
    assert "user: Never touch the ledger; only payments may change." in index
    assert "deploy: target=payments → Error: quota exceeded" in index
    assert "part_0.py" in index


def test_in_the_smallest_index_what_was_wanted_comes_before_what_calls_came_to() -> None:
    """However telling these are."""
    messages = [user("The address stays as it is; do not change it."), assistant("Understood.")]
    for n in range(8):
        failure = f"Error: pay-{n} refused build E{n}012"
        messages += [call("deploy", str(n), target=f"pay-{n}"), result(str(n), failure)]
    assert index_of(*messages, max_tokens=80).startswith(
        "user: The address stays as it is; do not change it."
    )


def test_what_was_wanted_and_what_was_done_stand_in_the_order_of_the_session() -> None:
    """Whatever tells most: of two wishes, as of two outcomes, the later one holds."""
    messages = [
        *(user("Use port 8080, please."), call("run", "1", command="make a"), result("1", "3 passed")),
        *(user("You must never touch src/legacy.py."), call("run", "2", command="make b")),
        *(result("2", "Error: 2 failed"), user("Use port 9090, please."), call("run", "3", command="make c")),
        result("3", "4 passed"),
    ]
    told = [line for line in index_of(*messages).splitlines() if line.startswith(("user: ", "run: "))]
    assert told == [
        "user: Use port 8080, please.",
        "user: You must never touch src/legacy.py.",
        "user: Use port 9090, please.",
        "run: make a → 3 passed",
        "run: make b → Error: 2 failed",
        "run: make c → 4 passed",
    ]


def calls_of(*segments: str) -> list[tuple[str, frozenset[str]]]:
    """Return the lines of segments as if they named nothing: what they tell of calls is left."""
    return [(line, frozenset()) for line, _ in lines_of(*segments)]


def test_what_a_standing_summary_tells_otherwise_of_a_call_is_told_first() -> None:
    """A test that failed would be read as failing still, however much is told of later calls."""
    again = [
        call("bash", "1", command="python check_rows.py"),
        result("1", "checked 12 rows\nall rows are fine"),
        call("bash", "2", command="git push origin main"),
        result("2", "main -> main, 4 commits"),
    ]
    standing = "[Summary by the memory.]\n\n## Index\n- bash: python check_rows.py → KeyError: 'row_12'"
    plain = index_of(*again, max_tokens=90)
    assert "git push" in plain
    assert "check_rows.py →" not in plain
    told = "bash: python check_rows.py → checked 12 rows | all rows are fine"
    assert told in index_of(*again, max_tokens=90, standing=calls_of(standing))
    same = f"[Summary by the memory.]\n\n## Index\n- {told}"
    assert index_of(*again, max_tokens=90, standing=calls_of(same)) == plain
    assert told in index_of(*again, max_tokens=90, standing=calls_of(same, standing))
    assert index_of(*again, max_tokens=90, standing=calls_of(standing, same)) == plain


def test_of_a_text_that_was_read_again_nothing_more_is_told() -> None:
    """Some of its lines are others, as after every edit; that says less than what was done."""
    later = [
        call("read", "1", path="a.py"),
        result("1", "\n".join(f"row_{n} = {n}" for n in range(99))),
        call("read", "2", path="b.py"),
        result("2", "nothing yet"),
    ]
    standing = "[Summary by the memory.]\n\n## Done\n- read: a.py → row_7 = 7 (98 lines)"
    plain = index_of(*later, max_tokens=60)
    assert "b.py → nothing yet" in plain
    assert "a.py →" not in plain
    assert index_of(*later, max_tokens=60, standing=calls_of(standing)) == plain


def test_nothing_to_name_gives_no_lines() -> None:
    assert index_artifacts([assistant("Fine.")], 100, COUNTER).lines == ()


def test_lines_hold_nothing_that_cannot_be_seen() -> None:
    index = index_of(user("\x1b[31mStop\x1b[0m \u202eat\u202c\nthe <|im_start|> mark, always \ud83d"))
    assert index == "user: Stop at the < |im_start|> mark, always ?"
