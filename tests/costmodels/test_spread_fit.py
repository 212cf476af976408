import numpy as np
import pytest

from costmodels.directions import DIRECTIONS
from costmodels.spread_fit import EXPECTED, fit_spread, weighted_quantile

NAMES = list(EXPECTED)


def made_up(*, between, residual, groups=40, rows=20, seed=1):
    """Return slopes, residuals and groups of frameworks that differ along the first direction."""
    random = np.random.default_rng(seed)
    slopes = np.zeros((groups * rows, len(NAMES)))
    slopes[:, 0] = 1.0
    shift = random.normal(0, between, groups).repeat(rows)
    residuals = shift + random.normal(0, residual, groups * rows)
    return slopes, residuals, [np.arange(g * rows, (g + 1) * rows) for g in range(groups)]


def test_every_direction_is_expected_something():
    assert set(EXPECTED) == set(DIRECTIONS)


@pytest.mark.parametrize("between", [0.05, 0.2])
def test_the_difference_between_groups_is_found(between):
    spread = fit_spread(*made_up(between=between, residual=0.1))
    assert spread.between["scale"] == pytest.approx(between, rel=0.3)
    assert spread.between["memory"] == pytest.approx(EXPECTED["memory"], rel=0.01)


@pytest.mark.parametrize(("between", "residual"), [(0.05, 0.02), (0.2, 0.1)])
def test_nine_of_ten_lie_within_the_quantile(between, residual):
    slopes, residuals, groups = made_up(between=between, residual=residual)
    spread = fit_spread(slopes, residuals, groups)
    deviations = np.sqrt((slopes**2) @ np.square(list(spread.between.values())) + spread.residual**2)
    inside = np.abs(residuals) <= spread.quantile * deviations * 1.001
    assert inside.mean() == pytest.approx(0.9, abs=0.01)


def test_one_group_that_is_far_off_counts_no_more_than_its_rows():
    slopes, residuals, groups = made_up(between=0.05, residual=0.05)
    residuals[groups[0]] = 100.0
    assert fit_spread(slopes, residuals, groups).between["scale"] < 0.3


def test_large_groups_weigh_less_a_row():
    values = np.concatenate([np.zeros(100), np.ones(25)])
    groups = [np.arange(100), np.arange(100, 125)]
    assert weighted_quantile(values, [*groups[:1]]) == 0.0
    assert weighted_quantile(np.concatenate([np.zeros(400), np.ones(25)]), [np.arange(400), np.arange(400, 425)]) == 1.0


def test_few_values_say_nothing_of_their_spread_and_no_range_is_endless():
    few = np.full(9, 0.01)
    assert weighted_quantile(few, [np.arange(9)]) == weighted_quantile(np.zeros(0), []) == 1.64
    assert weighted_quantile(np.full(10, 0.01), [np.arange(10)]) == 0.01
    assert weighted_quantile(np.full(30, 50.0), [np.arange(30)]) == 10.0
