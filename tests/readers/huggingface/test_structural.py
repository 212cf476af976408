import warnings

import pytest

from autoplan.readers import ReaderWarning
from tests.readers.huggingface import files
from tests.readers.huggingface.test_llama_like import read


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
        ("router_aux_loss_coef", 0.001),
        ("moe_jitter_eps", 0.01),
    ],
)
def test_a_key_that_is_harmless_or_off_is_silent(key, off):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read("llama", **{key: off})


@pytest.mark.parametrize("slug", sorted(path.stem for path in files.CONFIGS.glob("*.json")))
def test_a_family_reads_all_structural_keys_of_its_own_file(slug):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        files.read(slug)


@pytest.mark.parametrize(
    ("slug", "section", "key"),
    [
        ("mpt-7b", "attn_config", "sliding_window_size"),
        ("dbrx", "ffn_config", "moe_capacity_factor"),
        ("llama-4-scout", "text_config", "kv_lora_rank"),
    ],
)
def test_a_structural_key_of_a_section_is_named_with_it(slug, section, key):
    with pytest.warns(ReaderWarning, match=rf"looks structural.*: {section}\.{key}$"):
        files.read(slug, **{section: {key: 64}})


def test_the_vision_part_is_named():
    with pytest.warns(ReaderWarning, match=r"left out: vision_config$"):
        model = files.read("llama-4-scout", vision_config={"hidden_size": 1408})
    assert model == files.read("llama-4-scout")


@pytest.mark.parametrize(
    ("slug", "changes"),
    [
        ("deepseek-v3", {"model_type": "kimi_k2"}),
        ("qwen3-8b", {"model_type": "gemma3_text", "architectures": ["Gemma3ForCausalLM"]}),
    ],
)
def test_a_family_may_name_the_class_of_another(slug, changes):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        files.read(slug, without=["max_window_layers", "use_sliding_window"], **changes)


def test_the_architecture_of_another_family_is_named():
    with pytest.warns(ReaderWarning, match=r"architectures: .*MixtralForCausalLM.* is not of model_type 'llama'"):
        read("llama", architectures=["MixtralForCausalLM"])
