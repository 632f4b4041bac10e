from __future__ import annotations

import pytest

from context_compressor.tools.grep import PatternError, compile_pattern


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        *((one, "Invalid pattern: .*backslash") for one in ("(", "*", "\\", "(?P<a", "(" * 450 + ")" * 450)),
        *((one, "multiply") for one in ("((x{500}){500}){500}", "(?:(?:a{1000}){1000}){1000,}")),
        *((one, "recursion") for one in ("(?R)?a", "(a(?1)?)", "(?P<n>a(?&n)?)", "(?P<n>a(?P>n)?)")),
        ("a" * 1001, "1001 characters"),
    ],
)
def test_a_pattern_that_cannot_be_used_is_explained(pattern: str, why: str) -> None:
    with pytest.raises(PatternError, match=why):
        compile_pattern(pattern, False)


def test_repeats_that_do_not_multiply_are_taken() -> None:
    compile_pattern(r"[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}.{0,1000}.{0,1000}.{0,1000}", False)
