from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoplan.errors import ConfigurationError
from autoplan.spec import Configuration, CpMethod, Derate, Norm, Recompute, Rope, RopeScaling, Schedule, Stack
from autoplan.spec.rules import RULES, broken, holds, require_valid
from costmodels.batch import Batch, even_cuts
from tests.spec.values import small_problem
from tests.tiny_models import gpt2_like, hybrid_like, latent_like, llama_like, moe_like, with_parts

YARN = Rope(theta=1e4, scaling=RopeScaling(kind="yarn", parameters={"factor": 2.0}))
LLAMA = llama_like(num_layers=4)
DATA = Configuration(dp_replicate=8)


def two_head_dims():
    narrow, wide = llama_like(num_layers=1), llama_like(num_layers=1, head_dim=8)
    return replace(narrow, blocks=narrow.blocks + wide.blocks, layer_blocks=(0, 1, 0, 1))


def with_attention(**changes):
    return small_problem(model=with_parts(LLAMA, mixer=changes))


def with_block(**changes):
    return small_problem(model=with_parts(LLAMA, block=changes))


def with_model(**changes):
    return small_problem(model=replace(LLAMA, **changes))


def mixed_problem(**workload):
    """Two nodes of 4 devices, of which one is slow."""
    problem = small_problem(**workload)
    fast = replace(problem.cluster.groups[0], num_nodes=1, devices_per_node=4)
    slow = replace(fast, derate=Derate(compute=0.5))
    return replace(problem, cluster=replace(problem.cluster, groups=(fast, slow)))


