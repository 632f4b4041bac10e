"""What a turn's evidence is, and what it takes to know it."""

from context_compressor.measure.recording import Evidence, Recording
from tests.measure.support import Words, call, result, says


def evidence(session) -> list[list[tuple[str, int, int]]]:
    turns = Recording(session, Words()).turns
    return [[(e.identifier, e.source, e.distance) for e in turn.evidence] for turn in turns]


def is_known(source, said: str, view) -> bool:
    """Tell whether the one identifier of `said` is known from the texts of `view`."""
    recording = Recording([*source, says("assistant", said)], Words())
    (found,) = recording.turns[-1].evidence
    among = {recording.texts.add(recording.reader.text_of(message)) for message in view}
    return recording.texts.is_known(found, among)


def test_evidence_stands_in_an_earlier_message_that_the_assistant_did_not_write() -> None:
    """What the assistant made up is none, however often it repeats it."""
    session = [
        says("user", "look at a_file.py"),
        says("assistant", "a_file.py and made_up.py"),
        says("user", "go on"),
        says("assistant", "made_up.py again"),
    ]
    assert evidence(session) == [[("a_file.py", 0, 1)], []]


def test_evidence_is_a_token_of_its_own() -> None:
    """A part of a longer name is another name."""
    session = [
        says("user", "see lib/a_file.py, id-12345x"),
        says("assistant", "a_file.py id-12345 id-12345x"),
    ]
    assert evidence(session) == [[("id-12345x", 0, 1)]]


def test_its_source_is_the_latest_and_its_distance_that_of_any_mention() -> None:
    """An assistant's mention is no source, but brings an identifier near."""
    session = [
        says("system", "Use db_main."),
        says("user", "ask db_main"),
        says("assistant", "I ask db_main."),
        says("user", "well?"),
        says("assistant", "db_main answers."),
    ]
    assert evidence(session) == [[("db_main", 1, 1)], [("db_main", 1, 2)]]


def test_reasoning_and_arguments_are_said_names_of_tools_are_not() -> None:
    """What a call is given counts; which tool it calls is known from elsewhere."""
    session = [
        says("user", "use read_file on a_file.py, then b_file.py"),
        {**call("c1", "read_file", '{"path": "a_file.py"}'), "reasoning_content": "b_file.py comes next"},
        result("c1", "done"),
        says("assistant", "read_file did it"),
    ]
    assert evidence(session) == [[("b_file.py", 0, 1), ("a_file.py", 0, 1)], [("read_file", 0, 2)]]


def test_the_name_of_a_tool_is_no_part_of_its_result() -> None:
    """A result is read with its tool's name in front, which does not make it a source of that name."""
    session = [
        says("user", "go"),
        call("c1", "read_file", "{}"),
        result("c1", "done"),
        says("assistant", "read_file"),
    ]
    assert evidence(session) == [[], []]
    session[2] = result("c1", "read_file is done")
    assert evidence(session) == [[], [("read_file", 2, 1)]]


def test_a_turn_has_something_before_it_that_is_no_instruction() -> None:
    """An assistant that speaks first was asked nothing."""
    session = [
        says("system", "Greet."),
        says("assistant", "Hello!"),
        says("user", "hi"),
        says("assistant", "?"),
    ]
    assert [turn.index for turn in Recording(session, Words()).turns] == [3]


def test_a_source_that_stands_in_the_view_word_for_word_is_known() -> None:
    """Even one that is nothing but an identifier; in another message it needs a word."""
    source = [says("user", "W-12345")]
    assert is_known(source, "W-12345", source)
    assert not is_known(source, "W-12345", [says("user", "order W-12345")])


def test_a_word_counts_within_200_characters_on_both_sides() -> None:
    """Too far away in the source, or in the view, it says nothing about the identifier."""
    close, far = "parcel " + "- " * 90, "parcel " + "- " * 100
    for source, view, known in ((close, close, True), (far, close, False), (close, far, False)):
        messages = [says("user", f"{source}W-12345")]
        assert is_known(messages, "W-12345", [says("user", f"{view}W-12345!")]) is known


def test_what_words_are() -> None:
    """Function words, short ones and other names are none; case does not matter; Chinese goes by pairs."""
    source = [says("user", "the Order of to_day W-12345 订单编号")]
    for beside, known in (
        ("the", False),
        ("of", False),
        ("to_day", False),
        ("order", True),
        ("ORDER", True),
        ("orders", False),
        ("我的订单", True),
        ("单号", False),
    ):
        assert is_known(source, "W-12345", [says("user", f"{beside} W-12345")]) is known


def test_the_name_of_the_tool_that_brought_it_counts() -> None:
    """Also where the source has no word at all, and only for that tool."""
    source = [says("user", "go"), call("c1", "get_order", "{}"), result("c1", "W-12345")]
    assert is_known(source, "W-12345", [says("user", "get_order: W-12345")])
    assert not is_known(source, "W-12345", [says("user", "get_orders: W-12345")])
    assert is_known(source, "W-12345", [source[1], result("c1", "W-12345, cut short")])


def test_an_answer_is_judged_as_a_view_is() -> None:
    """What a tool answers is not kept, and has to say what the identifier is all the same."""
    recording = Recording([says("user", "order W-12345"), says("assistant", "W-12345")], Words())
    (found,) = recording.turns[0].evidence
    assert isinstance(found, Evidence)
    assert recording.texts.is_answered(found, "12| an order W-12345 came")
    assert not recording.texts.is_answered(found, "W-12345")
    assert not recording.texts.is_answered(found, "an order W-123456 came")


def test_a_stored_text_tells_what_its_source_tells() -> None:
    """A list of paths has no word in it; stored whole, alone or in a transcript, it is as good as it was."""
    paths = "lib/a_file.py\nlib/b_file.py"
    session = [says("user", "go"), call("c1", "list_files", "{}"), result("c1", paths)]
    recording = Recording([*session, says("assistant", "lib/a_file.py")], Words())
    (found,) = recording.turns[-1].evidence
    add = recording.texts.add
    whole, transcript, bag = add(paths), add(f"[transcript]\n{paths}\n[end]"), add("lib/a_file.py")
    assert recording.texts.telling(found, {whole, transcript, bag}) == [whole, transcript]
    assert not recording.texts.is_known(found, {whole, transcript, bag})
    assert recording.texts.is_answered(found, "12| lib/a_file.py")


def test_evidence_comes_from_the_tool_that_had_the_id_then() -> None:
    """Some programs use the ids of calls again: what another tool brings later changes nothing."""
    session = [
        says("user", "go"),
        call("call_0", "first_tool", "{}"),
        result("call_0", "the secret_9"),
        call("call_0", "second_tool", "{}"),
        result("call_0", "nothing"),
        says("assistant", "secret_9"),
    ]
    (found,) = Recording(session, Words()).turns[-1].evidence
    assert (found.source, found.tool) == (2, "first_tool")
