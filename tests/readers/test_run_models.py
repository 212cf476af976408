import pytest

from autoplan.readers.run_models import CannotModel, read_model
from autoplan.spec import Attention, LatentAttention, Mamba2, Mlp, Moe
from autoplan.spec.tensors import num_active_parameters, num_parameters
from tests.readers.published import row

QWEN3_30B = {
    "arch": "moe",
    "n_layers": "48",
    "hidden": "2048",
    "ffn_hidden": "",
    "n_heads": "32",
    "n_kv_heads": "4",
    "head_dim": "128",
    "vocab": "151936",
    "n_experts": "128",
    "top_k": "8",
    "moe_ffn_hidden": "768",
    "n_shared_experts": "0",
    "n_dense_layers": "0",
}
DEEPSEEK_V3 = {
    "arch": "moe",
    "n_layers": "61",
    "hidden": "7168",
    "ffn_hidden": "18432",
    "n_heads": "128",
    "n_kv_heads": "128",
    "head_dim": "128",
    "vocab": "129280",
    "n_experts": "256",
    "top_k": "8",
    "moe_ffn_hidden": "2048",
    "n_shared_experts": "1",
    "n_dense_layers": "3",
    "q_lora_rank": "1536",
    "kv_lora_rank": "512",
    "qk_rope_head_dim": "64",
}
NEMOTRON_H_8B = {
    "arch": "hybrid",
    "gated_mlp": "false",
    "n_layers": "52",
    "ffn_hidden": "21504",
    "n_kv_heads": "8",
    "vocab": "131072",
}


def read(**changes):
    assumptions = []
    return read_model(row(**changes), assumptions), assumptions


def test_a_llama_row():
    model, assumptions = read()
    assert num_parameters(model) == 6_738_415_616  # Llama-2-7B
    assert (model.positions, model.norm.kind, assumptions) == ("rope", "rmsnorm", [])


def test_a_gpt_row_is_like_gpt_2():
    model, _ = read(arch="gpt", gated_mlp="false", tied_embeddings="true")
    assert (model.positions, model.max_positions, model.norm.kind, model.norm.bias) == (
        "learned",
        2048,
        "layernorm",
        True,
    )
    block = model.block(0)
    assert block.mixer.qkv_bias
    assert block.feed_forward.bias


def test_a_gpt_row_with_grouped_keys_is_like_nemotron():
    model, assumptions = read(arch="gpt", gated_mlp="false", n_kv_heads="8", tied_embeddings="")
    assert (model.positions, model.norm.kind) == ("rope", "layernorm")
    assert assumptions == ["tied_embeddings false"]


def test_a_mixture_of_experts():
    model, _ = read(**QWEN3_30B)
    assert num_parameters(model) == 30_532_122_624  # published: 30.5B, 3.3B active
    other, _ = read(**{**QWEN3_30B, "n_layers": "47"})
    assert other.block(0).mixer.qk_norm == "none", "the table alone does not tell of the norms of heads"
    assert num_active_parameters(model) == pytest.approx(3.35e9, rel=0.01)


def test_latent_attention_shared_experts_and_leading_dense_layers():
    model, _ = read(**DEEPSEEK_V3)
    assert [type(model.block(i).feed_forward) for i in (0, 2, 3, 60)] == [Mlp, Mlp, Moe, Moe]
    mixer = model.block(0).mixer
    assert isinstance(mixer, LatentAttention)
    assert (mixer.nope_head_dim, mixer.rope_head_dim, mixer.value_head_dim) == (128, 64, 128)
    assert num_parameters(model) == 671_026_419_200  # in the published file
    assert model.block(3).feed_forward.shared == Mlp(width=2048, gated=True, activation="silu")


def test_shared_experts_are_one_mlp_of_their_total_width():
    model, _ = read(**{**QWEN3_30B, "n_shared_experts": "8"})
    assert model.block(0).feed_forward.shared.width == 8 * 768


def test_prediction_modules_have_the_block_of_the_last_layer():
    model, _ = read(**DEEPSEEK_V3, mtp_layers="1")
    assert isinstance(model.blocks[model.mtp[0]].feed_forward, Moe)
    assert read(**DEEPSEEK_V3, mtp_layers="0")[0].mtp == ()


def windows(**changes):
    model, _ = read(**changes)
    return [model.block(i).mixer.sliding_window for i in range(4)]