# For every rule a problem and a configuration that break it and no other of its kind, and what its sentence must say.
# A configuration that breaks a runnable rule is valid.
BREAKS = {
    "world_size": (small_problem(), Configuration(dp_replicate=4), ("dp_replicate 4", "= 4 ranks", "has 8")),
    "tp": (small_problem(), Configuration(tp=8), ("tp 8", "num_heads 4")),
    "cp_seq_len": (
        small_problem(seq_len=30),
        Configuration(dp_replicate=4, cp=2, cp_method="ring"),
        ("cp 2", "ring", "seq_len 30 in 4 equal parts"),
    ),
    "cp_heads": (
        small_problem(),
        Configuration(cp=8, cp_method="ulysses"),
        ("ulysses", "tp 1 x cp 8", "num_heads 4"),
    ),
    "experts": (small_problem(), Configuration(dp_replicate=8, ep=2), ("ep 2", "etp 1", "no experts")),
    "ep": (small_problem(model=moe_like()), Configuration(dp_replicate=8, ep=8), ("ep 8", "num_experts 4")),
    "etp": (
        small_problem(model=moe_like(width=25)),
        Configuration(dp_replicate=8, etp=2),
        ("etp 2", "expert width 25"),
    ),
    "expert_ranks": (
        small_problem(model=moe_like()),
        Configuration(dp_replicate=2, pp=2, tp=2, ep=4, etp=2),
        ("ep 4 x etp 2", "the 4 ranks", "dp 2 x cp 1 x tp 2"),
    ),
    "sequence_parallel": (
        small_problem(seq_len=33),
        Configuration(dp_replicate=4, tp=2, sequence_parallel=True),
        ("seq_len 33", "tp is 2"),
    ),
    "pp": (small_problem(), Configuration(pp=8), ("pp 8", "4 layers")),
    "global_batch": (
        small_problem(),
        Configuration(dp_replicate=8, micro_batch=3),
        ("dp 8", "micro_batch 3", "global_batch 16"),
    ),
    "num_microbatches": (
        small_problem(global_batch=2**17 + 4),
        Configuration(dp_replicate=4, pp=2),
        ("32769 micro-batches", "16384"),
    ),
    "interleaved": (
        small_problem(global_batch=12),
        Configuration(dp_replicate=4, pp=2, schedule="interleaved", virtual_stages=2),
        ("pp 2", "has 3"),
    ),
    "dualpipe-v": (
        small_problem(global_batch=12),
        Configuration(dp_replicate=4, pp=2, schedule="dualpipe-v", virtual_stages=2),
        ("4 micro-batches", "has 3"),
    ),
    "recompute_layers": (
        small_problem(),
        Configuration(dp_replicate=8, recompute="full", recompute_layers=5),
        ("recompute_layers 5", "full", "up to 4"),
    ),
    "zero_stage": (small_problem(), Configuration(dp_shard=8), ("zero_stage 0", "dp_shard is 8")),
    "virtual_stages": (
        small_problem(),
        Configuration(dp_replicate=4, pp=2, virtual_stages=2),
        ("virtual_stages 2", "1f1b"),
    ),
    "learned_positions": (
        small_problem(model=gpt2_like(num_layers=4), seq_len=65),
        DATA,
        ("seq_len 65", "64 learned"),
    ),
    "stack": (small_problem(stack=Stack(name="megatron")), DATA, ("stack megatron",)),
    "optimizer": (small_problem(optimizer="muon"), DATA, ("muon",)),
    "precision": (small_problem(precision="fp8"), DATA, ("fp8",)),
    "context_parallel": (small_problem(), Configuration(dp_replicate=4, cp=2), ("cp 2",)),
    "schedule": (small_problem(), Configuration(dp_replicate=4, pp=2, schedule="zb-h1"), ("schedule zb-h1",)),
    "kv_heads": (small_problem(), Configuration(dp_replicate=2, tp=4), ("tp 4", "num_kv_heads 2")),
    "mixers": (with_block(mixer=latent_like().blocks[0].mixer), DATA, ("mixer latent_attention",)),
    "feed_forwards": (small_problem(model=moe_like()), DATA, ("feed-forward moe",)),
    "norms": (with_block(norms="both"), DATA, ("norms both",)),
    "parallel_blocks": (with_block(parallel=True), DATA, ("parallel blocks",)),
    "activations": (
        small_problem(model=with_parts(LLAMA, feed_forward={"activation": "relu2"})),
        DATA,
        ("activation relu2",),
    ),
    "qk_norm": (with_attention(qk_norm="width"), DATA, ("qk_norm width",)),
    "chunk": (with_attention(chunk=8), DATA, ("attention chunk 8",)),
    "sinks": (with_attention(sinks=True), DATA, ("attention sinks",)),
    "clip_qkv": (with_attention(clip_qkv=6.0), DATA, ("attention clip_qkv 6",)),
    "attention_softcap": (with_attention(logit_softcap=50.0), DATA, ("attention logit_softcap 50",)),
    "softmax_scale": (with_attention(softmax_scale=0.1), DATA, ("attention softmax_scale 0.1",)),
    "norm_weights": (with_model(norm=Norm(kind="layernorm", eps=1e-5, weight=False)), DATA, ("norms without weights",)),
    "local_theta": (with_model(rope=Rope(theta=1e6, local_theta=1e4)), DATA, ("rope local_theta",)),
    "rope_layers": (with_attention(rope=False), DATA, ("layers without rope",)),
    "positions": (with_model(positions="alibi", rope=None), DATA, ("positions alibi",)),
    "mtp": (with_model(mtp=(0,)), DATA, ("multi-token prediction",)),
    "embedding_scale": (with_model(embedding_scale=4.0), DATA, ("embedding_scale 4",)),
    "logit_softcap": (with_model(logit_softcap=30.0), DATA, ("logit_softcap 30",)),
    "rope_scaling": (small_problem(model=llama_like(num_layers=4, rope=YARN)), DATA, ("yarn",)),
    "uneven_shares": (small_problem(), replace(DATA, uneven_shares=True), ("nodes of the cluster are all alike",)),
    "replicas": (mixed_problem(), Configuration(dp_shard=8, zero_stage=1, uneven_shares=True), ("dp_replicate is 1",)),
    "uneven_batch": (
        mixed_problem(global_batch=32),
        Configuration(dp_replicate=2, dp_shard=4, zero_stage=1, micro_batch=3, uneven_shares=True),
        ("dp_shard 4 x micro_batch 3 of global_batch",),
    ),
    "even_shares": (mixed_problem(), replace(DATA, uneven_shares=True), ("not in the executor",)),
    "node_order": (replace(small_problem(), node_order=((0, 1),)), DATA, ("another order",)),
    "head_dim": (small_problem(model=two_head_dims()), DATA, ("head_dim [4, 8]",)),
}


