"""Find how much fits a token limit with few counts."""

from __future__ import annotations

from collections.abc import Callable

CHARS_PER_TOKEN_BOUND = 16
"""Characters per token that no text worth showing exceeds: long runs of blanks or dashes do, prose stays near
5. It bounds how much is rendered and counted when a limit in tokens is given."""

GOOD_ENOUGH = 0.96
"""Fill at which the search ends: the last few percent would cost as many counts as all that came before."""


def largest_fitting(
    cost: Callable[[int], int],
    upper: int,
    limit: int,
    guess: int,
    *,
    good_enough: float = GOOD_ENOUGH,
    calls: int | None = None,
) -> int:
    """Return a large `n` in `0..upper` with `cost(n) <= limit`, in tokens; 0 when none was found.

    `cost` should grow with `n`, more or less; the `n` returned was measured, or is 0. Interpolates from
    `guess`, then bisects: typically 3 to 6 calls of `cost`, and 1 or 2 after a good guess at a low fill. Ends
    at a cost of `good_enough` of the limit, and after so many `calls` with what it has, if it has anything.
    """
    fits, too_many = 0, upper + 1
    n = min(max(guess, 1), upper)
    called = 0
    while too_many - fits > 1 and (calls is None or called < calls or not fits):
        tokens = cost(n)
        called += 1
        if tokens > limit:
            too_many = n
        else:
            fits = n
            if tokens >= good_enough * limit:
                break
        proportional = int(n * limit * (1 + good_enough) / 2) // max(tokens, 1)
        n = proportional if called <= 3 else (fits + too_many) // 2
        n = min(max(n, fits + 1), too_many - 1)
    return fits
