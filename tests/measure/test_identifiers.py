"""Tokens, identifiers and words."""

import pytest

from context_compressor.measure.identifiers import identifier_spans, is_identifier, is_word, near, tokens


def found(text: str) -> list[str]:
    return list(identifier_spans(text))


@pytest.mark.parametrize(
    ("token", "expected"),
    [
        ("W1234", True),
        ("W123", False),  # four characters
        ("x" * 119 + "1", True),
        ("x" * 120 + "1", False),
        ("snake_case", True),
        ("lib/path", True),
        ("@alice", True),
        ("module.name", True),
        ("camelCase", True),
        ("HelloWorld", True),
        ("ordinary", False),
        ("Ordinary", False),
        ("ACRONYM", False),
        ("well-known", False),
        ("_____", False),
        ("12345", True),
    ],
)
def test_identifiers(token: str, expected: bool) -> None:
    """Five to 120 characters, and something that a plain word does not have."""
    assert is_identifier(token) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("see ./src/foo_bar.py:12.", ["src/foo_bar.py"]),
        ("+++ b/src/x_1.py\n-old_name()\n+new_name()", ["b/src/x_1.py", "old_name", "new_name"]),
        ('{"order_id": "#W12345", "a": "x\\nfoo_1\\tbar_2"}', ["order_id", "W12345", "foo_1", "bar_2"]),
        ('"\\u8ba2\\u5355W12345"', ["W12345"]),
        ("订单W12345已取消", ["W12345"]),
        ("<tag_x>v_alue</tag_x>", ["tag_x", "v_alue"]),
        ("(https://a.example/b?c=1&d=2).", ["https://a.example/b?c=1&d=2"]),
        ("call user.save(row_1, key=ann@example.com)", ["user.save", "row_1", "ann@example.com"]),
        ("The end.Next", ["end.Next"]),
        ("...more_dots... ../up/one/", ["more_dots", "up/one"]),
        ("/srv/x_1/ //comment_1", ["/srv/x_1", "comment_1"]),
        ("naïve_é1", ["naïve_é1"]),
    ],
)
def test_tokens_end_where_names_end(text: str, expected: list[str]) -> None:
    """What surrounds a name in prose, JSON, diffs and markup is no part of it."""
    assert found(text) == expected


def test_spans_are_where_the_identifiers_stand() -> None:
    """Every place of an identifier is told, without what was taken off it."""
    text = "./a_file.py and (a_file.py)."
    assert [text[start:end] for start, end in identifier_spans(text)["a_file.py"]] == ["a_file.py"] * 2
    assert list(tokens(text)) == [("a_file.py", 2), ("and", 12), ("a_file.py", 17)]


@pytest.mark.parametrize(
    ("token", "expected"),
    [
        *[(word, True) for word in ("order", "Order", "ORDER", "été", "заказ")],
        *[(other, False) for other in ("the", "of", "order1", "my_order", "myOrder", "a-b-c", "订单")],
    ],
)
def test_words(token: str, expected: bool) -> None:
    """Three letters or more, and nothing else."""
    assert is_word(token) is expected


def test_near_counts_whole_tokens_only() -> None:
    """A word, or a name, that the edge of the window cuts says nothing."""
    text = "parcelling W-123 lookups"
    spans = identifier_spans(text)["W-123"]
    assert near(text, spans, 7).words == frozenset()
    assert near(text, spans, 11).words == {"parcelling", "lookups"}
    assert near(text, spans, 11).tokens == {"parcelling", "W-123", "lookups"}


def test_near_joins_all_places() -> None:
    """What stands beside any of an identifier's places stands beside it."""
    text = "alpha W-123 " + "- " * 200 + "W-123 omega"
    assert near(text, identifier_spans(text)["W-123"]).words == {"alpha", "omega"}
