"""What layers keep, counted by hand for every family. T tokens of a micro-batch, bytes of 16 bits unless said."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoplan.readers.stacks import load_stack
from autoplan.spec import AUTOPLAN
from costmodels.activations import GRADIENTS_OF_WIDEST, count_activations
from tests.costmodels.problems import families, make_problem, one
from tests.tiny_models import gpt2_like, hybrid_like, latent_like, llama_like, moe_like

CLASSIC = replace(load_stack("megatron-classic"), dropout=True)
FLASH = replace(CLASSIC, attention="flash2")
TITAN = load_stack("torchtitan")
FUSED = replace(AUTOPLAN, name="fused", pointwise="fused")
SEQ = 64
STATISTICS = 4
"""What a norm keeps of a token: an fp32 root mean square, or a mean and a deviation."""


def counted(model, *, stack=AUTOPLAN, scale=1.0, precision="bf16", **configuration):
    problem = make_problem(model, stack=stack, seq_len=SEQ, precision=precision)
    return count_activations(problem, one(problem, **configuration), np.full((1, len(model.blocks)), scale))


def kept(model, block=0, **changes):
    return counted(model, **changes).kept[0, block]


class TestGpt:
    """A GPT block with dropout, f = 4h, as in arXiv 2205.05198, with the two statistics of each layer norm."""

    h, a = 64, 4
    model = gpt2_like(hidden_size=64, num_heads=4, width=256)

    def scores(self, b):
        return 5 * self.a * SEQ * SEQ * b

    @pytest.mark.parametrize("b", [1, 4])
    def test_is_34sbh_and_5ass_for_the_scores(self, b):
        """Inputs of products 2 + 2 + 2 + 8, queries, keys and values 6, GELU's input 8, norms 4, masks 1 + 1."""
        assert kept(self.model, stack=CLASSIC, micro_batch=b) == SEQ * b * (34 * self.h + 4 * STATISTICS) + self.scores(
            b
        )

    @pytest.mark.parametrize("t", [2, 4])
    def test_tensor_parallelism_cuts_24_of_34_and_the_scores(self, t):
        expected = SEQ * ((10 + 24 / t) * self.h + 4 * STATISTICS) + self.scores(1) / t
        assert kept(self.model, stack=CLASSIC, tp=t) == expected

    @pytest.mark.parametrize("t", [2, 4])
    def test_sequence_parallelism_cuts_all(self, t):
        expected = (SEQ * (34 * self.h + 4 * STATISTICS) + self.scores(1)) / t
        assert kept(self.model, stack=CLASSIC, tp=t, sequence_parallel=True) == expected

    def test_selective_recompute_drops_the_scores(self):
        got = kept(self.model, stack=CLASSIC, tp=2, sequence_parallel=True, recompute="selective")
        assert got == SEQ * (34 * self.h + 4 * STATISTICS) / 2

    def test_flash_attention_keeps_a_sum_of_every_row_and_head_instead(self):
        got = kept(self.model, stack=FLASH, tp=2, sequence_parallel=True)
        assert got == SEQ * (34 * self.h + 4 * STATISTICS) / 2 + SEQ * 4 * self.a / 2

    def test_full_recompute_keeps_the_input(self):
        assert kept(self.model, stack=CLASSIC, tp=2, recompute="full") == 2 * SEQ * self.h
        assert kept(self.model, stack=CLASSIC, tp=2, sequence_parallel=True, recompute="full") == SEQ * self.h

    def test_scores_written_kernel_by_kernel_keep_fp32_too(self):
        fused, eager = (
            kept(self.model, stack=replace(CLASSIC, attention=kind, dropout=False))
            for kind in ("fused_softmax", "unfused")
        )
        assert eager - fused == 4 * self.a * SEQ * SEQ


