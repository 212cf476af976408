from dataclasses import replace

import pytest

from autoplan.errors import ConfigurationError, ProfileError
from autoplan.spec import Configuration
from autoplan.units import format_seconds
from costmodels.batch import RECOMPUTES
from costmodels.estimate import estimate, timeline
from solver.assemble import assemble
from solver.options import SearchOptions
from solver.reasons.changes import with_memory
from solver.reasons.explain import explain
from solver.search.best_first import find, search
from tests.solver.problems import make_model, make_problem, make_profile


def make_plan(problem, **fix):
    best = search(problem, SearchOptions(fix=fix)).best
    costs = estimate(problem, best.configuration, best.cuts, layers=best.layers)
    return assemble(problem, best.configuration, best.cuts, recompute=best.recompute, estimate=costs)


def test_shares_are_of_the_whole_step_and_largest_first():
    plan = make_plan(make_problem())
    shares = explain(plan).shares
    assert sum(shares.values()) == pytest.approx(1)
    assert list(shares.values()) == sorted(shares.values(), reverse=True)


def test_the_slowest_stage_and_the_fullest_are_named():
    plan = make_plan(make_problem(model=make_model(layers=6, vocab=128000)), pp=2)
    explanation = explain(plan)
    slowest = max(explanation.stages, key=lambda stage: stage.micro_batch_seconds)
    fullest = min(explanation.stages, key=lambda stage: stage.headroom_bytes)
    assert explanation.binds[0].startswith(f"stage {slowest.stage} of 2 sets the pace: {slowest.num_layers} layers")
    assert explanation.binds[1].startswith(f"stage {fullest.stage} has least memory left")
    for stage in explanation.stages:
        assert stage.memory_bytes + stage.headroom_bytes == explanation.memory_limit_bytes
    assert sum(stage.num_layers for stage in explanation.stages) == 6


def test_what_pins_cost_is_not_put_down_to_memory():
    ample = with_memory(make_problem(), lambda _: 2**50)
    free, pinned = make_plan(ample), make_plan(ample, micro_batch=1, recompute="none", pp=2)
    assert pinned.estimate.step_seconds > free.estimate.step_seconds
    *_, faster, binds = explain(pinned, seconds_each=60.0).binds
    assert faster.startswith(f"a plan of {format_seconds(free.estimate.step_seconds)} a step fits too")
    assert binds.startswith("memory does not bind")


def test_memory_binds_where_more_of_it_would_be_faster():
    """The best plan with ample memory fits no more when a device has a byte less than that plan needs."""
    ample = make_problem(seq_len=8192)
    needed = find(ample, SearchOptions()).peak_memory_bytes
    assert explain(make_plan(ample)).binds[2].startswith("memory does not bind")
    tight = with_memory(ample, lambda _: needed - 1)
    assert explain(make_plan(tight)).binds[2].startswith("memory binds: with enough of it a step would take")


def test_terms_are_the_seconds_of_the_shares():
    plan = make_plan(make_problem())
    explanation = explain(plan)
    for term, seconds in explanation.terms.items():
        assert seconds == explanation.shares[term] * plan.estimate.step_seconds
    assert explanation.complete


def test_neighbours_and_the_named_alternative_are_compared():
    plan = make_plan(make_problem())
    explanation = explain(plan, why_not={"tp": 4, "pp": 1})
    assert explanation.why_not.pins == {"tp": 4, "pp": 1}
    assert explanation.why_not.configuration.tp == 4
    named = {name for other in explanation.neighbours for name in other.pins}
    assert {"tp", "pp", "cp", "dp_shard", "micro_batch", "schedule", "virtual_stages", "recompute"} <= named


def test_what_is_cut_short_is_told():
    explanation = explain(make_plan(make_problem()), seconds_each=1e-9)
    assert not explanation.complete
    assert "may bind" in explanation.binds[2]
    assert all(other.bound is not None for other in explanation.neighbours)


def test_why_not_of_what_the_plan_is_already_is_refused():
    plan = make_plan(make_problem())
    with pytest.raises(ConfigurationError, match="--why-not"):
        explain(plan, why_not={"tp": plan.configuration.tp})


def test_a_plan_is_explained_with_its_own_profile_only():
    problem = make_problem()
    profile = make_profile(problem.cluster)
    measured = make_plan(replace(problem, profile=profile))
    assert explain(measured, profile=profile).plan_id == measured.id
    with pytest.raises(ProfileError, match="--profile: the plan was made with the profile"):
        explain(measured)
    with pytest.raises(ProfileError, match="the plan was made without a profile"):
        explain(make_plan(problem), profile=profile)


@pytest.mark.parametrize(
    ("degrees", "cuts", "layers"),
    [
        ({"recompute": "full"}, (0, 3, 6), (0, 2, 0, 2, 2, 1)),
        ({"schedule": "interleaved", "virtual_stages": 2}, (0, 1, 3, 5, 6), (0,) * 6),
        ({"schedule": "zb-v", "virtual_stages": 2}, (0, 1, 3, 5, 6), (0,) * 6),
    ],
)
def test_what_a_stage_takes_is_of_all_its_chunks_and_of_its_own_layers(degrees, cuts, layers):
    """As in the timeline."""
    problem = make_problem(model=make_model(layers=6))
    configuration = Configuration(pp=2, dp_replicate=2, **degrees)
    costs = estimate(problem, configuration, cuts, layers=layers)
    names = tuple(RECOMPUTES[mode] for mode in layers)
    plan = assemble(problem, configuration, cuts, recompute=names, estimate=costs)
    events = timeline(problem, configuration, cuts, layers=layers)
    for load in explain(plan, seconds_each=1e-9).stages:
        kinds = {"forward", "backward", "weight"}
        seconds = sum(e.duration_seconds for e in events if e.stage == load.stage and e.kind in kinds)
        assert load.micro_batch_seconds == pytest.approx(seconds / plan.schedule.num_microbatches)
