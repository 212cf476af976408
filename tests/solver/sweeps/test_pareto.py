from dataclasses import replace

import numpy as np
import pytest

from autoplan.errors import ConfigurationError
from autoplan.units import GIB
from costmodels.estimate import evaluate
from solver.options import SearchOptions
from solver.pins import LayerPins
from solver.search.best_first import find
from solver.search.space import enumerate_space
from solver.sweeps import series
from solver.sweeps.front import without_dominated
from solver.sweeps.pareto import cost_front, memory_front
from tests.solver.problems import make_cluster, make_model, make_problem

ONE_STAGE = {"pp": 1, "cp": 1, "recompute": "none"}


def priced(cluster, price):
    groups = tuple(replace(group, device=replace(group.device, price_per_hour=price)) for group in cluster.groups)
    return replace(cluster, groups=groups)


def every_plan(problem, fix):
    """Step times and peaks of all configurations of one stage, by brute force."""
    found = evaluate(problem, enumerate_space(problem, SearchOptions(fix=fix)))
    return found.step_seconds[found.fits], np.round(found.peak_memory_bytes[found.fits])


def front_of(seconds, needed):
    """The pairs that no other pair is as good as in both, fastest first."""
    pairs, kept = sorted(zip(seconds.tolist(), needed.tolist(), strict=True)), []
    for pair in pairs:
        if not kept or pair[1] < kept[-1][1]:
            kept.append(pair)
    return kept


def test_with_the_smallest_steps_every_point_of_the_front_is_found():
    problem = make_problem(cluster=make_cluster(memory=20 * GIB), seq_len=4096)
    front = memory_front(problem, SearchOptions(fix=ONE_STAGE), most=20 * GIB)
    expected = front_of(*every_plan(problem, ONE_STAGE))
    assert len(expected) > 3
    found = [(point.step_seconds, point.peak_memory_bytes) for point in front.points]
    assert np.asarray(found) == pytest.approx(np.asarray(expected))
    assert front.complete


def test_few_points_are_on_the_front_and_end_with_the_leanest():
    problem = make_problem(cluster=make_cluster(memory=20 * GIB), seq_len=4096)
    front = memory_front(problem, SearchOptions(fix=ONE_STAGE), most=4)
    every = front_of(*every_plan(problem, ONE_STAGE))
    points = [(point.step_seconds, point.peak_memory_bytes) for point in front.points]
    assert 2 <= len(points) <= 4 < len(every)
    for point in points:
        assert min(abs(point[0] / other[0] - 1) + abs(point[1] - other[1]) for other in every) < 1e-6
    assert points[-1] == pytest.approx(every[-1])
    assert front.left_out == ()


def test_pipelines_too_need_ever_less_and_take_ever_longer():
    problem = make_problem(model=make_model(layers=6), cluster=make_cluster(memory=12 * GIB), seq_len=4096)
    seen = []
    front = memory_front(
        problem, SearchOptions(fix={"pp": 2, "cp": 1, "schedule": "1f1b"}), most=6, on_point=seen.append
    )
    assert list(front.points) == seen
    for faster, leaner in zip(front.points, front.points[1:], strict=False):
        assert faster.step_seconds < leaner.step_seconds
        assert faster.peak_memory_bytes > leaner.peak_memory_bytes
        assert LayerPins.parse(leaner.pins).cuts[-1] == 6
    best = find(problem, SearchOptions(fix={"pp": 2, "cp": 1, "schedule": "1f1b"}))
    assert front.points[0].step_seconds == best.step_seconds


def test_a_front_on_which_nothing_fits_has_no_points():
    front = memory_front(make_problem(cluster=make_cluster(memory=GIB // 2)), SearchOptions())
    assert front.points == ()
    assert front.complete


def test_cost_is_weighed_over_all_numbers_of_nodes():
    cluster = priced(make_cluster(nodes=4, per_node=2), 3.0)
    problem = make_problem(cluster=cluster, global_batch=48, seq_len=4096)
    front = cost_front([problem], SearchOptions(fix={"pp": 1}))
    pairs = []
    for nodes in (1, 2, 3, 4):
        smaller = replace(problem, cluster=replace(cluster, groups=(replace(cluster.groups[0], num_nodes=nodes),)))
        best = find(smaller, SearchOptions(fix={"pp": 1}))
        pairs.append((best.step_seconds, best.step_seconds * 2 * nodes * 3.0 / 3600))
    expected = front_of(*np.asarray(pairs).T)
    found = [(point.step_seconds, point.cost) for point in front.points]
    assert np.asarray(found) == pytest.approx(np.asarray(expected))
    assert len(found) > 1
    assert front.cost_unit == "USD"


def test_clusters_are_compared_and_the_dominated_left_out():
    good = priced(make_cluster(slug="good"), 1.0)
    bad = priced(make_cluster(slug="bad", intra=1e9), 2.0)
    front = cost_front(
        [make_problem(cluster=each) for each in (replace(good, name="g"), replace(bad, name="b"))], SearchOptions()
    )
    assert {point.cluster for point in front.points} == {"g"}


def test_costs_of_unknown_prices_are_device_hours_of_one_kind_of_device():
    problem = make_problem(cluster=make_cluster())
    front = cost_front([problem], SearchOptions())
    assert front.cost_unit == "device-hours"
    assert front.points[0].cost == pytest.approx(front.points[0].step_seconds * 4 / 3600)
    other = make_problem(cluster=make_cluster(slug="other"))
    with pytest.raises(ConfigurationError, match="the price of h100-80g-sxm, other is not known"):
        cost_front([problem, other], SearchOptions())


def test_a_time_limit_leaves_out_what_was_cut_short_and_says_so():
    problem = make_problem(model=make_model(layers=24), cluster=make_cluster(nodes=4))
    front = memory_front(problem, SearchOptions(time_limit_seconds=1e-4))
    assert front.points == ()
    assert not front.complete
    assert "the time did not suffice" in front.left_out[0]


def test_ctrl_c_keeps_the_points_that_are_there(monkeypatch):
    problem = make_problem(cluster=make_cluster(memory=20 * GIB), seq_len=4096)
    left = [2]

    def interrupted(*arguments, **options):
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        return attempt(*arguments, **options)

    attempt = series.attempt
    monkeypatch.setattr(series, "attempt", interrupted)
    front = memory_front(problem, SearchOptions(fix=ONE_STAGE))
    assert len(front.points) == 2
    assert not front.complete
    assert "interrupted" in front.left_out[-1]


def test_of_equally_good_points_one_stays():
    front = memory_front(make_problem(), SearchOptions(fix=ONE_STAGE), most=1)
    point = front.points[0]
    slower = replace(point, step_seconds=2 * point.step_seconds)
    cheaper = replace(slower, cost=point.cost / 2)
    assert without_dominated([slower, cheaper, point, point]) == (point, cheaper)
