import math

import pytest

from autoplan.errors import ModelError
from autoplan.readers.huggingface.families import FAMILIES
from autoplan.spec import Mlp, Moe
from tests.readers.huggingface.files import feed_forwards, mixers, read, read_gemma_3


def test_every_family_is_named_once():
    names = [family.model_type for family in FAMILIES]
    assert len(set(names)) == len(names)


def test_gemma_2():
    model = read("gemma-2-9b")
    mixer, block = model.block(0).mixer, model.block(0)
    assert (block.norms, model.tied_embeddings, block.feed_forward.activation) == ("both", True, "gelu_tanh")
    assert model.embedding_scale == math.sqrt(3584)
    assert (model.logit_softcap, mixer.logit_softcap) == (30.0, 50.0)
    assert (mixer.head_dim, mixer.softmax_scale, mixer.qk_norm) == (256, None, "none")


def test_gemma_2_scales_scores_by_a_scalar_of_its_own():
    model = read("gemma-2-9b", query_pre_attn_scalar=144)
    assert model.block(0).mixer.softmax_scale == pytest.approx(1 / 12)


def test_caps_that_are_null_are_off_and_absent_ones_the_class_default():
    off = read("gemma-2-9b", attn_logit_softcapping=None, final_logit_softcapping=None)
    assert (off.logit_softcap, off.block(0).mixer.logit_softcap) == (None, None)
    silent = read("gemma-2-9b", without=["attn_logit_softcapping", "final_logit_softcapping"])
    assert silent == read("gemma-2-9b")


def test_gemma_3_normalizes_heads():
    model = read_gemma_3(without=["attn_logit_softcapping", "final_logit_softcapping"])
    assert (model.block(0).mixer.qk_norm, model.block(0).norms) == ("head", "both")
    assert (model.logit_softcap, model.block(0).mixer.logit_softcap) == (None, None)


def test_gemma_1_has_neither_windows_nor_caps():
    skipped = [f"{key}_logit_softcapping" for key in ("attn", "final")]
    skipped += ["sliding_window", "sliding_window_size", "query_pre_attn_scalar", "architectures"]
    model = read("gemma-2-9b", without=skipped, model_type="gemma")
    assert (model.block(0).norms, model.logit_softcap, len(model.blocks)) == ("pre", None, 1)
    assert model.embedding_scale == math.sqrt(3584)


def test_gpt_neox_is_parallel_unless_it_says_otherwise():
    block = read("gpt-neox-20b").block(0)
    assert (block.parallel, block.shared_norm, block.feed_forward.gated) == (True, False, False)
    assert (block.mixer.qkv_bias, block.mixer.output_bias, block.feed_forward.bias) == (True, True, True)
    assert not read("gpt-neox-20b", use_parallel_residual=False).block(0).parallel
    plain = read("gpt-neox-20b", attention_bias=False).block(0)
    assert (plain.mixer.qkv_bias, plain.feed_forward.bias) == (False, True)


def test_stablelm_in_parallel_shares_its_norm():
    block = read("stablelm-3b-4e1t", use_parallel_residual=True).block(0)
    assert (block.parallel, block.shared_norm) == (True, True)


def test_starcoder2():
    model = read("starcoder2-7b")
    mlp = model.block(0).feed_forward
    assert (mlp.gated, mlp.activation, mlp.bias, model.tied_embeddings) == (False, "gelu_tanh", True, True)
    assert (model.norm.kind, model.norm.eps, model.block(0).mixer.sliding_window) == ("layernorm", 1e-5, 4096)
    assert not read("starcoder2-7b", use_bias=False).block(0).mixer.qkv_bias


def test_olmo_2_normalizes_behind_and_over_the_width():
    block = read("olmo-2-7b").block(0)
    assert (block.norms, block.mixer.qk_norm) == ("post", "width")


