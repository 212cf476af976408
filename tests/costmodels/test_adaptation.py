import numpy as np
import pytest

from autoplan.spec import Configuration
from costmodels.adaptation import MOST_DIRECTIONS, adapt, choose_rows, predict_runs, unadapted
from costmodels.coefficients import Coefficients
from costmodels.counted_runs import count_runs
from costmodels.directions import DIRECTIONS, along, sensitivities
from costmodels.spread import Spread
from tests.costmodels.problems import make_cluster, make_group, make_problem

BETWEEN = {"scale": 0.1, "memory": 0.2, "nvlink": 0.5, "network": 0.5, "host": 0.3, "jitter": 0.3, "contention": 0.2}
COEFFICIENTS = Coefficients(spread=Spread(between=BETWEEN, residual=0.02, quantile=1.5, learned_quantile=2.0))


@pytest.fixture(scope="module")
def runs():
    problem = make_problem(cluster=make_cluster(make_group(2)), seq_len=4096, global_batch=64)
    configurations = [
        Configuration(dp_replicate=16),
        Configuration(dp_shard=16, zero_stage=3),
        Configuration(tp=2, dp_replicate=8),
        Configuration(tp=4, dp_replicate=4),
        Configuration(tp=8, dp_replicate=2, micro_batch=2),
        Configuration(tp=8, dp_replicate=2, recompute="full"),
    ]
    return count_runs([(problem, c) for c in configurations], COEFFICIENTS)


ALL = np.ones(6, dtype=np.bool_)


def test_every_direction_slows_or_speeds_by_its_own_coefficients(runs):
    base = runs.step_seconds(COEFFICIENTS)
    for name in DIRECTIONS:
        faster = runs.step_seconds(along(COEFFICIENTS, [name], np.array([0.1])))
        assert (faster <= base * (1 + 1e-9)).all(), name
    names = list(BETWEEN)
    slopes = dict(zip(names, sensitivities(runs, COEFFICIENTS, names).T, strict=True))
    assert slopes["scale"] == pytest.approx(-1.0, abs=0.05)
    assert slopes["nvlink"][4] < slopes["nvlink"][2] < 0


def test_rows_are_chosen_where_least_is_known_and_not_twice_for_the_same():
    slopes = np.array([[1.0, 0.0], [2.0, 0.0], [1.9, 0.0], [0.0, 0.5]])
    candidates = np.array([True, True, True, True])
    assert choose_rows(slopes, np.array([1.0, 1.0]), 0.01, candidates, 2) == [1, 3]
    assert choose_rows(slopes, np.array([1.0, 1.0]), 0.01, np.array([True, False, False, True]), 9) == [0, 3]


def test_what_is_behind_a_few_rows_is_found_for_the_others(runs):
    hidden = along(COEFFICIENTS, ["scale", "nvlink"], np.array([-0.15, -0.6]))
    seconds = runs.step_seconds(hidden)
    adapted, rows = adapt(runs, seconds, ALL, COEFFICIENTS, 3)
    others = np.setdiff1d(np.arange(6), rows)
    before = np.abs(runs.step_seconds(COEFFICIENTS) / seconds - 1)[others]
    after = np.abs(runs.step_seconds(adapted.coefficients) / seconds - 1)[others]
    assert len(rows) == 3
    assert before.mean() > 0.1
    assert after.mean() < 0.04


def test_one_run_that_is_off_does_not_spoil_the_others(runs):
    """Of three runs as predicted, one took twice as long: least squares would slow the others by a fourth."""
    scale = Coefficients(spread=Spread(between={"scale": 0.5}, residual=0.02, quantile=1.5, learned_quantile=2.0))
    seconds = runs.step_seconds(scale)
    _, rows = adapt(runs, seconds, ALL, scale, 3)
    seconds[rows[0]] *= 2
    adapted, _ = adapt(runs, seconds, ALL, scale, 3)
    others = np.setdiff1d(np.arange(6), rows)
    assert (runs.step_seconds(adapted.coefficients) / seconds)[others] == pytest.approx(1, abs=0.05)


def test_at_most_six_directions_are_fitted(runs):
    adapted, _ = adapt(runs, runs.step_seconds(COEFFICIENTS) * 1.2, ALL, COEFFICIENTS, 3)
    before, after = np.square(list(BETWEEN.values())), adapted.covariance.diagonal()
    assert (after < before * (1 - 1e-9)).sum() <= MOST_DIRECTIONS < len(BETWEEN)


def test_learning_leaves_less_unknown(runs):
    adapted, _ = adapt(runs, runs.step_seconds(COEFFICIENTS), ALL, COEFFICIENTS, 3)
    before, after = unadapted(COEFFICIENTS).log_deviations(runs), adapted.log_deviations(runs)
    assert (after < before).all()
    assert (after >= COEFFICIENTS.spread.residual).all()


@pytest.mark.parametrize(("candidates", "count"), [(ALL, 0), (np.zeros(6, dtype=np.bool_), 3)])
def test_without_rows_nothing_is_learned(runs, candidates, count):
    adapted, rows = adapt(runs, np.full(6, np.nan), candidates, COEFFICIENTS, count)
    assert (adapted.coefficients, rows) == (COEFFICIENTS, [])


def test_groups_learn_apart(runs):
    base = runs.step_seconds(COEFFICIENTS)
    measured = base * np.array([1.3, 1.3, 1.3, 1.0, 1.0, 1.0])
    groups = [np.arange(3), np.arange(3, 6)]
    found = predict_runs(runs, COEFFICIENTS, groups=groups, measured=measured, candidates=ALL, count=2)
    assert found.learned.reshape(2, 3).sum(axis=1).tolist() == [2, 2]
    assert found.seconds == pytest.approx(measured, rel=0.05)
    assert np.unique(found.quantiles).tolist() == [2.0]


def test_the_range_is_as_wide_as_the_deviations_say(runs):
    found = predict_runs(runs, COEFFICIENTS, groups=[np.arange(6)], measured=np.full(6, np.nan), candidates=~ALL)
    assert found.high / found.seconds == pytest.approx(np.exp(1.5 * found.deviations))
    assert found.low * found.high == pytest.approx(found.seconds**2)
    assert not found.learned.any()
