from dataclasses import replace

import numpy as np
import pytest

from autoplan.spec import AUTOPLAN, Configuration
from costmodels.coefficients import Coefficients
from costmodels.estimate import estimate, evaluate, stage_costs
from costmodels.evaluation import rank_memory
from costmodels.pipeline import simulate
from costmodels.resolved import resolve
from costmodels.stage_costs import count_units, ranks_of_chunks, sum_units
from costmodels.step_terms import (
    SEARCHED,
    bound_finish,
    finish_ranks,
    pair_savings,
    simulate_events,
    step_terms,
    step_total,
)
from costmodels.unit_seconds import unit_seconds
from tests.costmodels.problems import (
    SCHEDULES,
    dear_experts,
    families,
    make_batch,
    make_cluster,
    make_group,
    make_problem,
    random_configurations,
    random_cuts,
)

KNOWN = [schedule for schedule in SCHEDULES if schedule not in SEARCHED]


def problem_of(name="llama", *, kind="cuda", nodes=2, **workload):
    return make_problem(
        families()[name], cluster=make_cluster(make_group(nodes, 8 // nodes, kind=kind)), global_batch=48, **workload
    )


def pipelines(problem, count, *, schedules=SCHEDULES, seed=0):
    """Configurations with their random cuts."""
    configurations = random_configurations(problem, count, seed, schedules=schedules)
    return configurations, make_batch(problem, *configurations, cuts=random_cuts(problem, configurations, seed))


def simulated_ends(batch, costs, counts, i):
    """When each rank of configuration i is done, by the simulation of its own events and the last send of a rank."""
    pp, v = int(batch.pp[i]), int(batch.virtual_stages[i])

    def chunks(units):
        return sum_units(counts[i : i + 1], units[i : i + 1])[0, : pp * v]

    weight = chunks(costs.weight_seconds)
    _, events = simulate(
        str(batch.schedule[i]),
        pp=pp,
        virtual_stages=v,
        forward=chunks(costs.forward_seconds),
        backward=chunks(costs.backward_seconds) - weight,
        weight=weight,
        num_microbatches=int(costs.num_microbatches[i]),
        send_seconds=float(costs.send_seconds[i]),
        send_blocks=bool(costs.send_blocks[i]),
    )
    ends, starts = np.zeros(pp), np.full(pp, np.inf)
    ranks = ranks_of_chunks(batch)[i]
    for event in events:
        sends = (
            costs.send_blocks[i] and event.kind == "backward" and ranks[event.chunk] != ranks[max(event.chunk - 1, 0)]
        )
        end = event.start_seconds + event.duration_seconds + sends * costs.send_seconds[i]
        ends[event.stage] = max(ends[event.stage], end)
        starts[event.stage] = min(starts[event.stage], event.start_seconds)
    return ends - starts if batch.schedule[i] in SEARCHED else ends


def by_rank(batch, counts, units, i):
    """The sum over the chunks of each rank of configuration i."""
    totals = np.zeros(int(batch.pp[i]))
    np.add.at(totals, ranks_of_chunks(batch)[i], sum_units(counts, units)[i])
    return totals


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
@pytest.mark.parametrize("name", sorted(families()))
def test_a_step_is_the_pipeline_then_what_is_left_of_reductions_then_the_optimizer(kind, name):
    """Every schedule that has an array form gives what its simulation gives, whatever the cuts."""
    problem = problem_of(name, kind=kind)
    configurations, batch = pipelines(problem, 40, schedules=KNOWN)
    costs, counts, result = stage_costs(problem, batch), count_units(problem.model, batch), evaluate(problem, batch)
    for i in range(len(configurations)):
        finish = simulated_ends(batch, costs, counts, i)
        reduced = finish + by_rank(batch, counts, costs.reduce_seconds, i)
        optimizer = by_rank(batch, counts, costs.optimizer_seconds, i)
        step = (reduced.max() + optimizer.max()) * (1 + costs.jitter) + costs.step_seconds
        assert result.step_seconds[i] == pytest.approx(step), configurations[i]


def test_memory_is_the_sum_of_a_rank_s_chunks_and_once_what_every_rank_has():
    problem = problem_of("moe")
    configurations, batch = pipelines(problem, 80)
    costs, counts, result = stage_costs(problem, batch), count_units(problem.model, batch), evaluate(problem, batch)
    assert any(configuration.virtual_stages > 1 for configuration in configurations)
    static, moving = costs.static_bytes.copy(), costs.in_flight_bytes
    static[:, costs.stage] = 0
    held, ranks = sum_units(counts, static) + costs.in_flight * sum_units(counts, moving), rank_memory(problem, batch)
    for i, configuration in enumerate(configurations):
        needed = np.full(configuration.pp, costs.static_bytes[i, costs.stage])
        np.add.at(needed, ranks_of_chunks(batch)[i], held[i])
        assert ranks[i, : configuration.pp] == pytest.approx(needed)
        assert result.peak_memory_bytes[i] == pytest.approx(needed.max())


def test_nothing_is_held_past_the_last_rank():
    problem = problem_of(nodes=1)
    configurations = [
        Configuration(pp=2, dp_replicate=4, schedule="interleaved", virtual_stages=2),
        Configuration(pp=4, dp_replicate=2),
    ]
    assert (rank_memory(problem, make_batch(problem, *configurations))[0, 2:] == 0).all()


@pytest.mark.parametrize("name", sorted(families()))
def test_terms_add_up_and_are_never_negative(name):
    problem = problem_of(name)
    _, batch = pipelines(problem, 120)
    result = evaluate(problem, batch)
    assert sum(result.terms.values()) == pytest.approx(result.step_seconds, rel=1e-12)
    assert all((seconds >= 0).all() for seconds in result.terms.values())
    for term, idle in (
        ("recompute", batch.recompute == "none"),
        ("tensor_parallel", batch.tp == 1),
        ("context_parallel", batch.cp == 1),
        ("expert_parallel", batch.ep * batch.etp == 1),
        ("pipeline_bubble", batch.pp == 1),
        ("pipeline_send", batch.pp == 1),
    ):
        assert (result.terms[term][idle] < 1e-12).all(), term


def priced(problem, batch):
    resolved = resolve(problem, batch, Coefficients())
    pipeline = {
        "num_microbatches": problem.workload.global_batch // (batch.dp * batch.micro_batch),
        "send_blocks": np.zeros(len(batch), dtype=np.bool_),
    }
    return unit_seconds(resolved), count_units(problem.model, batch), pipeline


def test_the_total_is_the_sum_of_the_terms():
    problem = problem_of("moe")
    _, batch = pipelines(problem, 60)
    seconds, counts, pipeline = priced(problem, batch)
    finish = finish_ranks(batch, seconds, counts, **pipeline)
    overhead = {"step_seconds": 0.25, "jitter": 0.125}
    terms = step_terms(batch, seconds, counts, finish, num_microbatches=pipeline["num_microbatches"], **overhead)
    total = step_total(batch, seconds, counts, finish, **overhead)
    assert total == pytest.approx(sum(terms.values()))
    bare = step_total(batch, seconds, counts, finish, step_seconds=0.0, jitter=0.0)
    assert total == pytest.approx(bare * 1.125 + 0.25)
    assert terms["overhead"] == pytest.approx(bare * 0.125 + 0.25)


@pytest.mark.parametrize("blocks", [False, True])
def test_searched_schedules_are_simulated_where_asked_and_bounded_else(blocks):
    problem = problem_of(nodes=1)
    configurations, batch = pipelines(problem, 30, schedules=sorted(SEARCHED))
    seconds, counts, pipeline = priced(problem, batch)
    pipeline["send_blocks"][:] = blocks
    exact = finish_ranks(batch, seconds, counts, **pipeline)
    bounded = finish_ranks(batch, seconds, counts, **pipeline, simulated=False)
    assert (bounded <= exact * (1 + 1e-9)).all()
    work = sum_units(counts, seconds.all_forward + seconds.all_backward)
    for i, configuration in enumerate(configurations):
        own = pipeline["num_microbatches"][i] * work[i, : configuration.pp]
        assert (exact[i, : configuration.pp] >= own * (1 - 1e-9)).all(), "a rank's own time covers its own work"


@pytest.mark.parametrize("name", ["llama", "moe"])
def test_no_schedule_ends_before_its_bound(name):
    problem = problem_of(name)
    _, batch = pipelines(problem, 60)
    seconds, counts, pipeline = priced(problem, batch)
    finish = finish_ranks(batch, seconds, counts, **pipeline).max(axis=1)
    bound = bound_finish(batch, seconds, counts, **pipeline)
    assert bound.shape == (len(batch), 1)
    assert (bound[:, 0] <= finish * (1 + 1e-9)).all()


def test_no_pair_takes_less_than_either_pass_alone():
    problem = dear_experts()
    _, batch = pipelines(problem, 40, schedules=("dualpipe-v",))
    seconds, counts, _ = priced(problem, batch)
    saved = pair_savings(batch, seconds, counts)
    forward, backward, weight = (
        sum_units(counts, units) for units in (seconds.all_forward, seconds.all_backward, seconds.weight)
    )
    for i, chunks in enumerate(batch.chunks.tolist()):
        f, b, w, less = (values[i, :chunks] for values in (forward, backward, weight, saved))
        assert (less <= b[::-1] * (1 + 1e-12)).all()
        assert (less <= (f + w[::-1]) * (1 + 1e-12)).all()
    assert (saved > 0).any()


def test_pairs_last_as_long_in_the_timeline_as_in_the_step():
    problem = dear_experts()
    configurations, batch = pipelines(problem, 12, schedules=("dualpipe-v",))
    seconds, counts, pipeline = priced(problem, batch)
    finish = finish_ranks(batch, seconds, counts, **pipeline)
    bound = bound_finish(batch, seconds, counts, **pipeline)
    assert (pair_savings(batch, seconds, counts) > 0).any()
    assert (bound[:, 0] <= finish.max(axis=1) * (1 + 1e-9)).all()
    for i in range(len(configurations)):
        events = simulate_events(batch, seconds, counts, i, **pipeline)
        ends = max(event.start_seconds + event.duration_seconds for event in events)
        assert finish[i].max() == pytest.approx(ends)


def test_dualpipe_hides_what_experts_exchange_in_the_steady_phase():
    """The other V schedule shows all of it; more micro-batches leave less of it to the ends."""
    problem = dear_experts()
    shares = []
    for micro_batch in (4, 1):
        both = [
            Configuration(pp=2, dp_replicate=4, ep=4, schedule=s, virtual_stages=2, micro_batch=micro_batch)
            for s in ("zb-v", "dualpipe-v")
        ]
        terms = evaluate(problem, make_batch(problem, *both)).terms
        shown = terms["expert_parallel"]
        assert shown[1] < shown[0]
        shares.append(shown[1] / shown[0])
    assert shares[1] < shares[0]
    assert shares[1] < 0.5


def test_zero_bubble_wastes_less_than_1f1b():
    problem = make_problem(families(16)["llama"], cluster=make_cluster(make_group(1, 4)), seq_len=512, global_batch=32)
    problem = replace(problem, stack=replace(AUTOPLAN, cuda_graph=True))
    batch = make_batch(problem, *[Configuration(pp=4, schedule=s) for s in ("1f1b", "zb-h1")])
    one_f_one_b, zero = evaluate(problem, batch).terms["pipeline_bubble"]
    assert 0 < zero < 0.9 * one_f_one_b


def test_interleaving_divides_the_bubble():
    """(p−1)/m of the work, divided by v chunks a rank, where layers are all that there is (arXiv 2104.04473)."""
    model = families(16)["llama"]
    problem = make_problem(
        replace(model, vocab_size=8), cluster=make_cluster(make_group(1, 4)), seq_len=2048, global_batch=32
    )
    problem = replace(problem, stack=replace(AUTOPLAN, cuda_graph=True))
    plain = Configuration(pp=4)
    twice = Configuration(pp=4, schedule="interleaved", virtual_stages=2)
    found = evaluate(problem, make_batch(problem, plain, twice)).terms
    assert found["pipeline_bubble"][1] < 0.65 * found["pipeline_bubble"][0]


def test_uneven_stages_wait_for_the_heaviest():
    problem = problem_of(nodes=1)
    configurations = [Configuration(pp=2, dp_replicate=4)] * 2
    even, uneven = evaluate(problem, make_batch(problem, *configurations, cuts=[[0, 4, 8], [0, 7, 8]])).step_seconds
    assert uneven > 1.3 * even


@pytest.mark.parametrize("schedule", ["zb-1p", "zb-2p", "zb-h1"])
def test_a_pipeline_of_one_stage_is_none_however_many_micro_batches(schedule):
    problem = make_problem(global_batch=8 * 10**6)
    plain = estimate(problem, Configuration(dp_replicate=8))
    assert estimate(problem, Configuration(dp_replicate=8, schedule=schedule)).step_seconds == plain.step_seconds
