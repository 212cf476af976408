import pytest
from hypothesis import given

from autoplan.spec import Configuration
from autoplan.spec.codec import from_json, to_json
from tests.spec.test_rules import configurations


def test_degrees_multiply():
    c = Configuration(dp_replicate=2, dp_shard=3, cp=5, tp=7, pp=11)
    assert c.dp == 6
    assert c.world_size == 6 * 5 * 7 * 11


@pytest.mark.parametrize(
    ("configuration", "ranks"),
    [
        (Configuration(dp_shard=8, zero_stage=1), 8),
        (Configuration(dp_shard=8, zero_stage=1, ep=8), 1),
        (Configuration(dp_shard=8, zero_stage=1, ep=2), 4),
        (Configuration(dp_shard=8, zero_stage=1, tp=2, cp=2, ep=4, etp=2), 4),
        (Configuration(dp_replicate=2, dp_shard=4, zero_stage=3, ep=2), 2),
        (Configuration(dp_replicate=4, dp_shard=2, zero_stage=3, ep=8), 1),
        (Configuration(dp_replicate=2, dp_shard=6, zero_stage=3, ep=4), 3),
        (Configuration(dp_replicate=4, tp=4), 1),
    ],
)
def test_what_expert_parallelism_leaves_of_a_shard_group_shards_the_experts(configuration, ranks):
    assert configuration.expert_shard == ranks


@given(configurations)
def test_a_configuration_survives_json(c):
    assert from_json(Configuration, to_json(c), where="there") == c


def test_what_is_left_out_is_the_plainest():
    assert from_json(Configuration, "{}", where="there") == Configuration(
        dp_replicate=1, dp_shard=1, zero_stage=0, micro_batch=1, schedule="1f1b", recompute="none"
    )
