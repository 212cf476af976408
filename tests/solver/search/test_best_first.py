import os
import subprocess
import sys
from dataclasses import replace
from math import inf
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoplan.errors import NoPlanError
from costmodels.cuts import chunk_cuts
from costmodels.estimate import evaluate
from solver.options import SearchOptions
from solver.result import simplicity
from solver.search.best_first import attempt, find, search
from solver.search.space import enumerate_space
from tests.solver.problems import make_cluster, make_model, make_problem
from tests.solver.stages.test_best import every_cut

ROOT = Path(__file__).parents[3]


def brute_force(problem, options):
    """The fastest time of every kind of plan that fits, over all its cuts, where layers repeat nothing."""
    space = enumerate_space(problem, options)
    least = np.full(len(space), inf)
    for pp in np.unique(space.pp):
        rows = np.flatnonzero((space.pp == pp) & (space.virtual_stages == 1))
        cuts = every_cut(problem.model.num_layers, pp)
        each = np.repeat(rows, len(cuts))
        enter(least, each, problem, replace(space.take(each), cuts=np.tile(cuts, (len(rows), 1))))
    if len(several := np.flatnonzero(space.virtual_stages > 1)):
        batch, index = chunk_cuts(problem, space.take(several))
        enter(least, several[index], problem, batch)
    times = {}
    for i in np.flatnonzero(least < inf):
        kind = kind_without_layers(space.configuration(i))
        times[kind] = min(times.get(kind, inf), least[i])
    return times


def enter(least, rows, problem, batch):
    """Keep the least time of what fits of a batch, whose configurations have the places `rows` in `least`."""
    evaluation = evaluate(problem, batch)
    np.minimum.at(least, rows, np.where(evaluation.fits, evaluation.step_seconds, inf))


def kind_without_layers(configuration):
    """What makes plans distinct, where all layers repeat as much as the configuration allows."""
    return replace(configuration, zero_stage=0, sequence_parallel=False, cp_method="allgather")


@st.composite
def problems(draw):
    nodes, per_node = draw(st.sampled_from([(1, 2), (1, 4), (2, 2), (3, 1), (2, 4)]))
    widths = st.sampled_from([256, 1024, 4096])
    return make_problem(
        model=make_model(
            hidden=256,
            heads=4,
            kv_heads=2,
            pattern=tuple(draw(st.lists(widths, min_size=2, max_size=5))),
            vocab=draw(st.sampled_from([512, 64000])),
        ),
        cluster=make_cluster(
            nodes=nodes,
            per_node=per_node,
            memory=draw(st.sampled_from([0.2e9, 0.5e9, 2e9])),
            intra=draw(st.sampled_from([1e9, 3e11])),
            inter=draw(st.sampled_from([1e8, 4e10])),
            kind=draw(st.sampled_from(["cuda", "cpu"])),
        ),
        global_batch=draw(st.sampled_from([2, 4, 6])),
        seq_len=draw(st.sampled_from([64, 512])),
    )


@given(problem=problems(), top=st.sampled_from([0, 2]))
@settings(deadline=None, max_examples=50)
def test_the_search_finds_what_brute_force_finds(problem, top):
    options = SearchOptions(fix={"recompute": "none"}, top=top)
    times = brute_force(problem, options)
    if not times:
        assert find(problem, options) is None
        return
    result = search(problem, options)
    expected = sorted(times.values())[: top + 1]
    assert result.best.step_seconds == pytest.approx(expected[0], rel=1e-8)
    assert [x.step_seconds for x in result.alternatives] == pytest.approx(expected[1:], rel=1e-8)
    assert result.search.status == "optimal"
    assert result.search.gap == 0
    assert result.search.lower_bound == result.best.step_seconds
    assert 0 < result.search.explored <= len(enumerate_space(problem, options))


def test_of_equals_the_leaner_and_simpler_comes_first():
    result = search(make_problem(), SearchOptions(top=40))
    leaders = [result.best, *result.alternatives]
    keys = [(float(f"{x.step_seconds:.10g}"), x.peak_memory_bytes, simplicity(x.configuration)) for x in leaders]
    assert keys == sorted(keys)
    assert len({kind_without_layers(x.configuration) for x in leaders}) == len(leaders)


def test_the_same_input_gives_the_same_result():
    first, second = (search(make_problem(), SearchOptions()) for _ in range(2))
    assert (first.best, first.alternatives) == (second.best, second.alternatives)
    assert first.search.explored == second.search.explored


def test_progress_names_incumbent_bound_and_gap():
    seen = []
    result = search(make_problem(), SearchOptions(), on_progress=seen.append)
    assert [p.phase for p in seen] == ["bounds", *["search"] * (len(seen) - 2), "done"]
    assert seen[0].incumbent_seconds is None
    assert seen[0].bound > 0
    assert seen[-1].incumbent_seconds == result.best.step_seconds
    assert seen[-1].gap == 0
    bounds = [p.bound for p in seen]
    assert bounds == sorted(bounds)
    assert all(0 <= p.gap <= 1 for p in seen if p.gap is not None)