def names_broken(problem, configuration, kinds=("valid", "runnable")):
    return [rule.name for rule in RULES if rule.kind in kinds and not rule.holds(problem, configuration)]


def test_every_rule_has_a_configuration_that_breaks_it():
    assert set(BREAKS) == {rule.name for rule in RULES}
    assert len({rule.name for rule in RULES}) == len(RULES)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_can_be_broken_alone_and_says_the_numbers(rule):
    problem, configuration, parts = BREAKS[rule.name]
    kinds = ("valid",) if rule.kind == "valid" else ("valid", "runnable")
    assert names_broken(problem, configuration, kinds) == [rule.name]
    (sentence,) = broken(problem, configuration, kind=rule.kind)
    assert [part for part in parts if part not in sentence] == []


@pytest.mark.parametrize(
    "configuration",
    [
        Configuration(dp_replicate=8),
        Configuration(dp_shard=8, zero_stage=3),
        Configuration(dp_replicate=2, dp_shard=2, tp=2, zero_stage=2, sequence_parallel=True),
        Configuration(dp_shard=2, tp=2, pp=2, zero_stage=1, micro_batch=2, recompute="full"),
        Configuration(dp_replicate=2, pp=4, schedule="gpipe"),
        Configuration(dp_shard=2, pp=4, zero_stage=3, micro_batch=4),
    ],
)
def test_good_configurations_keep_every_rule(configuration):
    problem = small_problem()
    assert names_broken(problem, configuration) == []
    assert holds(problem, configuration, kind="valid")
    assert holds(problem, configuration, kind="runnable")
    require_valid(problem, configuration)


@pytest.mark.parametrize(
    ("model", "configuration"),
    [
        (LLAMA, Configuration(dp_replicate=2, tp=4)),
        (LLAMA, Configuration(cp=2, tp=2, dp_shard=2, zero_stage=3, sequence_parallel=True)),
        (LLAMA, Configuration(cp=4, dp_replicate=2, cp_method="ulysses")),
        (LLAMA, Configuration(cp=8, zero_stage=2)),
        (LLAMA, Configuration(dp_replicate=4, pp=2, schedule="interleaved", virtual_stages=2)),
        (LLAMA, Configuration(dp_replicate=4, pp=2, schedule="interleaved", virtual_stages=3)),
        (LLAMA, Configuration(dp_replicate=4, pp=2, schedule="zb-v", virtual_stages=2)),
        (LLAMA, Configuration(dp_replicate=4, pp=2, schedule="dualpipe-v", virtual_stages=2)),
        (LLAMA, Configuration(dp_replicate=4, pp=2, schedule="zb-2p", recompute="full", recompute_layers=3)),
        (moe_like(), Configuration(dp_replicate=4, tp=2, ep=4, etp=2)),
        (moe_like(), Configuration(dp_shard=2, zero_stage=1, tp=2, cp=2, ep=2)),
        (latent_like(), Configuration(dp_replicate=2, tp=4, ep=2)),
        (hybrid_like(), Configuration(dp_replicate=2, tp=2, cp=2)),
        (hybrid_like(num_groups=1), Configuration(dp_replicate=2, tp=4)),
    ],
)
def test_the_plan_space_is_wider_than_what_runs(model, configuration):
    problem = small_problem(model=model)
    assert names_broken(problem, configuration, ("valid",)) == []
    assert names_broken(problem, configuration, ("runnable",)) != []


