from dataclasses import replace

import numpy as np
import pytest

from autoplan.spec import AUTOPLAN
from costmodels.communication import count_data_work
from costmodels.hardware import resolve_hardware
from costmodels.links import resolve_links
from costmodels.parameters import count_parameters
from costmodels.placement import place
from tests.costmodels.problems import make_cluster, make_group, make_problem, one
from tests.tiny_models import gpt2_like, llama_like, moe_like

BANDWIDTH = 1e9
CLUSTER = make_cluster(make_group(intra=(0.0, BANDWIDTH)))
HIDDEN = 2 * 64 * 16 * 2
"""Bytes of the hidden state: 2 sequences of 64 tokens, h 16, bf16."""


def work(model=None, cluster=CLUSTER, stack=AUTOPLAN, **configuration):
    problem = make_problem(model or llama_like(), cluster=cluster, stack=stack)
    hardware, batch = resolve_hardware(problem), one(problem, micro_batch=2, **configuration)
    links, placement = resolve_links(problem, hardware), place(batch, hardware)
    parameters = count_parameters(problem.model, batch)
    return count_data_work(problem, batch, links=links, placement=placement, parameters=parameters), parameters


def ring(num_bytes, n, times=1):
    return times * (n - 1) / n * num_bytes / BANDWIDTH


def test_weights_are_gathered_in_bf16_and_gradients_reduced_in_fp32():
    """FORMULAS §4: (d−1)/d·Ψ·E each over 4 shards, 2(R−1)/R·Ψ/S·E_g over 2 replicas."""
    found, parameters = work(dp_shard=4, dp_replicate=2, zero_stage=3)
    assert found.gather.seconds()[0] == pytest.approx(ring(2 * parameters.local[0], 4))
    assert found.scatter.seconds()[0] == pytest.approx(ring(4 * parameters.local[0], 4))
    assert found.replicate.seconds()[0] == pytest.approx(ring(4 * parameters.local[0] / 4, 2, 2))


def test_gradients_travel_in_the_software_s_type():
    half, parameters = work(stack=replace(AUTOPLAN, reduce_bytes=2), dp_shard=8, zero_stage=3)
    assert half.scatter.seconds()[0] == pytest.approx(ring(2 * parameters.local[0], 8))


def test_software_that_does_not_scatter_reduces_whole_gradients():
    stack = replace(AUTOPLAN, scatters_gradients=False)
    found, parameters = work(stack=stack, dp_shard=8, zero_stage=2)
    assert found.scatter.seconds()[0] == pytest.approx(ring(4 * parameters.local[0], 8, 2))
    resharded, _ = work(stack=stack, dp_shard=8, zero_stage=3)
    assert resharded.scatter.seconds()[0] == pytest.approx(ring(4 * parameters.local[0], 8))


def test_shards_are_those_of_data_and_context_parallelism():
    found, parameters = work(cp=2, dp_shard=4, zero_stage=3)
    assert found.gather.seconds()[0] == pytest.approx(ring(2 * parameters.local[0], 8))


def test_tensor_parallel_ranks_reduce_their_own_part():
    found, parameters = work(tp=4, dp_replicate=2)
    whole, _ = work(dp_replicate=2)
    assert found.replicate.seconds()[0] == pytest.approx(ring(4 * parameters.local[0], 2, 2))
    assert found.replicate.seconds()[0, 1] == pytest.approx(whole.replicate.seconds()[0, 1] * 13 / 50)


def test_experts_are_reduced_over_their_own_ranks():
    """4 experts over ep 4 of 8 ranks: each part is on 2 of them, a dense tensor on all 8."""
    found, parameters = work(moe_like(), dp_shard=8, ep=4, zero_stage=3)
    dense, experts = parameters.dense_local[0, 0], parameters.expert_local[0, 0]
    assert experts == 3 * 16 * 24
    assert found.gather.seconds()[0, 0] == pytest.approx(ring(2 * dense, 8) + ring(2 * experts, 2))
    assert found.scatter.seconds()[0, 0] == pytest.approx(ring(4 * dense, 8) + ring(4 * experts, 2))


def test_experts_that_nobody_shards_are_summed_over_all_that_have_them():
    found, parameters = work(moe_like(), dp_replicate=8, ep=4)
    dense, experts = parameters.dense_local[0, 0], parameters.expert_local[0, 0]
    assert found.replicate.seconds()[0, 0] == pytest.approx(ring(4 * dense, 8, 2) + ring(4 * experts, 2, 2))
    spread, parameters = work(moe_like(num_experts=8), dp_replicate=8, ep=8)
    dense = parameters.dense_local[0, 0]
    assert spread.replicate.seconds()[0, 0] == pytest.approx(ring(4 * dense, 8, 2)), "each part is on one rank"


def test_a_send_is_one_hidden_state_or_its_part():
    assert work(pp=2)[0].send.seconds()[0] == pytest.approx(HIDDEN / BANDWIDTH)
    split = {"pp": 2, "tp": 4}
    assert work(**split)[0].send.seconds()[0] == pytest.approx(HIDDEN / BANDWIDTH)
    assert work(**split, sequence_parallel=True)[0].send.seconds()[0] == pytest.approx(HIDDEN / 4 / BANDWIDTH)
    scatters = replace(AUTOPLAN, scatters_sends=True)
    assert work(**split, stack=scatters)[0].send.seconds()[0] == pytest.approx(HIDDEN / 4 / BANDWIDTH)
    assert work(pp=2, cp=2)[0].send.seconds()[0] == pytest.approx(HIDDEN / 2 / BANDWIDTH)
    assert work(tp=4)[0].send.seconds()[0] == 0


def test_stages_on_two_nodes_send_over_the_network():
    cluster = make_cluster(make_group(2, 4, intra=(0.0, BANDWIDTH), inter=(0.0, BANDWIDTH / 10)))
    assert work(cluster=cluster, pp=2, dp_replicate=4)[0].send.seconds()[0] == pytest.approx(10 * HIDDEN / BANDWIDTH)
    alone = make_cluster(make_group(1, 8, intra=(0.0, BANDWIDTH), inter=(0.0, BANDWIDTH / 10)))
    assert work(cluster=alone, pp=2, dp_replicate=4)[0].send.seconds()[0] == pytest.approx(HIDDEN / BANDWIDTH)


def test_tied_tables_on_two_stages_exchange_their_gradients():
    alone, _ = work(gpt2_like())
    piped, _ = work(gpt2_like(), pp=2)
    assert np.all(alone.tied.seconds() == 0)
    assert piped.tied.seconds()[0] == pytest.approx(np.array([0, 1, 1, 0]) * 4 * 50 * 16 / BANDWIDTH)


def test_a_stage_has_no_weights_of_its_own_to_talk_about():
    cluster = make_cluster(make_group(intra=(1e-3, BANDWIDTH)))
    found, _ = work(cluster=cluster, dp_shard=4, dp_replicate=2, zero_stage=3)
    assert found.gather.seconds()[0, 0] > 1e-3
    for part in (found.gather, found.scatter, found.replicate):
        assert part.seconds()[0, -1] == 0
