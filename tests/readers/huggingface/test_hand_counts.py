"""Parameters of one model of every family, counted by hand from its published sizes."""

import pytest

from autoplan.readers import load_model, parse_model
from autoplan.spec.tensors import num_active_parameters, num_parameters


def test_llama_3_8b():
    attention = 4096 * 4096 + 2 * 1024 * 4096 + 4096 * 4096
    mlp = 3 * 14336 * 4096
    layer = 4096 + attention + 4096 + mlp
    assert num_parameters(load_model("llama-3-8b")) == 2 * 128256 * 4096 + 32 * layer + 4096


def test_qwen2_has_biases_of_queries_keys_and_values():
    attention = (896 * 896 + 896) + 2 * (128 * 896 + 128) + 896 * 896
    layer = 896 + attention + 896 + 3 * 4864 * 896
    assert num_parameters(load_model("qwen2.5-0.5b")) == 151936 * 896 + 24 * layer + 896


def test_qwen3_has_norms_of_heads():
    attention = 2 * 4096 * 4096 + 2 * 1024 * 4096 + 2 * 128
    layer = 4096 + attention + 4096 + 3 * 12288 * 4096
    assert num_parameters(load_model("qwen3-8b")) == 2 * 151936 * 4096 + 36 * layer + 4096


def test_phi_3_mini():
    layer = 2 * 3072 + 4 * 3072 * 3072 + 3 * 8192 * 3072
    assert num_parameters(load_model("phi-3-mini")) == 2 * 32064 * 3072 + 32 * layer + 3072


def test_stablelm_has_norms_with_biases():
    layer = 2 * (2 * 2560) + 4 * 2560 * 2560 + 3 * 6912 * 2560
    assert num_parameters(load_model("stablelm-3b-4e1t")) == 2 * 50304 * 2560 + 32 * layer + 2 * 2560


def test_gpt2_has_a_table_of_positions():
    attention = 4 * (768 * 768 + 768)
    mlp = (3072 * 768 + 3072) + (768 * 3072 + 768)
    layer = 2 * 768 + attention + 2 * 768 + mlp
    assert num_parameters(load_model("gpt2")) == 50257 * 768 + 1024 * 768 + 12 * layer + 2 * 768


def test_gemma_2_has_four_norms_and_heads_wider_than_the_hidden_size():
    attention = 2 * 4096 * 3584 + 2 * 2048 * 3584
    layer = 4 * 3584 + attention + 3 * 14336 * 3584
    assert num_parameters(load_model("gemma-2-9b")) == 256000 * 3584 + 42 * layer + 3584


def test_gemma_has_two_norms_and_one_kv_head():
    sizes = {"hidden_size": 2048, "num_hidden_layers": 18, "intermediate_size": 16384, "vocab_size": 256000}
    layer = 2 * 2048 + 2 * 2048 * 2048 + 2 * 256 * 2048 + 3 * 16384 * 2048
    heads = {"num_attention_heads": 8, "num_key_value_heads": 1}
    model = parse_model({"model_type": "gemma", **heads, **sizes}, where="body")
    assert num_parameters(model) == 256000 * 2048 + 18 * layer + 2048


def test_gemma_3_has_norms_of_heads_too():
    sizes = {"hidden_size": 1152, "num_hidden_layers": 26, "intermediate_size": 6912, "vocab_size": 262144}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 256, "sliding_window": 512}
    attention = 2 * 1024 * 1152 + 2 * 256 * 1152 + 2 * 256
    layer = 4 * 1152 + attention + 3 * 6912 * 1152
    model = parse_model({"model_type": "gemma3_text", **sizes, **heads}, where="body")
    assert num_parameters(model) == 262144 * 1152 + 26 * layer + 1152 == 999_885_952


def test_gpt_neox_has_two_norms_in_a_parallel_block():
    attention = 4 * (6144 * 6144 + 6144)
    mlp = (24576 * 6144 + 24576) + (6144 * 24576 + 6144)
    layer = 2 * (2 * 6144) + attention + mlp
    assert num_parameters(load_model("gpt-neox-20b")) == 2 * 50432 * 6144 + 44 * layer + 2 * 6144


def test_mpt_has_neither_biases_nor_positions():
    layer = 4096 + 4 * 4096 * 4096 + 4096 + 2 * 16384 * 4096
    assert num_parameters(load_model("mpt-7b")) == 50432 * 4096 + 32 * layer + 4096


def test_falcon_40b_has_two_norms_and_8_kv_heads():
    attention = 2 * 8192 * 8192 + 2 * 512 * 8192
    layer = 2 * (2 * 8192) + attention + 2 * 32768 * 8192
    assert num_parameters(load_model("falcon-40b")) == 65024 * 8192 + 60 * layer + 2 * 8192


