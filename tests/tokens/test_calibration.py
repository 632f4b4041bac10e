"""What is learnt from a provider's counts: safe at the limit, close to it, not misled by one odd report."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from context_compressor.tokens.calibration import KEPT_REPORTS, Calibration

LIMIT = 16_000
LEAST = LIMIT // 4
"""What usage reports leave at the least."""


def reported(*reports: tuple[int, int]) -> Calibration:
    found = Calibration()
    for ours, theirs in reports:
        found.record_usage(ours, theirs)
    return found


def budget(found: Calibration, most: int = LIMIT) -> int:
    return found.budget(LIMIT, most)


class Provider:
    """A provider that counts `ratio * ours + offset`, give or take `noise`, and an agent that goes by it."""

    def __init__(self, seed: int, noise: float) -> None:
        self.random = random.Random(seed)
        self.ratio = self.random.uniform(1, 2)
        self.offset = self.random.uniform(0, LIMIT / 2)
        self.noise = noise
        self.fitting = (LIMIT - self.offset) / self.ratio
        self.calibration = Calibration()
        self.view = self.random.randint(200, 3_000)
        self.refusals = 0

    def count(self) -> int:
        exact = self.ratio * self.view + self.offset
        return int(exact * (1 + self.random.uniform(-self.noise, self.noise)))

    def run(self, turns: int) -> Iterator[float]:
        """Yield after each report how far the budget is from what fits, as a share of that."""
        for _ in range(turns):
            if self.view > budget(self.calibration):
                self.view = int(budget(self.calibration) * self.random.uniform(0.3, 0.6))
            theirs = self.count()
            if theirs > LIMIT:
                self.refusals += 1
                self.calibration.record_overflow(self.view)
                continue
            self.calibration.record_usage(self.view, theirs)
            yield budget(self.calibration) / self.fitting - 1
            self.view += self.random.randint(50, LIMIT // 8)


@pytest.mark.parametrize("noise", [0.0, 0.005])
def test_a_growing_view_is_never_refused_and_soon_uses_what_fits(noise: float) -> None:
    for seed in range(60):
        provider = Provider(seed, noise)
        errors = list(provider.run(40))
        assert provider.refusals == 0, seed
        assert max(errors) < 0.001 + noise, seed
        assert min(errors[5:]) > -0.08, seed
        assert min(errors[9:]) > -0.06, seed


def test_noisy_counts_cost_some_of_the_budget_and_few_refusals() -> None:
    """Two per cent either way on every report, far more than a provider's counts scatter."""
    refusals = 0
    for seed in range(60):
        provider = Provider(seed, 0.02)
        errors = list(provider.run(40))
        refusals += provider.refusals
        assert max(errors[9:]) < 0.01, seed
        assert min(errors[9:]) > -0.16, seed
    assert refusals <= 2


@given(st.lists(st.tuples(st.integers(1, 20_000), st.floats(0, 1))), st.integers(1, LIMIT))
def test_a_counter_that_is_right_or_counts_too_much_takes_nothing(
    reports: list[tuple[int, float]], most: int
) -> None:
    found = reported(*((ours, int(ours * share)) for ours, share in reports if ours <= LIMIT))
    assert budget(found, most) == most


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**7)), max_size=20))
def test_whatever_is_reported_the_budget_stays_in_its_bounds(reports: list[tuple[int, int]]) -> None:
    assert LEAST <= budget(reported(*reports)) <= LIMIT


def test_a_small_overhead_takes_no_more_than_itself() -> None:
    for ours in (50, 1_500, 15_000):
        assert LIMIT - 52 <= budget(reported((ours, ours + 50))) <= LIMIT - 50
    assert LIMIT - 152 <= budget(reported((10_000, 10_150))) <= LIMIT - 150


def test_however_reports_scatter_they_take_a_twentieth_of_the_limit_at_most() -> None:
    assert budget(reported(*[(5_000, 8_000), (5_000, 12_000)] * 4)) > 7_000 - LIMIT / 20 - 100


def test_one_report_of_a_small_view_is_taken_on_the_safe_side() -> None:
    """It may be all offset or all ratio."""
    found = budget(reported((1_500, 5_950)))
    assert found <= 1_500 + (LIMIT - 5_950) / 2
    assert found > 6_000


STEADY = [(ours, int(1.3 * ours) + 4_000) for ours in range(1_000, 9_000, 800)]


@pytest.mark.parametrize("odd", [0, 1, 90, 4_000, 15_900, 50_000, 10**7])
@pytest.mark.parametrize("place", [1, 3, len(STEADY)])
def test_one_odd_report_among_others_changes_little(odd: int, place: int) -> None:
    reports = [*STEADY[:place], (STEADY[place - 1][0] + 300, odd), *STEADY[place:]]
    found = budget(reported(*reports))
    assert 0.94 * 9_230 < found <= 9_230


def test_new_schemas_are_believed_with_the_second_report() -> None:
    longer = [(ours, int(1.3 * ours) + 7_000) for ours in (3_000, 3_500)]
    before, _, after = (budget(reported(*STEADY, *longer[:n])) for n in range(3))
    assert before > 9_000
    assert after <= (LIMIT - 7_000) / 1.3