class TestLlama:
    """h 16, q 16, kv 8, f 24, 4 heads: norms' inputs and outputs, q, k, v and the output, four f-wide tensors."""

    attention = 2 * (16 + 2 * 8 + 16) + 4 * 4
    model = llama_like(num_kv_heads=2)
    eager = 2 * 2 * 2 * 16 + 2 * STATISTICS + attention + 4 * 2 * 24

    def test_eager_keeps_four_wide_tensors(self):
        assert kept(self.model, micro_batch=2) == 2 * SEQ * self.eager

    def test_a_fused_activation_keeps_three(self):
        assert kept(self.model, stack=FUSED) == SEQ * (self.eager - 2 * 24)

    def test_an_unfused_norm_keeps_its_input_and_its_result_in_fp32(self):
        unfused = kept(self.model, stack=replace(AUTOPLAN, fused_norms=False))
        assert unfused - kept(self.model) == SEQ * 2 * 2 * 4 * 16

    def test_joint_projections_stay_beside_rotated_queries_and_keys(self):
        joint = kept(self.model, stack=replace(AUTOPLAN, joint_qkv=True), tp=2)
        assert joint - kept(self.model, tp=2) == SEQ * 2 * (16 + 8) / 2

    def test_query_and_key_norms_keep_their_inputs(self):
        assert kept(llama_like(qk_norm="head")) - kept(llama_like()) == SEQ * 2 * (16 + 8)

    def test_selective_recompute_of_norms_and_pointwise(self):
        """What stays: the sums before both norms, q, k, v, the output, the gate's and the up projection's results."""
        assert kept(self.model, recompute="selective") == SEQ * (
            2 * 2 * 16 + 2 * STATISTICS + self.attention + 2 * 2 * 24
        )

    def test_every_second_product(self):
        """The input, queries, values, attention's output, the gate, and the down projection's result."""
        got = kept(self.model, stack=TITAN, recompute="selective")
        assert got == SEQ * 2 * (16 + 16 + 8 + 16 + 24 + 16)

    def test_every_second_product_of_llama_8b_is_what_was_measured(self):
        model = llama_like(hidden_size=4096, num_heads=32, num_kv_heads=8, head_dim=128, width=14336)
        assert kept(model, stack=TITAN, recompute="selective") / SEQ == pytest.approx(63.5e3, rel=1e-3)

    def test_low_precision_operands_are_kept_in_one_byte_where_software_joins_the_cast(self):
        """The outputs of both norms and the activation."""
        sixteen, eight = (kept(self.model, stack=FUSED, precision=p) for p in ("bf16", "fp8"))
        assert sixteen - eight == SEQ * (2 * 16 + 24)

    def test_context_parallelism_cuts_the_tokens(self):
        assert kept(self.model, cp=4) == SEQ / 4 * self.eager

    @pytest.mark.parametrize(("regathers", "outputs"), [(False, 1), (True, 1 / 2)])
    def test_sequence_parallelism_may_keep_what_it_gathers(self, regathers, outputs):
        stack = replace(AUTOPLAN, regathers=regathers)
        got = kept(self.model, stack=stack, tp=2, sequence_parallel=True)
        inputs = (2 * 2 * 16 + 2 * STATISTICS) / 2
        assert got == SEQ * (inputs + outputs * 2 * 2 * 16 + (self.attention + 4 * 2 * 24) / 2)

    def test_a_mask_is_kept_where_a_window_is_not_skipped(self):
        open_, cut = (kept(llama_like(sliding_window=w)) for w in (SEQ, 16))
        assert cut - open_ == 2 * SEQ * SEQ

    def test_offloaded_layers_keep_nothing_here(self):
        stack = replace(AUTOPLAN, offloaded_layers=1)
        assert kept(self.model, stack=stack) == pytest.approx(kept(self.model) * 2 / 3)

    def test_some_layers_may_be_repeated(self):
        none, full = kept(self.model), kept(self.model, recompute="full")
        assert kept(self.model, recompute="full", recompute_layers=1) == pytest.approx((full + 2 * none) / 3)


