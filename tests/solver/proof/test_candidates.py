from dataclasses import fields

import pytest

from autoplan.spec import Configuration
from solver.options import SearchOptions
from solver.proof.candidates import count_product, every_configuration
from solver.search.space import enumerate_space
from tests.solver.problems import make_cluster, make_model, make_problem
from tests.tiny_models import hybrid_like, moe_like

NAMES = [each.name for each in fields(Configuration)]


def configurations(batch):
    return {batch.configuration(i) for i in range(len(batch))}


def listed(problem, options=None):
    return set().union(*map(configurations, every_configuration(problem, options or SearchOptions())))


def test_one_device_has_only_micro_batches_and_recompute_to_choose():
    found = listed(make_problem(cluster=make_cluster(per_node=1), global_batch=6))
    assert {(c.micro_batch, c.recompute) for c in found} == {
        (size, mode) for size in (1, 2, 3, 6) for mode in ("none", "selective", "full")
    }
    assert len(found) == 12
    assert all(c.schedule == "1f1b" for c in found)


@pytest.mark.parametrize("model", [make_model(layers=3), moe_like(), hybrid_like()], ids=["llama", "moe", "hybrid"])
@pytest.mark.parametrize("cluster", [make_cluster(per_node=6), make_cluster(nodes=2, per_node=2)], ids=["6", "2x2"])
@pytest.mark.parametrize(
    "options",
    [
        SearchOptions(),
        SearchOptions(fix={"pp": 2, "micro_batch": 3}),
        SearchOptions(fix={"schedule": "gpipe"}, forbid=("tp>2",)),
        SearchOptions(fix={"cp_method": "ring"}),
        SearchOptions(forbid=("schedule==1f1b", "recompute!=full")),
        SearchOptions(fix={"recompute": "full", "recompute_layers": 2}),
        SearchOptions(runnable_only=True),
    ],
    ids=str,
)
def test_the_search_has_the_very_same_space(model, cluster, options):
    problem = make_problem(model=model, cluster=cluster, global_batch=12, seq_len=64)
    assert listed(problem, options) == configurations(enumerate_space(problem, options))


def test_a_block_has_one_tuple_of_degrees_and_the_product_counts_what_the_rules_refuse():
    problem = make_problem(cluster=make_cluster(per_node=4))
    blocks = list(every_configuration(problem, SearchOptions()))
    degrees = [{(c.dp_replicate, c.dp_shard, c.cp, c.tp, c.pp) for c in configurations(block)} for block in blocks]
    assert all(len(each) == 1 for each in degrees)
    assert len(set().union(*degrees)) == len(blocks)
    assert count_product(problem, SearchOptions()) > sum(map(len, blocks))
