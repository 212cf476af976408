"""4 heads of 4 + 2 (values 4), latents of 12 and 8, h = 16, T = 128 tokens of 2 sequences."""

from dataclasses import replace

from costmodels.operations.latent import latent_operations
from tests.costmodels.operations.cases import EAGER, TOKENS, flops, named, sent, shapes, sizes_for
from tests.tiny_models import latent_like

CAUSAL = 64 * 64 / 2
QUERIES, VALUES = 4 * (4 + 2), 4 * 4


def latent(model=None, **changes):
    model = model or latent_like()
    return latent_operations(sizes_for(model, **changes), model.blocks[0].mixer)


def test_latents_go_down_and_up():
    operations = latent()
    assert shapes(operations) == [
        (TOKENS, 16, 8 + 2, 1),  # keys and values, with the shared rotary part
        (TOKENS, 16, 12, 1),
        (TOKENS, 8, 4 * (4 + 4), 1),
        (TOKENS, 12, QUERIES, 1),
        (TOKENS, VALUES, 16, 1),
    ]
    products = 2 * TOKENS * (16 * 10 + 16 * 12 + 8 * 32 + 12 * 24 + 16 * 16)
    assert flops(operations) == products + 2 * 2 * CAUSAL * 4 * (6 + 4)
    core = named(operations, "core").core
    assert (core.flops, core.head_dim) == (2 * 2 * CAUSAL * 4 * (6 + 4), 6)


def test_what_is_kept_latents_and_what_is_rebuilt_from_them():
    operations = latent()
    assert named(operations, "down").saved == TOKENS * (10 + 12) * 2
    assert named(operations, "up").saved == TOKENS * (2 * QUERIES + VALUES) * 2
    assert named(operations, "up").tag == "up_projections"
    assert named(operations, "core.output").saved == TOKENS * VALUES * 2


def test_queries_without_a_latent():
    model = latent_like()
    mixer = replace(model.blocks[0].mixer, q_lora_rank=None)
    operations = latent_operations(sizes_for(model), mixer)
    assert shapes(operations)[:3] == [(TOKENS, 16, 10, 1), (TOKENS, 16, QUERIES, 1), (TOKENS, 8, 32, 1)]


def test_tensor_parallelism_cuts_heads_and_not_latents():
    operations = latent(tp=2)
    assert shapes(operations) == [
        (TOKENS, 16, 10, 1),
        (TOKENS, 16, 12, 1),
        (TOKENS, 8, 16, 1),
        (TOKENS, 12, QUERIES / 2, 1),
        (TOKENS, VALUES / 2, 16, 1),
    ]
    assert named(operations, "core").core.flops == named(latent(), "core").core.flops / 2


def test_expanded_keys_and_values_are_what_context_parallelism_moves():
    buffer = 2 * 64 * (QUERIES + VALUES) * 2
    assert sent(latent(cp=2), "cp") == [("all_gather", buffer)]
    held = 2 * 32 * 2 * (QUERIES + VALUES) * 2
    assert sent(latent(cp=2, cp_method="ulysses"), "cp") == [("all_to_all", held)]


def test_unfused_scores_use_both_widths():
    written = named(latent(stack=replace(EAGER, attention="unfused")), "core")
    assert shapes([written]) == [(64, 6, 64, 8), (64, 64, 4, 8)]
