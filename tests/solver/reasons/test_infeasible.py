import re
from dataclasses import replace

import pytest

from autoplan.errors import NoPlanError
from autoplan.units import GIB
from solver.options import SearchOptions
from solver.reasons.changes import with_memory, with_nodes, with_workload
from solver.search.best_first import find, search
from tests.solver.problems import make_cluster, make_model, make_problem, make_profile

NO_LIMITS = SearchOptions()


def refuse(problem, options=NO_LIMITS):
    with pytest.raises(NoPlanError) as caught:
        search(problem, options)
    return caught.value


def actions(error):
    return [remedy.action for remedy in error.remedies]


def large_problem(**more):
    """7 G parameters: 16 bytes each do not fit on four devices of 20 GiB, whatever the configuration."""
    model = make_model(layers=32, hidden=4096, heads=32, kv_heads=32, width=11008)
    return make_problem(model=model, cluster=make_cluster(memory=20 * GIB), global_batch=16, seq_len=4096, **more)


def test_nothing_fits_says_what_is_needed_and_what_there_is():
    error = refuse(large_problem())
    needs, has = (float(number) for number in re.findall(r"([0-9.]+) GiB", error.message)[:2])
    assert has == 20
    assert needs > 20
    assert error.message.startswith("no valid configuration fits: the least that any needs is")


def test_what_is_needed_is_exact():
    """The stated memory is enough, and a MiB less is not."""
    error, problem = refuse(large_problem()), large_problem()
    needs = float(re.search(r"any needs is ([0-9.]+) GiB", error.message).group(1))
    assert find(with_memory(problem, lambda _: int((needs + 0.005) * GIB)), SearchOptions()) is not None
    assert find(with_memory(problem, lambda _: int((needs - 0.006) * GIB)), SearchOptions()) is None


def test_every_remedy_works_and_its_numbers_are_those_of_the_plan():
    problem = large_problem()
    error = refuse(problem)
    remedies = dict(zip(actions(error), error.remedies, strict=True))
    larger = next(action for action in remedies if action.startswith("devices with"))
    memory = float(re.search(r"([0-9.]+) GiB", larger).group(1))
    for action, changed in (
        ("2x nodes (2 nodes, 8 devices)", with_nodes(problem, lambda n: 2 * n)),
        ("optimizer adamw8bit", with_workload(problem, optimizer="adamw8bit")),
        (larger, with_memory(problem, lambda _: int(memory * GIB))),
    ):
        found = find(changed, SearchOptions())
        assert f"fits: {found.peak_memory_bytes / GIB:.2f} GiB a device" in remedies[action].effect
        assert f"recompute {found.configuration.recompute}" in remedies[action].effect


def test_a_remedy_that_does_not_help_is_not_named():
    """States, not activations, are what does not fit: no sequence length helps."""
    assert not any(action.startswith("seq_len") for action in actions(refuse(large_problem())))
    assert "precision bf16" not in actions(refuse(large_problem()))


def test_a_shorter_sequence_helps_where_activations_do_not_fit():
    problem = make_problem(cluster=make_cluster(per_node=1, memory=6 * GIB), global_batch=1, seq_len=65536)
    found = next(action for action in actions(refuse(problem)) if action.startswith("seq_len"))
    shorter = int(found.split()[1])
    assert find(with_workload(problem, seq_len=shorter), SearchOptions()) is not None
    assert find(with_workload(problem, seq_len=2 * shorter), SearchOptions()) is None


def test_a_pinned_recompute_is_named_with_what_full_recompute_needs():
    """With less memory than selective recompute needs, full is what fits."""
    model = make_model(layers=16, vocab=1024)
    problem = make_problem(model=model, cluster=make_cluster(memory=4 * GIB), global_batch=4, seq_len=8192)
    options = SearchOptions(fix={"recompute": "none"}, forbid=("tp>1", "pp>1", "cp>1"))
    error = refuse(problem, options)
    effect = dict(zip(actions(error), error.remedies, strict=True))["drop pin recompute=none"].effect
    assert re.match(r"recompute=full fits: [0-3]\.[0-9]+ GiB a device", effect)
    assert "recompute=none, without tp>1, without pp>1, without cp>1" in error.message


def test_a_pin_that_breaks_a_rule_is_not_a_lack_of_memory():
    error = refuse(make_problem(), SearchOptions(fix={"tp": 3}))
    assert error.message.startswith("no valid configuration (tp=3)")
    assert "tp 3 does not divide feed-forward width 4096, num_heads 8" in error.message
    assert "drop pin tp=3" in actions(error)


def test_context_parallelism_is_refused_by_its_own_rule():
    error = refuse(make_problem(seq_len=1022), SearchOptions(fix={"cp": 2, "cp_method": "allgather"}))
    assert "cp 2 by allgather needs seq_len 1022 in 4 equal parts" in error.message


def test_expert_parallelism_of_a_dense_model_is_refused_by_its_own_rule():
    error = refuse(make_problem(), SearchOptions(fix={"ep": 2}))
    assert "ep 2, etp 1: the model has no experts" in error.message


def test_a_batch_that_nothing_divides_names_the_next_that_works():
    problem = make_problem(model=make_model(layers=1, heads=1, kv_heads=1), global_batch=3, seq_len=1023)
    error = refuse(problem)
    assert "does not divide global_batch 3" in error.message
    assert "global_batch 4, divisible by 4" in actions(error)
    assert find(with_workload(problem, global_batch=4), SearchOptions()) is not None


def test_fewer_nodes_may_be_what_works():
    model = make_model(layers=1, heads=1, kv_heads=1)
    error = refuse(make_problem(model=model, cluster=make_cluster(nodes=3, per_node=1), global_batch=2))
    assert "use 2 of the 3 nodes" in actions(error)


def test_limits_that_only_together_leave_nothing_are_dropped_together():
    error = refuse(make_problem(), SearchOptions(fix={"tp": 3, "pp": 3}))
    assert actions(error)[0] == "drop every pin and forbidden region"


def test_everything_forbidden_is_said_so():
    error = refuse(make_problem(), SearchOptions(forbid=("pp>=1",)))
    assert "what the rules allow is forbidden" in error.message
    assert actions(error)[0] == "allow pp>=1"


def test_pins_of_stages_that_no_configuration_keeps_are_said_so():
    error = refuse(make_problem(), SearchOptions(fix={"tp": 1}, pins={"stages[2].layers": "1"}, forbid=("pp>1",)))
    assert "what the rules allow does not keep the pins of layers and stages" in error.message


def test_runnable_only_can_be_what_leaves_nothing():
    error = refuse(make_problem(optimizer="muon"), SearchOptions(runnable_only=True))
    assert "plan without --runnable-only" in actions(error)


def test_more_memory_counts_where_a_profile_says_what_a_device_has():
    problem = large_problem()
    problem = replace(problem, profile=make_profile(problem.cluster))
    error = refuse(problem)
    assert any(action.startswith("devices with") for action in actions(error))


def test_the_answer_is_the_same_every_time():
    first, second = (refuse(large_problem()) for _ in range(2))
    assert (first.message, first.remedies) == (second.message, second.remedies)
