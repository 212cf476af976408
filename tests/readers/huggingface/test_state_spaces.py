import pytest

from autoplan.errors import ModelError
from autoplan.spec import Mamba1, Mamba2, Mlp
from tests.readers.huggingface.files import read


def test_mamba2_2_7b():
    model = read("mamba2-2.7b")
    assert model.block(0).mixer == Mamba2(
        num_heads=80, head_dim=64, state_size=128, num_groups=1, conv_kernel=4, chunk_size=256
    )
    assert (model.family, model.vocab_size, model.positions, model.tied_embeddings) == ("mamba2", 50288, "none", True)
    assert (model.norm.kind, model.block(0).feed_forward) == ("rmsnorm", None)


def test_a_section_without_a_layer_is_the_first_mamba():
    model = read("mamba2-2.7b", without=["ssm_cfg"], ssm_cfg={})
    assert model.family == "mamba"
    assert model.block(0).mixer == Mamba1(inner_size=5120, state_size=16, conv_kernel=4, step_rank=160)


def test_what_the_module_may_be_told():
    said = {"d_state": 64, "headdim": 128, "ngroups": 8, "expand": 4, "chunk_size": 128, "d_conv": 2, "bias": True}
    assert read("mamba2-2.7b", ssm_cfg=said).block(0).mixer == Mamba2(
        num_heads=80, head_dim=128, state_size=64, num_groups=8, conv_kernel=2, chunk_size=128, projection_bias=True
    )


def test_an_mlp_is_rounded_up():
    mlp = read("mamba2-2.7b", d_intermediate=1000).block(0).feed_forward
    assert mlp == Mlp(width=1024, gated=True, activation="silu")


def test_what_the_model_may_be_told():
    model = read("mamba2-2.7b", rms_norm=False, tie_embeddings=False, pad_vocab_size_multiple=1)
    assert (model.norm.kind, model.norm.bias, model.tied_embeddings, model.vocab_size) == (
        "layernorm",
        True,
        False,
        50277,
    )


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"d_model": None}, "d_model"),
        ({"n_layer": None}, "n_layer"),
        ({"attn_layer_idx": [9]}, "attn_layer_idx"),
        ({"ssm_cfg": {"layer": "Mamba3"}}, r"ssm_cfg\.layer"),
        ({"ssm_cfg": {"headdim": 48}}, r"ssm_cfg\.headdim"),
        ({"ssm_cfg": {"rmsnorm": False}}, r"ssm_cfg\.rmsnorm"),
        ({"ssm_cfg": {"d_ssm": 128}}, r"ssm_cfg\.d_ssm"),
        ({"ssm_cfg": {"layer": "Mamba1", "dt_rank": 0}}, r"ssm_cfg\.dt_rank"),
        ({"pad_vocab_size_multiple": 0}, "pad_vocab_size_multiple"),
    ],
)
def test_a_contradiction_or_another_model_is_an_error(changes, field):
    with pytest.raises(ModelError, match=rf"^config\.json: {field}: "):
        read("mamba2-2.7b", **changes)
