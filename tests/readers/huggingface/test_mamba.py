import pytest

from autoplan.errors import ModelError
from autoplan.readers import parse_model
from autoplan.spec import Mamba1, Mamba2

MAMBA = {"model_type": "mamba", "hidden_size": 768, "num_hidden_layers": 24, "vocab_size": 50280}
MAMBA2 = {**MAMBA, "model_type": "mamba2", "num_heads": 24, "head_dim": 64}


def read(config, **changes):
    return parse_model({**config, **changes}, where="config.json")


def test_mamba_1():
    model = read(MAMBA)
    assert model.block(0).mixer == Mamba1(inner_size=1536, state_size=16, conv_kernel=4, step_rank=48)
    assert model.block(0).feed_forward is None
    assert (model.positions, model.tied_embeddings, model.norm.kind) == ("none", True, "rmsnorm")
    assert read(MAMBA, time_step_rank="auto") == model
    assert read(MAMBA, time_step_rank=60, expand=4).block(0).mixer.step_rank == 60
    assert read(MAMBA, expand=4).block(0).mixer.inner_size == 3072


def test_mamba_2():
    model = read(MAMBA2, n_groups=1)
    assert model.block(0).mixer == Mamba2(
        num_heads=24, head_dim=64, state_size=128, num_groups=1, conv_kernel=4, chunk_size=256
    )
    assert not model.tied_embeddings
    assert read(MAMBA2).block(0).mixer.num_groups == 8
    biased = read(MAMBA2, use_bias=True, use_conv_bias=False).block(0).mixer
    assert (biased.projection_bias, biased.conv_bias) == (True, False)


@pytest.mark.parametrize(
    ("config", "changes", "field"),
    [
        (MAMBA, {"hidden_size": None}, "hidden_size"),
        (MAMBA, {"time_step_rank": "all"}, "time_step_rank"),
        (MAMBA, {"expand": 1e9}, "expand"),
        (MAMBA, {"hidden_act": "relu"}, "hidden_act"),
        (MAMBA2, {"num_heads": None}, "num_heads"),
        (MAMBA2, {"num_heads": 32}, "num_heads"),
        (MAMBA2, {"n_groups": 7}, "num_heads 24 is not a multiple of num_groups 7"),
    ],
)
def test_a_contradiction_or_another_model_is_an_error(config, changes, field):
    with pytest.raises(ModelError, match=rf"^config\.json: {field}"):
        read(config, **changes)
