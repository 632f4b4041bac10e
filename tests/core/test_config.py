"""`CompressionConfig`: what is refused, in which words; what gives way."""

from __future__ import annotations

from typing import Any, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from context_compressor import CompressionConfig
from context_compressor.core.config import ConfigFields


def test_the_defaults_are_remes() -> None:
    config = CompressionConfig()
    assert (config.mode, config.max_total_tokens, config.max_tool_message_tokens) == ("auto", 20_000, 2_000)
    assert (config.group_token_threshold, config.keep_recent_count) == (None, 10)
    assert (config.compact_ratio_threshold, config.preview_tokens) == (0.75, 200)
    assert config.budget == 20_000


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (
            {"max_tool_message_tokens": 5_000, "max_total_tokens": 4_000},
            ["max_tool_message_tokens (5000)", "max_total_tokens (4000)"],
        ),
        ({"reserved_tokens": 20_000}, ["reserved_tokens (20000)", "max_total_tokens (20000)"]),
        (
            {"preview_tokens": 300, "max_tool_message_tokens": 300},
            ["preview_tokens (300)", "max_tool_message_tokens (300)"],
        ),
        (
            {"window_tokens": 4_096, "reserved_tokens": 3_500},
            ["reserved_tokens (3500)", "0.8 of window_tokens (4096), 3276", "raise window_ratio"],
        ),
        (
            {"window_tokens": 4_096, "max_tool_message_tokens": 4_000},
            ["max_tool_message_tokens (4000)", "0.8 of window_tokens (4096), 3276"],
        ),
        (
            {"max_view_messages": 10, "keep_recent_count": 10},
            ["max_view_messages (10)", "keep_recent_count (10)"],
        ),
        ({"pinned_mark": "hint"}, ["pinned_mark ('hint')", "volatile_marks"]),
        (
            {"mode": "auto", "working_summary_mode": "compact"},
            ["mode ('auto')", "working_summary_mode ('compact')"],
        ),
    ],
)
def test_values_that_cannot_work_together_are_refused_with_names_and_values(
    values: dict[str, Any], words: list[str]
) -> None:
    with pytest.raises(ValidationError) as caught:
        CompressionConfig(**values)
    assert all(word in str(caught.value) for word in words)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_totl_tokens", 5),
        ("mode", "none"),
        ("max_total_tokens", 0),
        ("max_total_tokens", "20000"),
        ("max_total_tokens", 2.5),
        ("max_total_tokens", True),
        ("max_total_tokens", 10**400),  # shares of it would be no floats
        ("window_tokens", 10**400),
        ("reserved_tokens", -1),
        ("keep_recent_count", -1),
        ("keep_recent_tokens", 0),
        ("keep_recent_tokens", 2.5),
        ("group_token_threshold", -1),
        ("target_ratio", 1.0),
        ("target_ratio", float("nan")),
        ("arrival_ratio", 0),
        ("compact_ratio_threshold", 1.1),
        ("on_failure", "ignore"),
        ("summarizer_timeout_seconds", 0),
        ("store_timeout_seconds", float("nan")),
        ("redact", "text"),
    ],
)
def test_a_bad_value_is_refused_by_the_name_of_its_field(field: str, value: Any) -> None:
    with pytest.raises(ValidationError, match=field):
        CompressionConfig(**{field: value})


def test_remes_name_for_the_mode_is_accepted() -> None:
    assert CompressionConfig(working_summary_mode="compact").mode == "compact"  # type: ignore[call-arg]
    assert CompressionConfig(mode="compact", working_summary_mode="compact").mode == "compact"  # type: ignore[call-arg]


@given(
    st.fixed_dictionaries(
        {"max_total_tokens": st.integers(1, 50_000)},
        optional={"keep_recent_count": st.integers(0, 50), "mode": st.sampled_from(("auto", "compact"))},
    )
)
def test_defaults_give_way_to_what_was_set(values: dict[str, Any]) -> None:
    config = CompressionConfig(**values)
    assert config.max_total_tokens == values["max_total_tokens"]
    assert 1 <= config.max_tool_message_tokens <= max(1, config.budget // 2)
    assert 0 <= config.preview_tokens <= config.max_tool_message_tokens


def test_a_copy_with_other_values_keeps_what_was_set() -> None:
    config = CompressionConfig(max_total_tokens=1_000, redact=str.upper)
    data = config.model_dump()
    assert "redact" not in data
    assert CompressionConfig(**data).max_total_tokens == 1_000


@pytest.mark.parametrize(("most", "kept"), [(1, 0), (5, 1), (12, 4), (20, 6), (400, 10)])
def test_recent_messages_that_nobody_asked_for_leave_room_below_the_most_messages(
    most: int, kept: int
) -> None:
    """With ten of twelve an event came on every turn, and below eleven the config was refused."""
    config = CompressionConfig(max_view_messages=most)
    assert config.keep_recent_count == kept
    assert config.may_shrink_recent
    assert CompressionConfig(max_view_messages=30, keep_recent_count=29).keep_recent_count == 29


def test_fields_given_one_by_one_have_the_types_of_the_config() -> None:
    given, fields = get_type_hints(ConfigFields), CompressionConfig.model_fields
    assert {name: given[name] for name in fields} == {
        name: field.annotation for name, field in fields.items()
    }
    assert given.keys() - fields.keys() == {"working_summary_mode"}
