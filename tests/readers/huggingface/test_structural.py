import warnings

import pytest

from autoplan.readers import ReaderWarning
from tests.readers.huggingface.test_llama_like import FILES, read


@pytest.mark.parametrize(
    ("key", "on"),
    [
        ("num_experts", 8),
        ("num_local_experts", 8),
        ("n_routed_experts", 64),
        ("moe_intermediate_size", 1408),
        ("kv_lora_rank", 512),
        ("attn_logit_softcapping", 50.0),
        ("final_logit_softcapping", 30.0),
        ("layer_types", ["full_attention", "linear_attention"]),
        ("hybrid_override_pattern", "M-M*"),
        ("ssm_state_size", 128),
        ("mamba_num_heads", 128),
        ("use_parallel_residual", True),
        ("partial_rotary_factor", 0.5),
        ("alibi", True),
        ("qk_layernorm", True),
        ("use_qk_norm", True),
        ("embedding_multiplier", 12.0),
        ("text_config", {"hidden_size": 1}),
        ("num_nextn_predict_layers", 2),
        ("attention_head_dim", 128),
        ("no_rope_layers", [1, 0]),
    ],
)
def test_a_key_that_looks_structural_is_named(key, on):
    with pytest.warns(ReaderWarning, match=rf"^config\.json: looks structural, but a llama model .*: {key}$"):
        model = read("llama", **{key: on})
    assert model == read("llama")


@pytest.mark.parametrize(
    ("key", "off"),
    [
        ("num_experts", 0),
        ("num_experts", None),
        ("sliding_window", None),
        ("layer_types", ["full_attention"] * 32),
        ("partial_rotary_factor", 1.0),
        ("alibi", False),
        ("mlp_only_layers", []),
        ("attention_dropout", 0.1),
        ("hidden_dropout", 0.1),
        ("initializer_range", 0.02),
        ("pretraining_tp", 1),
        ("_attn_implementation", "sdpa"),
        ("torch_dtype", "bfloat16"),
        ("transformers_version", "4.40.0"),
        ("auto_map", {"AutoModel": "modeling.Model"}),
        ("eos_token_id", [128001, 128009]),
        ("quantization_config", {"quant_method": "fp8"}),
        ("is_llama_config", True),
        ("cross_attention_hidden_size", None),
        ("chunk_size_feed_forward", 0),
    ],
)
def test_a_key_that_is_harmless_or_off_is_silent(key, off):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read("llama", **{key: off})


@pytest.mark.parametrize("model_type", FILES)
def test_a_family_reads_all_structural_keys_of_its_own_file(model_type):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read(model_type)


def test_the_architecture_of_another_family_is_named():
    with pytest.warns(ReaderWarning, match=r"architectures: .*MixtralForCausalLM.* is not of model_type 'llama'"):
        read("llama", architectures=["MixtralForCausalLM"])