def test_olmo_1_norms_learn_nothing():
    model = read("olmo-2-7b", without=["architectures"], model_type="olmo", clip_qkv=8.0)
    assert (model.norm.kind, model.norm.weight, model.norm.bias) == ("layernorm", False, False)
    assert model.block(0).mixer.clip_qkv == 8.0


def test_mixtral_experts_have_the_width_of_the_mlp():
    moe = read("mixtral-8x7b").block(0).feed_forward
    assert moe == Moe(num_experts=8, top_k=2, expert=Mlp(width=14336, gated=True, activation="silu"))


def test_qwen3_moe_has_experts_in_the_layers_of_its_step():
    def sparse(**changes):
        return [isinstance(part, Moe) for part in feed_forwards(read("qwen3-30b-a3b", num_hidden_layers=5, **changes))]

    assert sparse() == [True] * 5
    assert sparse(decoder_sparse_step=2) == [False, True, False, True, False]
    assert sparse(mlp_only_layers=[0, 4]) == [False, True, True, True, False]
    dense = read("qwen3-30b-a3b", mlp_only_layers=[0]).block(0).feed_forward
    assert dense.width == 6144


def test_the_dense_width_is_only_needed_where_a_layer_has_it():
    assert read("qwen3-30b-a3b", without=["intermediate_size"]) == read("qwen3-30b-a3b")
    with pytest.raises(ModelError, match=r"^config\.json: intermediate_size: is missing"):
        read("qwen3-30b-a3b", without=["intermediate_size"], mlp_only_layers=[0])


def test_qwen2_moe_shares_an_expert_behind_a_gate():
    changes = {"model_type": "qwen2_moe", "shared_expert_intermediate_size": 5632, "architectures": None}
    model = read("qwen3-30b-a3b", without=["head_dim"], **changes)
    moe = model.block(0).feed_forward
    assert (moe.shared.width, moe.shared_gate, moe.expert.width) == (5632, True, 768)
    assert (model.block(0).mixer.qkv_bias, model.block(0).mixer.output_bias) == (True, False)


def test_gpt_oss():
    model = read("gpt-oss-120b")
    moe = model.block(0).feed_forward
    assert [mixer.sliding_window for mixer in mixers(model)[:3]] == [128, None, 128]
    assert (model.block(0).mixer.sinks, model.block(0).mixer.qkv_bias, model.block(0).mixer.output_bias) == (True,) * 3
    assert (moe.num_experts, moe.top_k, moe.router_bias, moe.expert.bias) == (128, 4, True, True)


@pytest.mark.parametrize(
    ("slug", "changes", "field"),
    [
        ("gpt-oss-120b", {"experts_per_token": 8}, "experts_per_token"),
        ("gpt-oss-120b", {"num_experts": 64}, "num_experts"),
        ("gpt-oss-120b", {"num_experts_per_tok": 200, "experts_per_token": 200}, "num_experts_per_tok"),
        ("mixtral-8x7b", {"num_local_experts": 1}, "num_experts_per_tok"),
        ("mixtral-8x7b", {"num_local_experts": None}, "num_local_experts"),
        ("qwen3-30b-a3b", {"moe_intermediate_size": None}, "moe_intermediate_size"),
        ("qwen3-30b-a3b", {"mlp_only_layers": [48]}, "mlp_only_layers"),
        ("qwen3-30b-a3b", {"decoder_sparse_step": 0}, "decoder_sparse_step"),
        ("gemma-2-9b", {"use_bidirectional_attention": True}, "use_bidirectional_attention"),
        ("gemma-2-9b", {"query_pre_attn_scalar": 0}, "query_pre_attn_scalar"),
        ("starcoder2-7b", {"mlp_type": "gated"}, "mlp_type"),
        ("starcoder2-7b", {"norm_type": "rms_norm"}, "norm_type"),
        ("gpt-neox-20b", {"num_attention_heads": 60}, "hidden_size"),
    ],
)
def test_a_contradiction_or_another_model_is_an_error(slug, changes, field):
    with pytest.raises(ModelError, match=rf"^config\.json: {field}: "):
        read(slug, **changes)