def test_falcon_7b_has_one_norm_and_one_kv_head():
    sizes = {"hidden_size": 4544, "num_hidden_layers": 32, "num_attention_heads": 71, "vocab_size": 65024}
    attention = 2 * 4544 * 4544 + 2 * 64 * 4544
    layer = 2 * 4544 + attention + 2 * 18176 * 4544
    model = parse_model({"model_type": "falcon", **sizes}, where="body")
    assert num_parameters(model) == 65024 * 4544 + 32 * layer + 2 * 4544


def test_starcoder2_has_biases_everywhere():
    attention = 2 * (4608 * 4608 + 4608) + 2 * (512 * 4608 + 512)
    mlp = (18432 * 4608 + 18432) + (4608 * 18432 + 4608)
    layer = 2 * (2 * 4608) + attention + mlp
    assert num_parameters(load_model("starcoder2-7b")) == 49152 * 4608 + 32 * layer + 2 * 4608


def test_olmo_has_norms_that_learn_nothing():
    sizes = {"hidden_size": 4096, "num_hidden_layers": 32, "intermediate_size": 11008, "vocab_size": 50304}
    layer = 4 * 4096 * 4096 + 3 * 11008 * 4096
    model = parse_model({"model_type": "olmo", "num_attention_heads": 32, **sizes}, where="body")
    assert num_parameters(model) == 2 * 50304 * 4096 + 32 * layer


def test_olmo_2_normalizes_queries_and_keys_over_their_width():
    attention = 4 * 4096 * 4096 + 2 * 4096
    layer = attention + 4096 + 3 * 11008 * 4096 + 4096
    assert num_parameters(load_model("olmo-2-7b")) == 2 * 100352 * 4096 + 32 * layer + 4096


def test_mixtral():
    attention = 2 * 4096 * 4096 + 2 * 1024 * 4096
    expert = 3 * 14336 * 4096
    ends = 2 * 32000 * 4096 + 4096
    rest = 32 * (2 * 4096 + attention + 8 * 4096)
    model = load_model("mixtral-8x7b")
    assert num_parameters(model) == ends + rest + 32 * 8 * expert
    assert num_active_parameters(model) == ends + rest + 32 * 2 * expert


def test_qwen2_moe_has_a_shared_expert_with_a_gate():
    sizes = {"hidden_size": 2048, "num_hidden_layers": 24, "num_attention_heads": 16, "vocab_size": 151936}
    experts = {"num_experts": 60, "num_experts_per_tok": 4, "moe_intermediate_size": 1408}
    shared = {"shared_expert_intermediate_size": 5632, "intermediate_size": 5632}
    attention = 4 * 2048 * 2048 + 3 * 2048
    moe = 60 * 2048 + 60 * 3 * 1408 * 2048 + 3 * 5632 * 2048 + 2048
    layer = 2 * 2048 + attention + moe
    model = parse_model({"model_type": "qwen2_moe", **sizes, **experts, **shared}, where="body")
    assert num_parameters(model) == 2 * 151936 * 2048 + 24 * layer + 2048


def test_qwen3_moe():
    attention = 2 * 4096 * 2048 + 2 * 512 * 2048 + 2 * 128
    expert = 3 * 768 * 2048
    ends = 2 * 151936 * 2048 + 2048
    rest = 48 * (2 * 2048 + attention + 128 * 2048)
    model = load_model("qwen3-30b-a3b")
    assert num_parameters(model) == ends + rest + 48 * 128 * expert
    assert num_active_parameters(model) == ends + rest + 48 * 8 * expert


def test_dbrx():
    attention = 2 * 6144 * 6144 + 2 * 1024 * 6144
    layer = 2 * 6144 + attention + 16 * 6144 + 16 * 3 * 10752 * 6144
    assert num_parameters(load_model("dbrx")) == 2 * 100352 * 6144 + 40 * layer + 6144


@pytest.mark.parametrize(("name", "num_layers", "num_experts"), [("gpt-oss-20b", 24, 32), ("gpt-oss-120b", 36, 128)])
def test_gpt_oss_has_sinks_and_biases_of_experts_and_router(name, num_layers, num_experts):
    attention = (4096 * 2880 + 4096) + 2 * (512 * 2880 + 512) + (2880 * 4096 + 2880) + 64
    expert = 2 * (2880 * 2880 + 2880) + (2880 * 2880 + 2880)
    layer = 2 * 2880 + attention + (num_experts * 2880 + num_experts) + num_experts * expert
    assert num_parameters(load_model(name)) == 2 * 201088 * 2880 + num_layers * layer + 2880


def test_deepseek_v2_lite_has_no_latent_of_queries():
    attention = 16 * 192 * 2048 + (512 + 64) * 2048 + 512 + 16 * 256 * 512 + 2048 * 2048
    moe = 64 * 2048 + (64 + 2) * 3 * 1408 * 2048
    layers = 27 * (2 * 2048 + attention) + 3 * 10944 * 2048 + 26 * moe
    assert num_parameters(load_model("deepseek-v2-lite")) == 2 * 102400 * 2048 + layers + 2048