def large_problem():
    return make_problem(
        model=make_model(layers=48, hidden=8192, heads=64, kv_heads=8, width=28672, vocab=128256),
        cluster=make_cluster(nodes=32, per_node=8),
        global_batch=1024,
        seq_len=4096,
    )


def stop_when_found(progress):
    if progress.phase == "search" and progress.incumbent_seconds is not None:
        raise KeyboardInterrupt


def test_an_interrupt_gives_the_incumbent_and_its_gap(monkeypatch):
    """With one configuration at a time the first incumbent comes while bounds of others are below its time."""
    monkeypatch.setattr("solver.search.best_first.AT_FIRST", (16, 32, 64, 32, 1))
    options = SearchOptions(fix={"pp": 8}, top=0)
    whole = search(large_problem(), options)
    stopped = search(large_problem(), options, on_progress=stop_when_found)
    assert stopped.search.status == "feasible"
    assert stopped.search.explored < whole.search.explored
    assert stopped.search.lower_bound < whole.best.step_seconds <= stopped.best.step_seconds
    assert stopped.search.gap == pytest.approx(1 - stopped.search.lower_bound / stopped.best.step_seconds)
    assert stopped.search.gap > 0
    assert whole.search.status == "optimal"


def test_an_interrupt_before_anything_is_found_says_so():
    def stop_at_once(progress):
        raise KeyboardInterrupt

    with pytest.raises(NoPlanError, match="no plan found yet") as caught:
        search(large_problem(), SearchOptions(), on_progress=stop_at_once)
    assert caught.value.remedies


def test_a_time_limit_ends_the_search():
    with pytest.raises(NoPlanError, match="no plan found yet") as caught:
        search(large_problem(), SearchOptions(time_limit_seconds=1e-9))
    assert caught.value.remedies[0].action == "time limit of 10 s"


def test_a_deep_model_on_many_devices_has_a_plan_with_a_bound():
    """All cuts of one micro-batch take about as long: those found near the even ones stand, with a gap."""
    problem = make_problem(
        model=make_model(layers=1000, hidden=64, heads=8, kv_heads=4, width=128, vocab=256),
        cluster=make_cluster(nodes=128, per_node=8),
        global_batch=1024,
        seq_len=512,
    )
    result = search(problem, SearchOptions(top=0, fix={"pp": 4, "micro_batch": 4}))
    assert 0 < result.search.lower_bound <= result.best.step_seconds
    assert result.search.gap < 0.05


def test_pins_are_honoured():
    options = SearchOptions(fix={"pp": 2, "recompute": "full"}, forbid=("tp>1",), top=5)
    result = search(make_problem(), options)
    for found in (result.best, *result.alternatives):
        c = found.configuration
        assert (c.pp, c.recompute, c.tp) == (2, "full", 1)
    assert result.best.step_seconds >= search(make_problem(), SearchOptions()).best.step_seconds


def test_runnable_only_leaves_out_what_the_executor_refuses():
    assert (
        search(make_problem(), SearchOptions(runnable_only=True)).best == search(make_problem(), SearchOptions()).best
    )
    assert find(make_problem(optimizer="muon"), SearchOptions()) is not None
    assert find(make_problem(optimizer="muon"), SearchOptions(runnable_only=True)) is None


def test_control_c_in_a_process_of_its_own_gives_an_answer():
    code = (
        "import os, signal\n"
        "from solver.options import SearchOptions\n"
        "from solver.search.best_first import search\n"
        "from tests.solver.search.test_best_first import large_problem\n"
        "def interrupt(progress):\n"
        "    if progress.incumbent_seconds is not None:\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "print(search(large_problem(), SearchOptions(), on_progress=interrupt).search.status)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() in {"feasible", "optimal"}


def test_an_attempt_finds_no_plan_above_its_reach():
    problem = make_problem()
    best = find(problem, SearchOptions())
    whole = attempt(problem, SearchOptions())
    assert (whole.found, whole.complete) == (best, True)
    assert whole.bound == pytest.approx(best.step_seconds)
    assert attempt(problem, SearchOptions(), reach=best.step_seconds * (1 + 1e-6)).found == best
    below = attempt(problem, SearchOptions(), reach=best.step_seconds * 0.99)
    assert (below.found, below.complete) == (None, True)
    assert below.bound == best.step_seconds * 0.99


def test_an_attempt_that_is_cut_short_says_so():
    cut = attempt(make_problem(), SearchOptions(time_limit_seconds=1e-9))
    assert (cut.found, cut.complete) == (None, False)
    assert cut.bound >= 0
