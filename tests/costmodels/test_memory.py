"""Terms of memory counted by hand, and what no change of the model may break."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoplan.readers.stacks import load_stack
from autoplan.spec import AUTOPLAN, Configuration
from autoplan.spec.problem import num_microbatches
from costmodels.activations import count_activations
from costmodels.estimate import estimate, evaluate
from costmodels.evaluation import rank_bytes, rank_memory
from costmodels.hardware import resolve_hardware
from costmodels.memory import COMMUNICATOR_BYTES, FRAGMENTED, held_bytes
from costmodels.parameters import count_parameters
from costmodels.pipeline import in_flight
from costmodels.stage_costs import count_units
from tests.costmodels.problems import (
    GIB,
    families,
    make_batch,
    make_cluster,
    make_device,
    make_group,
    make_problem,
    one,
    random_configurations,
)
from tests.tiny_models import gpt2_like, llama_like, moe_like

EMBEDDING = 50 * 16
HEAD = 50 * 16 + 16
ATTENTION = 16 * 16 + 2 * 16 * 8 + 16 * 16
BLOCK = 2 * 16 + ATTENTION + 3 * 16 * 24
MEGATRON, SCALING, TITAN, TUNE = (load_stack(name) for name in ("megatron", "scaling", "torchtitan", "torchtune"))


def held(model=None, *, stack=AUTOPLAN, global_batch=64, optimizer="adamw", precision="bf16", **configuration):
    """Return (static, in flight) of every term by unit: blocks, embedding, head, stage."""
    problem = make_problem(
        model or llama_like(), stack=stack, global_batch=global_batch, optimizer=optimizer, precision=precision
    )
    batch = one(problem, **configuration)
    terms = held_bytes(
        problem,
        batch,
        hardware=resolve_hardware(problem),
        parameters=count_parameters(problem.model, batch),
        activation_scale=np.ones((1, len(problem.model.blocks))),
    )
    return {name: (term.static[0].tolist(), term.in_flight[0].tolist()) for name, term in terms.items()}


def static(name, unit, **changes):
    return held(**changes)[name][0][unit]


def by_rank(problem, configuration):
    """Return the bytes of every pipeline rank by term, without pricing time."""
    batch = make_batch(problem, configuration)
    terms = held_bytes(
        problem,
        batch,
        hardware=resolve_hardware(problem),
        parameters=count_parameters(problem.model, batch),
        activation_scale=np.ones((1, len(problem.model.blocks))),
    )
    flights = in_flight(
        batch.schedule, batch.pp, batch.virtual_stages, num_microbatches(problem, batch), batch.cuts.shape[1] - 1
    )
    counts = count_units(problem.model, batch)
    return {name: rank_bytes(batch, counts, flights, term.static, term.in_flight)[0] for name, term in terms.items()}


def peak(problem, **configuration):
    return sum(by_rank(problem, Configuration(**configuration)).values()).max()


class TestModelStates:
    def test_adamw_in_bf16_on_one_rank(self):
        """fp32 weights and two moments, bf16 copies, fp32 gradients that add up: 4 + 8 + 2 + 4 bytes a parameter."""
        terms = held()
        sizes = np.array([BLOCK, EMBEDDING, HEAD, 0])
        for name, per_parameter in (("weights", 4), ("optimizer_states", 8), ("gathered_weights", 2), ("gradients", 4)):
            assert terms[name][0] == pytest.approx(per_parameter * sizes), name

    @pytest.mark.parametrize(
        ("optimizer", "per_parameter"), [("adamw", 8), ("adamw8bit", 2), ("muon", 4), ("lamb", 8), ("sgd", 0)]
    )
    def test_states_by_optimizer(self, optimizer, per_parameter):
        assert static("optimizer_states", 0, optimizer=optimizer) == per_parameter * BLOCK

    @pytest.mark.parametrize(("zero", "gathered", "gradients"), [(1, 2, 4), (2, 2, 4 / 4), (3, 0, 4 / 4)])
    def test_what_each_zero_stage_keeps_over_four_shards(self, zero, gathered, gradients):
        terms = held(dp_shard=4, zero_stage=zero)
        assert terms["weights"][0][0] == BLOCK
        assert terms["optimizer_states"][0][0] == 2 * BLOCK
        assert terms["gathered_weights"][0][0] == gathered * BLOCK
        assert terms["gradients"][0][0] == gradients * BLOCK
        assert terms["gathered_weights"][0][3] == (3 * 2 * BLOCK if zero == 3 else 0)

    @pytest.mark.parametrize(
        ("stack", "weights", "states", "gradients"),
        [(MEGATRON, 2 + 4 / 4, 8 / 4, 4), (SCALING, 2 + 4 / 4, 8 / 4, 2), (TUNE, 2, 4 / 4, 2)],
    )
    def test_bytes_a_parameter_by_software_at_stage_one(self, stack, weights, states, gradients):
        """Megatron's 6 + 12/d; gradients of 16 bits; no masters and moments of 16 bits."""
        terms = held(stack=stack, dp_shard=4, zero_stage=1)
        assert terms["weights"][0][0] == weights * BLOCK
        assert terms["optimizer_states"][0][0] == states * BLOCK
        assert terms["gradients"][0][0] == gradients * BLOCK
        assert terms["gathered_weights"][0] == [0, 0, 0, 0]

    def test_weights_of_stage_three_are_gathered_a_few_layers_at_a_time(self):
        """Two layers of FSDP, three of FSDP2, and the head, of 16 bits."""
        for kind, layers in (("fsdp", 2), ("fsdp2", 3)):
            gathered = held(stack=replace(AUTOPLAN, data_parallel=kind), dp_shard=4, zero_stage=3)["gathered_weights"]
            assert gathered[0] == [0, 0, 2 * HEAD, layers * 2 * BLOCK]

    @pytest.mark.parametrize("precision", ["bf16", "fp16", "fp8", "mxfp8"])
    def test_sixteen_bits_are_gathered_in_low_precision(self, precision):
        assert static("gathered_weights", 0, precision=precision) == 2 * BLOCK

    def test_fp32_gathers_and_keeps_four_bytes(self):
        assert static("gathered_weights", 0, precision="fp32", dp_replicate=2) == 4 * BLOCK
        assert held(precision="fp32")["gathered_weights"][0] == [0, 0, 0, 0], "one rank has nothing to cast or gather"
        assert held(precision="fp32")["activations"][1][0] > 1.9 * held()["activations"][1][0]

    def test_experts_are_cut_by_ep_and_etp_and_sharded_over_what_is_left(self):
        """2 x 8 ranks hold 4 experts 4 ways, each cut 2 ways: a half of one expert twice, its states sharded 2 ways."""
        degrees = {"stack": MEGATRON, "tp": 2, "dp_shard": 8, "ep": 4, "etp": 2, "zero_stage": 1}
        some, twice = (held(moe_like(width=width), **degrees) for width in (24, 48))
        experts = 4 * 3 * 16 * 24
        assert twice["gradients"][0][0] - some["gradients"][0][0] == 4 * experts / 8
        assert twice["optimizer_states"][0][0] - some["optimizer_states"][0][0] == 8 * experts / 16
        assert some["gradients"][0][0] == 4 * (2 * 16 + 4 * 16 + ATTENTION / 2 + experts / 8)

    def test_tied_tables_are_held_on_both_ends(self):
        model = gpt2_like(num_layers=4)
        alone, piped = (static("weights", 2, model=model, **c) for c in ({}, {"pp": 2}))
        assert piped - alone == 4 * EMBEDDING