def test_a_view_that_costs_more_than_the_limit_is_over_the_budget() -> None:
    found = reported(*((ours, int(1.3 * ours) + 4_000) for ours in (8_000, 9_000, 10_000, 11_000)))
    assert budget(found) <= (LIMIT - 4_000) / 1.3
    # Of a single one nobody knows the ratio: each token of ours is taken to be no more than one of theirs.
    assert budget(reported((10_000, 20_000))) < 10_000 - (20_000 - LIMIT)


def test_a_view_that_was_accepted_within_the_limit_may_stay() -> None:
    found = reported((5_000, 10_500), (9_000, 15_999), (4_000, 9_800), (9_200, LIMIT))
    assert budget(found) == 9_200


class TestRefusals:
    def test_another_before_anything_was_accepted_leads_to_half(self) -> None:
        found = reported(*STEADY)
        found.record_overflow(9_000)
        found.record_overflow(7_200)
        assert budget(found) == 3_600

    def test_one_out_of_the_blue_leads_to_half(self) -> None:
        found = Calibration()
        found.record_overflow(16_000)
        assert budget(found) == 8_000
        found.end_shrinking()
        assert budget(found) == 12_800

    def test_each_in_a_row_shrinks_further(self) -> None:
        found, seen = reported(*STEADY), [9_000]
        while seen[-1] > 10:
            found.record_overflow(seen[-1])
            assert budget(found) < seen[-1]
            seen.append(budget(found))

    def test_reports_say_afterwards_how_much_fits(self) -> None:
        found = Calibration()
        found.record_overflow(16_000)
        found.record_usage(8_000, int(1.3 * 8_000) + 4_000)
        assert 0.95 * 9_230 < budget(found) <= 9_230

    def test_they_outdate_the_reports_before(self) -> None:
        found = reported(*STEADY)
        found.record_overflow(9_000)  # the schemas have grown
        found.record_usage(5_000, int(1.3 * 5_000) + 7_000)
        assert budget(found) <= (LIMIT - 7_000) / 1.3

    def test_a_named_limit_counts_where_it_is_lower(self) -> None:
        found = reported(*STEADY)
        found.record_overflow(None, 12_000)
        assert 0.95 * 8_000 / 1.3 < budget(found) <= 8_000 / 1.3
        found.record_overflow(None, 100_000)
        assert budget(found) <= 8_000 / 1.3

    def test_a_named_limit_above_the_budget_tells_how_much_the_view_costs(self) -> None:
        found = Calibration()
        found.record_overflow(16_000, 20_000)
        found.end_shrinking()
        assert budget(found) == int(0.8 * 0.8 * 16_000)

    def test_a_view_that_cannot_become_smaller_is_tried_unless_that_is_ruled_out(self) -> None:
        found = Calibration()
        found.record_overflow(10_000)
        assert not found.concede(10_000, LIMIT)
        assert found.concede(9_500, LIMIT)
        assert budget(found) == 9_500
        found.record_overflow(9_500)
        assert budget(found) < 9_500
        assert not found.concede(9_500, LIMIT)

    def test_what_was_conceded_is_forgotten_with_the_refusals(self) -> None:
        found = reported((6_000, 14_000))
        assert found.concede(7_500, LIMIT)
        found.forget_refusals()
        assert budget(found) < 7_500

    def test_reports_rule_out_what_does_not_fit_at_any_ratio(self) -> None:
        found = reported((6_000, 14_000))
        assert budget(found) < 7_500
        assert found.concede(7_500, LIMIT)
        assert not found.concede(8_500, LIMIT)
        found.record_overflow(None, 14_000)
        assert not found.concede(7_500, LIMIT)


ADAPTER = TypeAdapter(Calibration)


class TestState:
    def test_it_goes_through_json(self) -> None:
        found = reported(*STEADY, *STEADY)
        found.record_overflow(9_000, 15_000)
        for _ in range(2):
            again = ADAPTER.validate_python(json.loads(json.dumps(asdict(found))))
            assert again == found
            assert budget(again) == budget(found)
            found.record_usage(5_000, 11_000)
        assert len(found.reports) == KEPT_REPORTS

    def test_what_was_conceded_stays_so(self) -> None:
        found = Calibration()
        found.record_overflow(10_000)
        assert found.concede(9_500, LIMIT)
        saved = asdict(found)
        assert budget(ADAPTER.validate_python(saved)) == 9_500
        del saved["conceded"]  # as earlier releases wrote it
        assert budget(ADAPTER.validate_python(saved)) < 9_500

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("reports", None),
            ("reports", [[1]]),
            ("reports", [[1, "2"]]),
            ("reports", [[0, 1]]),
            ("accepted", -1),
            ("accepted", 99),
            ("accepted", None),
            ("limit", "9"),
            ("limit", True),
            ("refused", -3),
            ("next_tokens", 1.5),
            ("conceded", -1),
        ],
    )
    def test_what_is_malformed_is_named(self, field: str, value: Any) -> None:
        data = {**asdict(reported(*STEADY)), field: value}
        with pytest.raises(ValidationError, match=field):
            ADAPTER.validate_python(data)


@pytest.mark.parametrize("of_ours", [0.6, 1.0, 1.7])
@pytest.mark.parametrize("ours", [1, 400, 4_000, 9_000, 20_000])
def test_what_is_expected_is_not_less_than_its_share_of_what_was_counted(of_ours: float, ours: int) -> None:
    expected = reported(*((size, round(size * of_ours)) for size in (9_000, 10_500, 11_800))).expected(ours)
    assert expected is not None
    assert expected >= round(ours * of_ours)
