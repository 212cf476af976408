from collections import Counter

import pytest

from autoplan.spec import Attention, LatentAttention, Mamba2, Moe
from benchmarks.instances import draw_instance
from solver.proof.verify import count_space

MOST = 1000


@pytest.fixture(scope="module")
def instances():
    return [draw_instance(f"draw-{number}", most=MOST) for number in range(40)]


def test_a_seed_is_one_instance(instances):
    assert draw_instance("draw-7", most=MOST) == instances[7]
    assert draw_instance("draw-8", most=MOST) != instances[7]


def test_none_has_more_candidates_than_asked_for(instances):
    sizes = [count_space(each.problem, each.options) for each in instances[:20]]
    assert max(sizes) <= MOST
    assert min(sizes) > 0


def test_they_are_of_every_kind(instances):
    problems = [each.problem for each in instances]
    blocks = [block for problem in problems for block in problem.model.blocks]
    assert {type(block.mixer) for block in blocks} >= {Attention, LatentAttention, Mamba2}
    assert any(isinstance(block.feed_forward, Moe) for block in blocks)
    assert {problem.model.positions for problem in problems} == {"rope", "learned", "none"}
    assert {problem.cluster.device_kind for problem in problems} == {"cuda", "cpu"}
    assert any(len(problem.cluster.groups) > 1 for problem in problems)
    devices = Counter(problem.cluster.num_devices for problem in problems)
    assert set(devices) & {3, 5, 6, 7, 12}
    assert max(devices) <= 32
    assert {problem.model.num_layers for problem in problems} >= {2, 12}
    assert len({problem.stack.name for problem in problems}) > 3
    assert len({each.options.objective for each in instances}) > 1
    assert any(each.options.fix for each in instances)
    assert any(each.options.forbid for each in instances)