class TestGradients:
    def test_of_a_single_micro_batch_take_the_place_of_activations(self):
        """They appear layer by layer while activations go; reserved is both."""
        terms = held(dp_shard=4, zero_stage=1, global_batch=4)
        units, rows = np.array([3, 1, 1, 1]), -(-50 // 4)
        gradients = 4 * (3 * BLOCK / 4 + 2 * rows * 16 + 16 / 4)
        assert np.array(terms["activations"][1]) @ units > gradients
        assert np.array(terms["gradients"][0]) @ units == 0
        lost = FRAGMENTED * (terms["activations"][0][3] + terms["gradient_buffers"][0][3])
        assert terms["fragmentation"][0][3] == pytest.approx(gradients + lost)

    def test_that_are_more_than_the_activations_stay(self):
        """64 tokens of 16 numbers in 3 layers, of both ends and of the logits, against 4 bytes a parameter."""
        model = llama_like(hidden_size=64, width=512)
        terms = held(model, recompute="full", global_batch=1)
        gradients = 4 * count_parameters(model, one(make_problem(model))).local[0] @ [3, 1, 1, 0]
        activations = 64 * (3 * 2 * 64 + 8 + (2 * 2 * 64 + 4)) + 64 * 50 * 4
        assert np.array(terms["gradients"][0]) @ [3, 1, 1, 1] == gradients - activations > 0

    def test_exist_from_the_start_in_buckets_and_when_they_add_up(self):
        assert static("gradients", 0, stack=MEGATRON, global_batch=1) == 4 * BLOCK
        assert static("gradients", 0, global_batch=2) == 4 * BLOCK

    def test_are_buffered_for_a_layer(self):
        """In 16 bits, and in fp32 where ranks reduce them."""
        assert static("gradient_buffers", 3) == 2 * BLOCK
        assert static("gradient_buffers", 3, dp_shard=2, zero_stage=2) == 6 * BLOCK


class TestOptimizer:
    def test_copies_gradients_of_16_bits_to_fp32_when_activations_are_gone(self):
        """Unsharded, of a model that is large beside 64 tokens: 4 bytes a parameter less what activations had."""
        model = llama_like(hidden_size=256, width=1024)
        classic = replace(load_stack("megatron-classic"), gradient_bytes=2, logit_copies=0)
        terms = held(model, stack=classic, recompute="full")
        parameters = count_parameters(model, one(make_problem(model), recompute="full")).local[0] @ [3, 1, 1, 0]
        kept = np.array(terms["activations"][1]) @ [3, 1, 1, 0] + terms["logits"][1][2]
        working = terms["activations"][0][3] + terms["gradient_buffers"][0][3]
        assert terms["optimizer_buffers"][0] == [0, 0, 0, pytest.approx(4 * parameters - kept - working)]
        assert 4 * parameters > kept + working

    def test_needs_no_more_where_activations_had_more_or_gradients_are_in_fp32(self):
        assert held(stack=SCALING, micro_batch=8)["optimizer_buffers"][0] == [0, 0, 0, 0]
        assert held(stack=MEGATRON, recompute="full")["optimizer_buffers"][0] == [0, 0, 0, 0]


class TestWhatComesAndGoes:
    def test_the_loss_and_a_layers_backward_share_what_is_allocated(self):
        """2 sequences of 64 tokens, 50 entries over 2 ranks, fp32: one copy stays, two exist once."""
        terms = held(micro_batch=2, tp=2)
        entries = 2 * 64 * 25
        working = terms["activations"][0][3] + terms["gradient_buffers"][0][3]
        assert terms["logits"][1][2] == 4 * entries
        assert terms["logits"][0][2] == max(8 * entries - working, 0) > 0
        lost = FRAGMENTED * (terms["logits"][0][2])
        assert terms["fragmentation"][0][2] == pytest.approx(working + lost), "both are reserved"

    def test_the_heads_gradient_may_be_more_than_the_loss(self):
        small = held(vocabulary := llama_like(vocab_size=4096), stack=TITAN, dp_shard=64, zero_stage=3, micro_batch=1)
        head = 16 * (vocabulary.vocab_size + 1)
        working = small["activations"][0][3] + small["gradient_buffers"][0][3]
        assert small["logits"][0][2] == max(8 * 64 * 4096, (2 + 4) * head) - working

    def test_gathered_logits_are_reserved(self):
        """Three copies of 16 bits, 50 entries for each of 64 tokens."""
        more = static("fragmentation", 2, stack=SCALING, tp=2) - static(
            "fragmentation", 2, stack=replace(SCALING, parallel_loss=True), tp=2
        )
        assert more >= 3 * 2 * 64 * 50 * (1 - 1e-9)

    def test_a_share_of_activations_in_flight_is_lost(self):
        terms = held()
        assert terms["fragmentation"][1][0] == pytest.approx(FRAGMENTED * terms["activations"][1][0])

    def test_receives_are_allocated_for_every_micro_batch_or_two_at_a_time(self):
        hidden, m = 64 * 16 * 2, 64
        four = held(llama_like(num_layers=4), pp=4)["pipeline_buffers"]
        assert four[0][1:] == [-m * hidden, -m * hidden, 2 * m * hidden]
        assert four[1][1] == hidden
        two = held(llama_like(num_layers=4), stack=MEGATRON, pp=4)["pipeline_buffers"]
        assert two[0] == [0, 0, 0, 2 * hidden]
        assert held()["pipeline_buffers"][0] == [0, 0, 0, 0]

    @pytest.mark.parametrize(
        ("schedule", "v", "stage", "embedding"),
        [
            ("zb-h1", 1, 2 + 1, -2),
            ("interleaved", 2, 2 * 2, -1),
            ("interleaved", 3, 2 * 3, -1),
            ("zb-v", 2, 2 * 2 + 2, -2),
            ("dualpipe-v", 2, 2 * 2 + 1 / 64, -1),
        ],
    )
    def test_every_chunk_receives(self, schedule, v, stage, embedding):
        """All chunks but the first receive activations, and leave input gradients where weight gradients come later."""
        hidden, m = 64 * 16 * 2, 64
        terms = held(llama_like(num_layers=6), pp=2, schedule=schedule, virtual_stages=v)["pipeline_buffers"]
        assert terms[0] == [0, embedding * m * hidden, -m * hidden, stage * m * hidden]


class TestOutsideOfTheAllocator:
    def test_every_axis_has_a_communicator(self):
        buffers = [
            static("communication", 3, model=families()["moe"], global_batch=64, **c)
            for c in (
                {},
                {"dp_shard": 2, "zero_stage": 1},
                {"tp": 2, "pp": 2},
                {"tp": 2, "dp_shard": 2, "ep": 4, "zero_stage": 1},
            )
        ]
        assert buffers == [count * COMMUNICATOR_BYTES for count in (0, 1, 2, 3)]

    def test_processes_on_cpus_have_none(self):
        problem = make_problem(cluster=make_cluster(make_group(kind="cpu")))
        found = estimate(problem, Configuration(dp_replicate=8))
        assert found.memory[0].terms["communication"] == 0
        assert found.memory[0].terms["runtime"] == make_device().reserved_bytes

    def test_a_stage_tells_what_it_allocates_and_reserves(self):
        (stage,) = estimate(make_problem(), Configuration(dp_replicate=8)).memory
        outside = stage.terms["runtime"] + stage.terms["communication"]
        assert stage.total_bytes == stage.reserved_bytes + outside
        assert stage.reserved_bytes == stage.allocated_bytes + stage.terms["fragmentation"]
        assert min(stage.terms["fragmentation"], outside) > 0


class TestWhole:
    def test_a_dense_model_on_fully_sharded_ranks(self):
        """Llama-like, 8 layers, h 512, 8 heads of 64, f 1024, 50 entries; 8 shards, one micro-batch of 2 x 64."""
        h, f, v, tokens, layers = 512, 1024, 50, 2 * 64, 8
        block = 4 * h * h + 3 * h * f + 2 * h
        parameters = layers * block + 2 * v * h + h
        stage = estimate(make_problem(global_batch=16), Configuration(dp_shard=8, zero_stage=3, micro_batch=2)).memory[
            0
        ]
        layer = tokens * (2 * 2 * 2 * h + 2 * 4 + 2 * 4 * h + 4 * 8 + 4 * 2 * f)
        ends = tokens * 8 + tokens * (2 * 2 * h + 4)
        logits = 4 * tokens * v
        working = tokens * (2 * 2 * h + 1.5 * 2 * 2 * f)
        assert stage.terms["weights"] == pytest.approx(4 * parameters / 8, rel=0.01)
        assert stage.terms["optimizer_states"] == pytest.approx(8 * parameters / 8, rel=0.01)
        assert stage.terms["gathered_weights"] == 2 * (v * h + h) + 3 * 2 * block
        assert stage.terms["gradient_buffers"] == 6 * block
        assert stage.terms["activations"] == pytest.approx(layers * layer + ends + working)
        assert stage.terms["logits"] == logits, "a layer's backward needs more than the loss"

    def test_a_pipelines_first_stage_holds_as_many_micro_batches_as_it_has_stages(self):
        problem = make_problem(llama_like(num_layers=8), stack=MEGATRON)
        found = count_activations(problem, one(problem, pp=4), np.ones((1, 1)))
        layer, embedding, head, _ = found.kept[0]
        in_flight_ = [4 * (2 * layer + embedding), 3 * 2 * layer, 2 * 2 * layer, 2 * layer + head]
        got = by_rank(problem, Configuration(pp=4))["activations"]
        assert got == pytest.approx(np.array(in_flight_) + found.working[0])

    def test_micro_batches_in_flight_make_the_first_stage_the_heaviest(self):
        model = llama_like(num_layers=8, hidden_size=512, num_heads=8, num_kv_heads=8, head_dim=64)
        problem = make_problem(model, global_batch=8)
        batch = make_batch(problem, Configuration(pp=4), Configuration(pp=4, schedule="gpipe"))
        held = rank_memory(problem, batch)
        assert held[0, 0] > held[0, 1] > held[0, 2]
        assert (held[1] > held[0]).all(), "gpipe holds all micro-batches"

    def test_the_limit_decides_what_fits(self):
        problem = make_problem(cluster=make_cluster(make_group(memory_bytes=3 * GIB)), seq_len=2048, global_batch=64)
        result = evaluate(
            problem, make_batch(problem, Configuration(dp_replicate=8), Configuration(dp_replicate=8, micro_batch=8))
        )
        assert result.memory_limit_bytes.tolist() == [3 * GIB] * 2
        assert result.fits.tolist() == [True, False]
        assert (result.fits == (result.peak_memory_bytes <= 3 * GIB)).all()


@pytest.mark.parametrize("family", sorted(families()))
def test_all_ranks_together_hold_every_byte_of_the_model(family):
    """No term is divided by more ranks than share it: ranks times what one holds is at least the whole."""
    problem = make_problem(families()[family], stack=MEGATRON, cluster=make_cluster(make_group(4)))
    whole = by_rank(problem, Configuration(dp_replicate=32))
    ranks = problem.cluster.num_devices
    for configuration in random_configurations(problem, 40):
        terms = by_rank(problem, configuration)
        for name in ("weights", "optimizer_states", "gradients"):
            total = terms[name].sum() * ranks / configuration.pp
            assert total >= whole[name][0] * (1 - 1e-9), (name, configuration)


@pytest.mark.parametrize("family", sorted(families()))
def test_ranks_that_share_a_micro_batch_keep_all_of_it_together(family):
    problem = make_problem(families()[family], stack=MEGATRON)
    scale = np.ones((1, len(problem.model.blocks)))
    whole = count_activations(problem, one(problem), scale)
    for tp, cp in ((2, 1), (8, 1), (1, 4), (4, 2)):
        part = count_activations(problem, one(problem, tp=tp, cp=cp, sequence_parallel=tp > 1), scale)
        for name in ("kept", "working", "logits", "loss"):
            assert (tp * cp * getattr(part, name) >= getattr(whole, name) * (1 - 1e-9)).all(), (name, tp, cp)


@settings(max_examples=60, deadline=None)
@given(
    family=st.sampled_from(sorted(families())),
    stack=st.sampled_from([AUTOPLAN, MEGATRON, SCALING, TITAN]),
    zero=st.sampled_from([1, 2, 3]),
    tp=st.sampled_from([1, 2]),
    shards=st.sampled_from([2, 4, 8]),
    recompute=st.sampled_from(["none", "selective", "full"]),
)
def test_more_devices_never_need_more_for_the_same_work_of_a_rank(family, stack, zero, tp, shards, recompute):
    few, many = (
        peak(
            make_problem(families(4)[family], stack=stack, global_batch=4 * n),
            dp_shard=n,
            tp=tp,
            zero_stage=zero,
            recompute=recompute,
        )
        for n in (shards, 2 * shards)
    )
    assert many <= few


@settings(max_examples=80, deadline=None)
@given(
    family=st.sampled_from(sorted(families())),
    stack=st.sampled_from([AUTOPLAN, MEGATRON, SCALING, TITAN]),
    pp=st.sampled_from([1, 2, 4]),
    schedule=st.sampled_from(["gpipe", "1f1b"]),
    micro_batch=st.sampled_from([1, 2, 4]),
    split=st.booleans(),
)
def test_recompute_never_needs_more_memory(family, stack, pp, schedule, micro_batch, split):
    problem = make_problem(families()[family], stack=stack, seq_len=512, global_batch=128)
    held_ = [
        peak(
            problem,
            dp_replicate=8 // pp,
            tp=2,
            pp=pp,
            sequence_parallel=split,
            schedule=schedule,
            micro_batch=micro_batch,
            recompute=mode,
        )
        for mode in ("none", "selective", "full")
    ]
    assert all(first >= second * (1 - 1e-9) for first, second in pairwise(held_))


@pytest.mark.parametrize("family", sorted(families()))
def test_no_term_is_negative(family):
    problem = make_problem(families()[family], cluster=make_cluster(make_group(4)))
    for configuration in random_configurations(problem, 40):
        for name, terms in by_rank(problem, configuration).items():
            assert (terms >= 0).all(), (name, configuration)