def test_deepseek_v3_with_its_multi_token_prediction_module():
    queries = 1536 * 7168 + 1536 + 128 * 192 * 1536
    keys_and_values = (512 + 64) * 7168 + 512 + 128 * 256 * 512
    layer = 2 * 7168 + queries + keys_and_values + 7168 * 128 * 128
    expert = 3 * 2048 * 7168
    router = 256 * 7168 + 256
    main = 2 * 129280 * 7168 + 61 * layer + 3 * 3 * 18432 * 7168 + 58 * (router + 257 * expert) + 7168
    module = 2 * 7168 + 2 * 7168 * 7168 + layer + router + 257 * expert + 7168
    model = load_model("deepseek-v3")
    assert main == 671_026_419_200
    assert num_parameters(model) == main + module
    assert num_active_parameters(model) == main + module - 59 * (256 - 8) * expert


def test_kimi_k2():
    queries = 1536 * 7168 + 1536 + 64 * 192 * 1536
    keys_and_values = (512 + 64) * 7168 + 512 + 64 * 256 * 512
    layer = 2 * 7168 + queries + keys_and_values + 7168 * 64 * 128
    moe = 384 * 7168 + 384 + (384 + 1) * 3 * 2048 * 7168
    sizes = {"hidden_size": 7168, "num_hidden_layers": 61, "intermediate_size": 18432, "vocab_size": 163840}
    heads = {"num_attention_heads": 64, "kv_lora_rank": 512, "q_lora_rank": 1536, "v_head_dim": 128}
    parts = {"qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "n_group": 1, "topk_group": 1}
    experts = {"n_routed_experts": 384, "n_shared_experts": 1, "num_experts_per_tok": 8, "moe_intermediate_size": 2048}
    model = parse_model(
        {"model_type": "kimi_k2", "first_k_dense_replace": 1, **sizes, **heads, **parts, **experts}, where="body"
    )
    assert num_parameters(model) == 2 * 163840 * 7168 + 61 * layer + 3 * 18432 * 7168 + 60 * moe + 7168


def test_llama_4_scout():
    attention = 2 * 5120 * 5120 + 2 * 1024 * 5120
    expert = 3 * 8192 * 5120
    ends = 2 * 202048 * 5120 + 5120
    rest = 48 * (2 * 5120 + attention + 16 * 5120 + expert)
    model = load_model("llama-4-scout")
    assert num_parameters(model) == ends + rest + 48 * 16 * expert
    assert num_active_parameters(model) == ends + rest + 48 * expert


def test_mamba_2_with_its_padded_vocabulary():
    inner, states, heads = 5120, 128, 80
    projections = 2560 * (2 * inner + 2 * states + heads) + inner * 2560
    convolution = (4 + 1) * (inner + 2 * states)
    layer = 2560 + projections + convolution + 3 * heads + inner
    assert num_parameters(load_model("mamba2-2.7b")) == 50288 * 2560 + 64 * layer + 2560


def test_mamba_1():
    inner, rank = 1536, 48
    steps = (rank + 2 * 16) * inner + rank * inner + inner
    layer = 768 + 2 * inner * 768 + (4 + 1) * inner + steps + 16 * inner + inner + 768 * inner
    sizes = {"hidden_size": 768, "num_hidden_layers": 24, "vocab_size": 50280}
    assert num_parameters(parse_model({"model_type": "mamba", **sizes}, where="body")) == 50280 * 768 + 24 * layer + 768


def test_jamba():
    inner, rank, states = 8192, 256, 16
    steps = (rank + 2 * states) * inner + (rank + 2 * states) + rank * inner + inner
    mamba = 2 * inner * 4096 + (4 + 1) * inner + steps + states * inner + inner + 4096 * inner
    attention = 2 * 4096 * 4096 + 2 * 1024 * 4096
    mlp = 3 * 14336 * 4096
    layers = 28 * mamba + 4 * attention + 16 * mlp + 16 * (16 * 4096 + 16 * mlp) + 32 * 2 * 4096
    assert num_parameters(load_model("jamba-v0.1")) == 2 * 65536 * 4096 + layers + 4096


def test_nemotron_h():
    inner, states, heads = 8192, 8 * 128, 128
    projections = 4096 * (2 * inner + 2 * states + heads) + inner * 4096
    mamba = projections + (4 + 1) * (inner + 2 * states) + 3 * heads + inner
    attention = 2 * 4096 * 4096 + 2 * 1024 * 4096
    mlp = 2 * 21504 * 4096
    layers = 24 * mamba + 4 * attention + 24 * mlp + 52 * 4096
    assert num_parameters(load_model("nemotron-h-8b")) == 2 * 131072 * 4096 + layers + 4096