class TestMixture:
    """h 16, 4 experts of width 24, 2 a token: router and its scores, rows in and out, and 2T rows of f-wide tensors."""

    def layer(self, *, rows, tokens):
        attention = TestLlama.attention + 2 * 2 * 2 * 16 + 2 * STATISTICS
        router = 2 * 4 * 4
        return tokens * (attention + router) + rows * (2 * 16 + 2 * 16 + 4 * 2 * 24)

    def test_every_token_is_kept_once_an_expert(self):
        assert kept(moe_like()) == self.layer(rows=2 * SEQ, tokens=SEQ)

    @pytest.mark.parametrize("ep", [2, 4])
    def test_expert_parallel_ranks_receive_as_many_rows_as_they_send(self, ep):
        assert kept(moe_like(), ep=ep, dp_shard=4, zero_stage=1) == kept(moe_like())

    def test_ranks_that_cut_experts_gather_each_others_rows(self):
        """Rows in and twice the rows of half the width; the rows out are scattered before they are weighed."""
        cut = kept(moe_like(), ep=2, etp=2, dp_shard=4, zero_stage=1)
        assert cut - kept(moe_like()) == 2 * SEQ * 2 * 16

    def test_is_not_a_dense_layer(self):
        """Twice the rows, and what routing keeps."""
        assert kept(moe_like()) > kept(llama_like()) + SEQ * 4 * 2 * 24

    def test_shared_experts_add_a_dense_feed_forward(self):
        assert kept(moe_like(shared=24)) - kept(moe_like()) == SEQ * 4 * 2 * 24

    def test_a_weighted_activation_keeps_no_rows_for_the_weights(self):
        fused, eager = (kept(moe_like(), stack=s) for s in (FUSED, AUTOPLAN))
        assert eager - fused == 2 * SEQ * (2 * 16 + 2 * 24)


class TestLatent:
    """4 heads of 4 + 2 and 4, ranks 12 and 8, h 16, f 24."""

    down, ranks = 12 + 8 + 2, 12 + 8
    up, core = 2 * 4 * 6 + 4 * 6 + 4 * 4, 4 * 4
    rest = 2 * 2 * 2 * 16 + 2 * STATISTICS + 4 * 2 * 24

    def test_latents_and_what_is_expanded_stay(self):
        """Latents and their norms, queries before and after rotation, keys, values, sums and the output."""
        expected = 2 * (self.down + self.ranks + 4 * 2 * 6 + 4 * 4) + 4 * 4 + 2 * self.core + self.rest
        assert kept(latent_like()) == SEQ * expected

    def test_expanding_again_keeps_the_latents(self):
        stack = replace(AUTOPLAN, redone=("up_projections",))
        difference = kept(latent_like(), stack=stack) - kept(latent_like(), stack=stack, recompute="selective")
        assert difference == SEQ * 2 * (2 * 4 * 6 + 4 * 4)


class TestHybrid:
    """Mamba-2 of 8 heads of 4, 2 groups of 8 states, chunks of 8; h 16, f 24."""

    def test_a_state_space_layer(self):
        """Norm in and out, gate, x, B, C and steps, x, B and C convolved, the scan's output and states, a norm."""
        inner, states, heads = 8 * 4, 2 * 2 * 8, 8
        norm = 2 * 2 * 16 + STATISTICS
        projected, mixed = 2 * (2 * inner + states + heads), 2 * (inner + states)
        scan = 2 * inner + 2 * 4 * heads + heads * 8 * 4 * 4 / 8
        assert kept(hybrid_like()) == SEQ * (norm + projected + mixed + scan + 2 * inner)

    def test_feed_forward_and_attention_layers_keep_their_half_of_a_dense_layer(self):
        norms = 2 * 2 * 16 + STATISTICS
        assert kept(hybrid_like(), block=1) == SEQ * (norms + 4 * 2 * 24)
        assert kept(hybrid_like(), block=2) == SEQ * (norms + TestLlama.attention)


