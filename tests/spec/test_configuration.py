from hypothesis import given

from autoplan.spec import Configuration
from autoplan.spec.codec import from_json, to_json
from tests.spec.test_rules import configurations


def test_degrees_multiply():
    c = Configuration(dp_replicate=2, dp_shard=3, cp=5, tp=7, pp=11)
    assert c.dp == 6
    assert c.world_size == 6 * 5 * 7 * 11


@given(configurations)
def test_a_configuration_survives_json(c):
    assert from_json(Configuration, to_json(c), where="there") == c


def test_what_is_left_out_is_the_plainest():
    assert from_json(Configuration, "{}", where="there") == Configuration(
        dp_replicate=1, dp_shard=1, zero_stage=0, micro_batch=1, schedule="1f1b", recompute="none"
    )
