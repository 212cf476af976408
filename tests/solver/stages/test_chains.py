import numpy as np
import pytest

from solver.stages import chains
from solver.stages.chains import Chains, longest_chain
from tests.solver.stages.mixed import make_case


def chain_of(schedule, *, forward, backward, weight=None, num_microbatches=4, kind="cuda", **more):
    pp = len(forward)
    case = make_case(("tiny",) * pp, pp=pp, schedule=schedule, num_microbatches=num_microbatches, kind=kind)
    weight = np.zeros(pp) if weight is None else np.array(weight)
    seconds = {"forward": np.array(forward), "backward": np.array(backward), "weight": weight}
    return case.pipeline, longest_chain(case.pipeline, **seconds, reduce=np.array(more.get("reduce", np.zeros(pp))))


def test_gpipe_waits_for_its_slowest_forward_and_its_slowest_backward():
    _, chain = chain_of("gpipe", forward=[1.0, 2.0, 1.0], backward=[1.0, 1.0, 3.0])
    assert chain.forwards.tolist() == [[1, 4, 1]]
    assert chain.gradients.tolist() == [[1, 1, 4]]
    assert (chain.sends.tolist(), chain.last.tolist()) == ([4], [0])


def test_1f1b_of_a_slow_last_stage_is_all_that_the_stage_does():
    _, chain = chain_of("1f1b", forward=[1.0, 1.0, 5.0], backward=[1.0, 1.0, 5.0])
    assert chain.forwards.tolist() == [[1, 1, 4]]
    assert chain.gradients.tolist() == [[1, 1, 4]]


def test_zb_h1_ends_with_weight_gradients():
    _, chain = chain_of("zb-h1", forward=[1.0, 1.0], backward=[2.0, 9.0], weight=[1.0, 8.0])
    assert chain.last.tolist() == [1]
    assert chain.weights.tolist() == [[0, 4]]


def test_a_long_reduction_makes_its_stage_the_last():
    _, chain = chain_of("1f1b", forward=[1.0, 1.0], backward=[1.0, 1.0], reduce=[0.0, 5.0])
    assert chain.last.tolist() == [1]


def test_chains_add_up_over_edges():
    one = Chains(
        forwards=np.array([[2.0, 1.0]]),
        gradients=np.array([[0.0, 3.0]]),
        weights=np.array([[1.0, 0.0]]),
        sends=np.array([2.0]),
        last=np.array([1]),
    )
    both = one.and_those(Chains.none(2)).and_those(one)
    edges = np.ones((2, 1, 1))
    costs = both.costs(edges, 10 * edges, 100 * edges, 1000 * edges)
    assert costs[:, :, 0, 0].tolist() == [[102.0, 1031.0]] * 2


@pytest.mark.parametrize("schedule", ["1f1b", "zb-h1"])
def test_no_chains_are_looked_for_where_there_are_too_many_jobs(monkeypatch, schedule):
    monkeypatch.setattr(chains, "MOST_JOBS", {})
    monkeypatch.setattr(chains, "OTHERWISE", 10)
    _, chain = chain_of(schedule, forward=[1.0, 1.0], backward=[1.0, 1.0])
    assert len(chain) == 0