class TestEnds:
    model = llama_like()

    def test_the_embedding_keeps_the_tokens(self):
        assert kept(self.model, block=1) == SEQ * 8
        assert kept(gpt2_like(), block=1, stack=CLASSIC) == SEQ * (8 + 16)

    def test_the_head_keeps_its_norm(self):
        assert kept(self.model, block=2) == SEQ * (2 * 2 * 16 + STATISTICS)

    def test_logits(self):
        """50 entries over 2 ranks: an fp32 log-softmax and two more fp32 copies, once; on pipelines the logits stay."""
        one_, piped = counted(self.model, tp=2), counted(self.model, tp=2, pp=2)
        assert (one_.logits[0], one_.loss[0]) == (SEQ * 25 * 4, SEQ * 25 * 8)
        assert (piped.logits[0], piped.loss[0]) == (SEQ * 25 * 6, SEQ * 25 * 8)

    def test_a_fused_loss_keeps_the_logits_alone(self):
        found = counted(self.model, stack=replace(AUTOPLAN, fused_loss=True, logit_copies=0))
        assert (found.logits[0], found.loss[0]) == (SEQ * 50 * 2, 0)

    def test_all_ranks_may_gather_all_logits(self):
        """A list, a buffer and the concatenation, of 16 bits."""
        stack = replace(AUTOPLAN, parallel_loss=False)
        alone, gathered = counted(self.model, stack=stack), counted(self.model, stack=stack, tp=2)
        assert gathered.logits[0] == alone.logits[0] == SEQ * 50 * 4
        assert (alone.gathered[0], gathered.gathered[0]) == (0, SEQ * 50 * 3 * 2)

    def test_every_module_that_predicts_has_logits(self):
        assert counted(moe_like(mtp=True)).loss[0] == 2 * counted(moe_like()).loss[0]


def test_a_layers_backward_works_on_what_was_dropped_and_on_the_widest_operation():
    """Up and gate are widest, 4·24 bytes a token; full recompute has the layer to rebuild but its input."""
    none, full = counted(llama_like()), counted(llama_like(), recompute="full")
    assert none.working[0] == SEQ * (2 * 2 * 16 + GRADIENTS_OF_WIDEST * 2 * 2 * 24)
    assert full.working[0] - none.working[0] == none.kept[0, 0] - full.kept[0, 0]


@given(
    family=st.sampled_from(sorted(families())),
    stack=st.sampled_from(["autoplan", "megatron", "megatron-classic", "torchtitan", "scaling", "fsdp"]),
    split=st.booleans(),
    tp=st.sampled_from([1, 2]),
    scale=st.floats(0.2, 5),
    b=st.integers(1, 8),
)
def test_selective_recompute_keeps_between_nothing_more_and_the_input(family, stack, split, tp, scale, b):
    stack = AUTOPLAN if stack == "autoplan" else load_stack(stack)
    configuration = {"tp": tp, "sequence_parallel": split and tp > 1, "micro_batch": b}
    held = [
        counted(families()[family], stack=stack, scale=scale, recompute=mode, **configuration)
        for mode in ("none", "selective", "full")
    ]
    for first, second in pairwise(held):
        assert (first.kept >= second.kept).all()
        assert first.logits == second.logits
    assert all(found.kept[:, :-1].min() > 0 and found.working.min() > 0 for found in held)


def test_measured_bytes_scale_what_is_kept():
    assert kept(llama_like(), scale=2.0) == pytest.approx(2 * kept(llama_like()))


def test_an_offloaded_layer_comes_back_to_work():
    """Of three layers two are kept, and one more while it works."""
    stack = replace(AUTOPLAN, offloaded_layers=1)
    for mode in ("none", "full"):
        here, away = (counted(llama_like(), stack=s, recompute=mode) for s in (AUTOPLAN, stack))
        assert away.working[0] - here.working[0] == pytest.approx(here.kept[0, 0])


def test_keys_and_values_of_all_ranks_are_held_where_they_are_gathered():
    """Keys and values of 4·2 elements a head pair, and their gradients, of the whole sequence in two bytes."""
    model = llama_like()
    mixer = model.blocks[0].mixer
    ring, gathered = (counted(model, cp=4, cp_method=method).working[0] for method in ("ring", "allgather"))
    keys = SEQ * mixer.num_kv_heads * mixer.head_dim * 2
    assert gathered - ring == pytest.approx(2 * (2 * keys))
