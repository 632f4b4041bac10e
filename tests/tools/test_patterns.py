from __future__ import annotations

import pytest

from context_compressor.tools.grep import PatternError, compile_pattern


@pytest.mark.parametrize(
    "pattern",
    ["(", "[a", "*", "\\", "(?P<a", "(" * 450 + ")" * 450, "\\N{NO SUCH NAME}"],
)
def test_an_invalid_pattern_is_explained(pattern: str) -> None:
    with pytest.raises(PatternError, match=r"Invalid pattern: .*backslash"):
        compile_pattern(pattern, False)


def test_repeats_that_multiply_are_refused_before_they_take_the_memory() -> None:
    for pattern in ["((x{500}){500}){500}", "(?:(?:a{1000}){1000}){1000,}", "a{99999999999999999999}"]:
        with pytest.raises(PatternError, match="multiply"):
            compile_pattern(pattern, False)
    compile_pattern(r"[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}.{0,1000}.{0,1000}.{0,1000}", False)


@pytest.mark.parametrize("pattern", ["(?R)?a", "(a(?1)?)", "(?P<n>a(?&n)?)", "(?P<n>a(?P>n)?)"])
def test_recursion_is_refused(pattern: str) -> None:
    with pytest.raises(PatternError, match="recursion"):
        compile_pattern(pattern, False)


def test_a_long_pattern_is_refused() -> None:
    with pytest.raises(PatternError, match="1001 characters"):
        compile_pattern("a" * 1001, False)
