from dataclasses import replace

import numpy as np
import pytest

from autoplan.spec import Configuration
from costmodels.coefficients import Coefficients
from costmodels.estimate import estimate
from costmodels.settling import settle
from tests.costmodels.measured_points import make_point
from tests.costmodels.problems import make_cluster, make_group, make_problem

FULL = Configuration(dp_replicate=8, recompute="full")
NONE = Configuration(dp_replicate=8, recompute="none")


def make_open(*alternatives, problem=None, **changes):
    return make_point(
        "a", problem=problem or make_problem(), configuration=alternatives[0], alternatives=alternatives, **changes
    )


def chosen(point):
    return settle([point], Coefficients()).runs.batch.configuration(0)


@pytest.mark.parametrize("order", [(FULL, NONE), (NONE, FULL)])
def test_the_fastest_candidate_that_fits_is_taken(order):
    assert chosen(make_open(*order)) == NONE


def test_a_faster_one_that_does_not_fit_is_not():
    needed = {c.recompute: estimate(make_problem(seq_len=2048), c).peak_memory_bytes for c in (FULL, NONE)}
    between = sum(needed.values()) // 2
    small = make_problem(cluster=make_cluster(make_group(memory_bytes=between)), seq_len=2048)
    assert needed["full"] < between < needed["none"]
    assert chosen(make_open(NONE, FULL, problem=small)) == FULL


def test_the_likeliest_is_taken_where_none_fits():
    tiny = make_problem(cluster=make_cluster(make_group(memory_bytes=2**30 + 1)))
    settled = settle([make_open(FULL, NONE, problem=tiny)], Coefficients())
    assert settled.runs.batch.configuration(0) == FULL
    assert not settled.fits[0]


def test_candidates_that_break_a_rule_are_left_out():
    assert chosen(make_open(replace(NONE, tp=3), FULL)) == FULL


def test_points_come_back_in_their_order_with_the_reasons_of_the_others():
    first, second = make_problem(), make_problem(seq_len=128)
    points = [
        make_open(NONE, problem=first),
        make_open(FULL, problem=second),
        make_open(replace(NONE, tp=3), problem=first),
        make_point("x", problem=None, configuration=None, skipped_reason="odd"),
        make_open(FULL, problem=first),
    ]
    settled = settle(points, Coefficients())
    assert settled.points == (points[0], points[1], points[4])
    assert [settled.runs.problems[i].workload.seq_len for i in settled.runs.problem_of] == [64, 128, 64]
    assert settled.reasons[:2] == (None, None)
    assert "tp" in settled.reasons[2]
    assert settled.reasons[3:] == ("odd", None)


def test_memory_is_the_estimate_s_without_what_the_allocator_does_not_hand_out():
    problem = make_problem()
    c = Configuration(dp_replicate=4, pp=2)
    settled = settle([make_open(c, problem=problem)], Coefficients())
    held = [stage.terms for stage in estimate(problem, c, coefficients=Coefficients()).memory]
    beside = ("communication", "runtime")
    reserved = max(sum(n for name, n in terms.items() if name not in beside) for terms in held)
    allocated = max(sum(n for name, n in terms.items() if name not in (*beside, "fragmentation")) for terms in held)
    np.testing.assert_allclose(settled.reserved_bytes, [reserved], rtol=1e-6)
    np.testing.assert_allclose(settled.allocated_bytes, [allocated], rtol=1e-6)


def test_nothing_comes_of_nothing():
    assert settle([], Coefficients()).runs is None