def test_windows_are_on_all_layers_or_on_every_second():
    assert windows(sliding_window="128") == [128] * 4
    assert windows(sliding_window="128", notes_short="window on alternate layers") == [128, None, 128, None]
    assert windows(**QWEN3_30B, sliding_window="128") == [128, None, 128, None]


def test_parallel_blocks_share_their_norm():
    block = read(parallel_block="true")[0].block(0)
    assert (block.parallel, block.shared_norm) == (True, True)


def test_a_hybrid_row_is_like_nemotron_h():
    model, assumptions = read(**NEMOTRON_H_8B)
    kinds = [model.block(i) for i in range(52)]
    assert sum(isinstance(block.mixer, Attention) for block in kinds) == 4
    assert sum(isinstance(block.mixer, Mamba2) for block in kinds) == 24
    assert sum(block.feed_forward is not None for block in kinds) == 24
    assert num_parameters(model) == pytest.approx(8.1e9, rel=0.01)  # arXiv 2504.03624
    assert assumptions == ["layers of one sublayer: attention every 13th, else Mamba-2 and feed-forward in turn"]


def test_a_hybrid_of_experts():
    model, _ = read(**{**NEMOTRON_H_8B, "n_experts": "8", "top_k": "2", "moe_ffn_hidden": "1024"})
    assert {type(block.feed_forward) for block in model.blocks} == {Moe, type(None)}


@pytest.mark.parametrize(
    ("changes", "family"),
    [({}, "llama"), ({"gated_mlp": "false"}, "gpt2"), ({**QWEN3_30B, "n_layers": "2"}, "moe")],
)
def test_an_unknown_architecture_follows_from_the_other_columns(changes, family):
    model, assumptions = read(**{**changes, "arch": "transformer"})
    assert model.family == family
    assert assumptions == [f"arch {'gpt' if family == 'gpt2' else family}"]


def test_blank_sizes_that_follow_from_others():
    model, assumptions = read(n_heads="", n_kv_heads="", head_dim="", ffn_hidden="", vocab="", gated_mlp="")
    mixer = model.block(0).mixer
    assert (mixer.num_heads, mixer.num_kv_heads, mixer.head_dim) == (32, 32, 128)
    assert model.block(0).feed_forward.width == 11008
    assert set(assumptions) == {"n_heads 32", "gated_mlp true", "ffn_hidden 11008", "vocab 128256"}


@pytest.mark.parametrize("column", ["n_layers", "seq_len"])
def test_sizes_that_nothing_tells(column):
    with pytest.raises(CannotModel, match=f"{column} is unknown"):
        read(**{column: ""})


def test_a_model_beyond_any_size():
    with pytest.raises(CannotModel, match="n_layers 20000 is more than the 10000 that are accepted"):
        read(n_layers="20000")


def test_a_width_follows_from_the_heads():
    model, assumptions = read(hidden="")
    assert (model.hidden_size, assumptions) == (4096, ["hidden 4096"])
    with pytest.raises(CannotModel, match="hidden is unknown"):
        read(hidden="", head_dim="")


@pytest.mark.parametrize(("experts", "top_k"), [("1", 1), ("8", 2), ("128", 8)])
def test_how_many_experts_a_token_has_where_a_row_does_not_tell(experts, top_k):
    model, assumptions = read(arch="moe", n_experts=experts, top_k="")
    assert (model.blocks[0].feed_forward.top_k, assumptions) == (top_k, [f"top_k {top_k}"])


def test_a_llama_with_experts_is_a_mixture():
    model, assumptions = read(arch="llama", n_experts="8", top_k="2")
    assert (model.family, model.blocks[0].feed_forward.num_experts) == ("moe", 8)
    assert assumptions == ["arch moe"]


@pytest.mark.parametrize(
    ("width", "kv_heads", "family"), [("16384", "", "gpt2"), ("11008", "", "llama"), ("16384", "8", "llama")]
)
def test_a_width_of_four_times_the_hidden_one_is_that_of_a_plain_feed_forward(width, kv_heads, family):
    cells = {"arch": "", "gated_mlp": "", "hidden": "4096", "n_heads": "32", "head_dim": "128"}
    model, _ = read(**cells, ffn_hidden=width, n_kv_heads=kv_heads)
    assert model.family == family
    assert model.blocks[0].feed_forward.gated == (family == "llama")
