from __future__ import annotations

from context_compressor.tokens.counter import largest_fitting


def test_what_costs_all_there_is_fits() -> None:
    assert largest_fitting(lambda n: n, 1_000, 100, 100, good_enough=1.0) == 100


def test_costs_that_leap_take_few_counts() -> None:
    counted: list[int] = []

    def cost(n: int) -> int:
        counted.append(n)
        return 10 if n <= 500 else 1_000

    assert largest_fitting(cost, 10**6, 300, 1) == 500
    assert len(counted) < 40
    counted.clear()
    assert 0 < largest_fitting(cost, 10**6, 300, 400, calls=4) <= 500
    assert len(counted) == 4
