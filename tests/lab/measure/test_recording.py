"""What is read of a recorded session."""

from context_compressor.lab.measure import CachedCounter, Recording, content_text, readable
from tests.lab.measure.support import Words, call, result, says


def test_a_turn_has_something_before_it_that_is_no_instruction() -> None:
    """An assistant that speaks first was asked nothing."""
    session = [
        says("system", "Greet."),
        says("assistant", "Hello!"),
        says("user", "hi"),
        says("assistant", "?"),
    ]
    assert Recording(session, Words()).turns == [3]
    assert Recording(session[:2], Words()).turns == []


def test_messages_are_read_with_all_that_they_say() -> None:
    """Reasoning, content, the calls with their arguments; characters that JSON escapes are themselves."""
    session = [
        says("user", "cancel 订单 W-1"),
        {**call("c1", "look", '{"id": "\\u8ba2\\u5355"}'), "reasoning_content": "first the order"},
        result("c1", "not there"),
    ]
    assert readable(session).splitlines() == [
        "--- [0] user",
        "cancel 订单 W-1",
        "--- [1] assistant",
        "first the order",
        '    CALL look {"id": "订单"}',
        "--- [2] tool",
        "not there",
    ]


def test_parts_of_content_are_read_by_line() -> None:
    """What is no text is there by its kind."""
    parts = [{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {}}, "plain"]
    assert content_text({"role": "user", "content": parts}) == "see\n[image_url]\nplain"


def test_a_message_is_counted_once() -> None:
    """Equal messages too; what the counter cannot read counts as its JSON text."""
    asked = []

    class Counting(Words):
        def count_messages(self, messages) -> int:
            asked.append(messages)
            return super().count_messages(messages)

    counter = CachedCounter(Counting())
    assert counter.count_all([says("user", "one two"), says("user", "one two")]) == 6
    assert len(asked) == 1
