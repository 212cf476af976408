"""Searches on mixed clusters against every arrangement, configuration and cut as `evaluate` costs them."""

from dataclasses import replace
from itertools import combinations
from math import inf

import numpy as np
import pytest

from autoplan.spec import Cluster, Derate
from autoplan.spec.arrangement import arrangements
from autoplan.units import GIB
from costmodels.batch import Batch
from costmodels.estimate import evaluate
from solver.options import SearchOptions
from solver.search.best_first import search
from solver.search.space import enumerate_space
from tests.solver.problems import make_cluster, make_model, make_problem

NO_RECOMPUTE = {"recompute": "none"}


def make_mixed(*speeds, memory=80 * GIB, model=None, **workload):
    """A node of two devices for every speed; those at full speed have less memory."""
    groups = []
    for speed in speeds:
        (group,) = make_cluster(per_node=2, memory=memory if speed == 1 else 2 * memory).groups
        groups.append(replace(group, derate=Derate(compute=speed)))
    cluster = Cluster(name="mixed", groups=tuple(groups))
    return make_problem(model=model or make_model(layers=4), cluster=cluster, **{"global_batch": 12} | workload)


def best_of_all(problem, options):
    """The least step time of all plans that fit, over every order of the nodes."""
    best = inf
    for arranged in arrangements(problem):
        space, layers = enumerate_space(arranged, options), arranged.model.num_layers
        for pp in np.unique(space.pp[space.virtual_stages == 1]).tolist():
            some = space.take((space.pp == pp) & (space.virtual_stages == 1))
            for inner in combinations(range(1, layers), pp - 1):
                cuts = np.tile(np.asarray((0, *inner, layers)), (len(some), 1))
                found = evaluate(arranged, replace(some, cuts=cuts))
                best = min(best, float(np.where(found.fits, found.step_seconds, inf).min()))
    return best


@pytest.mark.parametrize(
    ("speeds", "memory"),
    [((1, 0.5), 80 * GIB), ((0.5, 1), 5 * GIB), ((1, 0.6, 0.3), 5 * GIB), ((1, 0.7, 1), 80 * GIB)],
)
def test_no_plan_is_better_in_any_order(speeds, memory):
    problem = make_mixed(*speeds, memory=memory)
    options = SearchOptions(fix=NO_RECOMPUTE | {"micro_batch": 1}, forbid=("virtual_stages>1", "cp>1"), top=0)
    found = search(problem, options)
    assert found.search.status == "optimal"
    assert found.best.step_seconds == pytest.approx(best_of_all(problem, options), rel=1e-9)


def test_uneven_shares_are_found_where_there_is_one_stage():
    problem = make_mixed(1, 0.5, global_batch=12, seq_len=4096)
    found = search(problem, SearchOptions(fix=NO_RECOMPUTE | {"pp": 1, "tp": 1, "dp_replicate": 4}, top=0)).best
    assert found.configuration.uneven_shares
    even = search(problem, SearchOptions(fix=NO_RECOMPUTE, runnable_only=True, top=0)).best
    assert not even.configuration.uneven_shares
    assert even.node_order is None


def test_nodes_that_are_alike_have_no_uneven_shares():
    space = enumerate_space(make_problem(cluster=make_cluster(nodes=2)), SearchOptions())
    assert not space.uneven_shares.any()
    batch: Batch = enumerate_space(make_mixed(1, 0.5), SearchOptions())
    assert (batch.pp[batch.uneven_shares] == 1).all()
    assert batch.uneven_shares.any()


def test_of_equal_orders_the_given_one_is_taken():
    problem = make_mixed(1, 0.5, 1)
    best = search(problem, SearchOptions(fix=NO_RECOMPUTE | {"dp_replicate": 3, "pp": 1}, top=0)).best
    assert best.node_order is None