@pytest.mark.parametrize(
    ("model", "configuration", "sentence"),
    [
        (latent_like(num_heads=2), Configuration(dp_replicate=2, tp=4), "tp 4 does not divide num_heads 2"),
        (hybrid_like(), Configuration(dp_replicate=2, tp=4), "tp 4 does not divide mamba groups 2"),
        (hybrid_like(num_heads=6), Configuration(cp=4, dp_replicate=2), "= 4 does not divide mamba heads 6"),
        (moe_like(shared=25), Configuration(dp_replicate=4, tp=2), "tp 2 does not divide shared expert width 25"),
        (LLAMA, Configuration(dp_replicate=8, schedule="interleaved", virtual_stages=2), "and pp > 1"),
        (LLAMA, Configuration(dp_replicate=4, pp=2, schedule="interleaved"), "interleaved has 2 or more chunks"),
        (LLAMA, Configuration(dp_replicate=4, pp=2, schedule="zb-v"), "zb-v has 2 chunks"),
        (LLAMA, Configuration(dp_replicate=4, pp=2, schedule="zb-v", virtual_stages=3), "zb-v has 2 chunks"),
        (LLAMA, Configuration(dp_replicate=4, pp=2, schedule="interleaved", virtual_stages=4), "= 8 chunks are more"),
        (LLAMA, Configuration(dp_replicate=8, recompute_layers=1), "recompute_layers 1 with recompute none"),
        (LLAMA, Configuration(dp_replicate=8, zero_stage=1), "zero_stage 1 needs dp_shard or cp above 1"),
    ],
)
def test_every_part_of_a_rule_counts(model, configuration, sentence):
    (message,) = broken(small_problem(model=model), configuration, kind="valid")
    assert sentence in message


def test_all_broken_rules_are_said_at_once():
    with pytest.raises(ConfigurationError, match=r"^--fix: ep 2.*; virtual_stages 3.*; .*has 8") as failure:
        require_valid(small_problem(), Configuration(ep=2, virtual_stages=3), where="--fix")
    assert failure.value.message.count("; ") == 3
    assert failure.value.exit_status == 2


def test_tp_must_divide_every_kind_of_layer():
    model = llama_like(num_layers=1)
    odd = llama_like(num_layers=1, width=25)
    mixed = replace(model, blocks=(*model.blocks, *odd.blocks), layer_blocks=(0, 1, 0, 1))
    problem = small_problem(model=mixed)
    assert broken(problem, Configuration(dp_replicate=4, tp=2), kind="valid") == (
        "tp 2 does not divide feed-forward width 25",
    )


FAMILIES = [small_problem(model=model) for model in (latent_like(), hybrid_like(), moe_like(shared=16, mtp=True))]
degrees = st.sampled_from((1, 2, 3, 4, 8))
configurations = st.builds(
    Configuration,
    dp_replicate=degrees,
    dp_shard=degrees,
    cp=st.sampled_from((1, 2, 4)),
    cp_method=st.sampled_from(get_args(CpMethod)),
    tp=degrees,
    pp=degrees,
    ep=st.sampled_from((1, 2, 8)),
    etp=st.sampled_from((1, 2)),
    sequence_parallel=st.booleans(),
    zero_stage=st.sampled_from((0, 1, 2, 3)),
    micro_batch=degrees,
    schedule=st.sampled_from(get_args(Schedule)),
    virtual_stages=st.sampled_from((1, 2, 3)),
    recompute=st.sampled_from(get_args(Recompute)),
    recompute_layers=st.sampled_from((0, 1, 5)),
    uneven_shares=st.booleans(),
)
problems = st.sampled_from([problem for problem, _, _ in BREAKS.values()] + FAMILIES)


@settings(max_examples=300)
@given(problems, st.lists(configurations, min_size=1, max_size=6))
def test_one_configuration_and_an_array_of_them_agree(problem, several):
    cuts = even_cuts(problem.model.num_layers, np.asarray([c.pp for c in several]))
    batch = Batch.of(several, cuts)
    for rule in RULES:
        together = np.broadcast_to(rule.holds(problem, batch), len(several))
        assert together.tolist() == [bool(rule.holds(problem, c)) for c in several], rule.name
    for kind in ("valid", "runnable"):
        together = holds(problem, batch, kind=kind)
        assert together.shape == (len(several),)
        assert together.tolist() == [bool(holds(problem, c, kind=kind)) for c in several]
        assert together.tolist() == [not broken(problem, c, kind=kind) for c in several]
