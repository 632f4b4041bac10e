from hypothesis import given
from hypothesis import strategies as st

from context_compressor.summarizers.pieces import count_material, split_messages, split_text
from tests.summarizers.support import PieceCounter, call, result, segment, user

COUNTER = PieceCounter()


def texts(parts) -> list[str]:
    return [msg.get_text_content() or "" for part in parts for msg in part]


def test_parts_keep_the_order_fit_and_are_of_about_the_same_size():
    messages = [user(f"message number {i} says that {'x ' * 20}") for i in range(50)]
    parts = split_messages(messages, 400, COUNTER)
    assert [msg for part in parts for msg in part] == messages
    sizes = [count_material(part, COUNTER) for part in parts]
    assert max(sizes) <= 400
    assert min(sizes) > 0.6 * max(sizes)


def test_an_exchange_stays_together():
    exchanges = [
        (call("read", f"c{i}", path=f"{i}.py"), result(f"c{i}", "word " * 40, "read")) for i in range(12)
    ]
    parts = split_messages([msg for exchange in exchanges for msg in exchange], 150, COUNTER)
    assert len(parts) > 3
    assert all(part[0].role == "assistant" and len(part) % 2 == 0 for part in parts)


def test_parallel_results_stay_with_their_call():
    calls = call("read", "a", path="a.py")
    calls.content.append({"type": "tool_use", "id": "b", "name": "read", "input": {"path": "b.py"}})
    messages = [user("go " * 30), calls, result("a", "one " * 30), result("b", "two " * 30), user("on " * 30)]
    parts = split_messages(messages, 120, COUNTER)
    assert parts == [(messages[0],), tuple(messages[1:4]), (messages[4],)]


def test_a_call_without_result_holds_up_nobody():
    messages = [call("read", "a", path="a.py"), *(user(f"{i} " + "word " * 60) for i in range(4))]
    parts = split_messages(messages, 100, COUNTER)
    assert [msg for part in parts for msg in part] == messages
    assert len(parts) == 4


def test_a_huge_result_is_split_by_lines_and_keeps_its_name():
    lines = [f"line {i} of the log: something happened\n" for i in range(200)]
    huge = result("c1", "".join(lines))
    parts = split_messages([call("read_log", "c1", path="x.log"), huge], 300, COUNTER)
    outputs = [
        block["output"] for part in parts for msg in part for block in msg.get_content_blocks("tool_result")
    ]
    assert "".join(outputs) == "".join(lines)
    assert all(output.endswith("\n") for output in outputs)
    assert all(count_material(part, COUNTER) <= 300 for part in parts)
    names = {b["name"] for part in parts for msg in part for b in msg.get_content_blocks("tool_result")}
    assert names == {"read_log"}


def test_huge_arguments_are_split_too():
    parts = split_messages([call("write_file", "c1", path="x.py", body="word " * 1_000)], 200, COUNTER)
    text = "".join(texts(parts))
    assert text.count("word ") == 1_000
    assert text.startswith("call of write_file: {")
    assert all(count_material(part, COUNTER) <= 200 for part in parts)


def test_pieces_of_an_earlier_summary_are_still_one():
    parts = split_messages([segment("- a fact\n" * 300)], 200, COUNTER)
    assert len(parts) > 2
    assert all(msg.metadata["compression"]["kind"] == "segment" for part in parts for msg in part)


def test_the_messages_given_are_left_alone():
    huge = result("c1", "line\n" * 500)
    split_messages([call("read", "c1"), huge], 200, COUNTER)
    assert "name" not in huge.content[0]
    assert huge.content[0]["output"] == "line\n" * 500


@given(st.text(alphabet=st.sampled_from("ab 1\n\r中\ud83d"), max_size=800), st.integers(20, 200))
def test_pieces_of_a_text_are_that_text_again_and_fit(text: str, room: int):
    pieces = list(split_text(text, room, COUNTER.count_text))
    assert "".join(piece for piece, _ in pieces) == text
    assert all(cost == COUNTER.count_text(piece) <= room for piece, cost in pieces)


@given(
    st.lists(st.integers(0, 300), min_size=1, max_size=12),
    st.integers(60, 200),
)
def test_splitting_is_deterministic_and_loses_nothing(sizes: list[int], room: int):
    messages = [user(" ".join(f"m{i}w{n}" for n in range(size))) for i, size in enumerate(sizes)]
    parts = split_messages(messages, room, COUNTER)
    assert parts == split_messages(messages, room, COUNTER)
    assert all(count_material(part, COUNTER) <= room for part in parts)
    said = "".join(text.replace(" ", "") for text in texts(parts))
    assert said == "".join(msg.content.replace(" ", "") for msg in messages)
