import numpy as np
import pytest

from costmodels.communication import LOSS_REDUCTIONS, communicate
from costmodels.hardware import resolve_hardware
from costmodels.links import place, resolve_links
from costmodels.parameters import count_parameters
from tests.costmodels.problems import make_cluster, make_group, make_problem, one
from tests.tiny_models import gpt2_like, llama_like

BANDWIDTH = 1e9
CLUSTER = make_cluster(make_group(intra=(0.0, BANDWIDTH)))
HIDDEN = 2 * 64 * 16 * 2
"""Bytes of the hidden state: 2 sequences of 64 tokens, h 16, bf16."""


def costs(model=None, cluster=CLUSTER, **configuration):
    problem = make_problem(model or llama_like(), cluster=cluster)
    hardware, batch = resolve_hardware(problem), one(problem, micro_batch=2, **configuration)
    links, placement = resolve_links(problem, hardware), place(batch, hardware)
    parameters = count_parameters(problem.model, batch)
    return communicate(problem, batch, links=links, placement=placement, parameters=parameters), parameters


def ring(num_bytes, n, times=1):
    return times * (n - 1) / n * num_bytes / BANDWIDTH


@pytest.mark.parametrize("split", [False, True])
def test_a_layer_moves_eight_rings_of_its_hidden_state(split):
    """8(t−1)/t·sbh·E per layer and micro-batch, with and without sequence parallelism."""
    found, _ = costs(tp=4, sequence_parallel=split)
    assert found.tensor_forward[0, 0] + found.tensor_backward[0, 0] == pytest.approx(ring(HIDDEN, 4, 8))


@pytest.mark.parametrize("split", [False, True])
def test_full_recompute_repeats_the_forward_and_selective_a_part(split):
    none, selective, full = (
        costs(tp=4, sequence_parallel=split, recompute=mode)[0].tensor_backward[0, 0]
        for mode in ("none", "selective", "full")
    )
    assert full == pytest.approx(2 * none)
    assert selective - none == pytest.approx(ring(HIDDEN, 4, 2 if split else 0))


def test_embedding_and_head():
    plain, _ = costs(tp=4)
    loss = LOSS_REDUCTIONS * ring(2 * 64 * 4, 4, 2)
    assert plain.tensor_forward[0, 1:] == pytest.approx([ring(HIDDEN, 4, 2), loss, 0])
    assert plain.tensor_backward[0, 1:] == pytest.approx([0, ring(HIDDEN, 4, 2), 0])
    split, _ = costs(tp=4, sequence_parallel=True)
    assert split.tensor_forward[0, 1:] == pytest.approx([ring(HIDDEN, 4), ring(HIDDEN, 4) + loss, 0])


def test_weights_are_gathered_in_bf16_and_gradients_reduced_in_fp32():
    found, parameters = costs(dp_shard=4, dp_replicate=2, zero_stage=3)
    assert found.gather[0] == pytest.approx(ring(2 * parameters.local[0], 4))
    assert found.scatter[0] == pytest.approx(ring(4 * parameters.local[0], 4))
    assert found.replicate[0] == pytest.approx(ring(4 * parameters.local[0] / 4, 2, 2))


def test_a_send_is_one_hidden_state_or_its_part():
    assert costs(pp=2)[0].send[0] == pytest.approx(HIDDEN / BANDWIDTH)
    assert costs(pp=2, tp=4, sequence_parallel=True)[0].send[0] == pytest.approx(HIDDEN / 4 / BANDWIDTH)
    assert costs(tp=4)[0].send[0] == 0


def test_tied_tables_on_two_stages_exchange_their_gradients():
    alone, _ = costs(gpt2_like())
    piped, _ = costs(gpt2_like(), pp=2)
    assert np.all(alone.tied == 0)
    assert piped.tied[0] == pytest.approx(np.array([0, 1, 1, 0]) * 4 * 50 * 16 / BANDWIDTH)


def test_a_stage_has_no_weights_of_its_own_to_talk_about():
    cluster = make_cluster(make_group(intra=(1e-3, BANDWIDTH)))
    found, _ = costs(cluster=cluster, dp_shard=4, dp_replicate=2, zero_stage=3)
    assert found.gather[0, 0] > 3e-3
    assert found.gather[0, -1] == found.scatter[0, -1] == found.replicate[0, -1] == 0
