from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoplan.errors import ConfigurationError
from autoplan.spec import Configuration, Rope, RopeScaling
from autoplan.spec.rules import RULES, broken, holds, require_valid
from costmodels.batch import Batch, even_cuts
from tests.spec.values import small_problem
from tests.tiny_models import gpt2_like, llama_like

YARN = Rope(theta=1e4, scaling=RopeScaling(kind="yarn", parameters={"factor": 2.0}))


def two_head_dims():
    narrow, wide = llama_like(num_layers=1), llama_like(num_layers=1, head_dim=8)
    return replace(narrow, blocks=narrow.blocks + wide.blocks, layer_blocks=(0, 1, 0, 1))


# For every rule a problem and a configuration that break it and no other, and what its sentence must say.
BREAKS = {
    "world_size": (small_problem(), Configuration(dp_replicate=4), ("dp_replicate 4", "= 4 ranks", "has 8")),
    "tp": (small_problem(), Configuration(dp_replicate=2, tp=4), ("tp 4", "num_kv_heads 2")),
    "cp": (small_problem(), Configuration(dp_replicate=4, cp=2), ("cp 2",)),
    "experts": (small_problem(), Configuration(dp_replicate=8, ep=2), ("ep 2", "etp 1")),
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
    "zero_stage": (small_problem(), Configuration(dp_shard=8), ("zero_stage 0", "dp_shard 8")),
    "virtual_stages": (
        small_problem(),
        Configuration(dp_replicate=4, pp=2, virtual_stages=2),
        ("virtual_stages 2", "1f1b"),
    ),
    "learned_positions": (
        small_problem(model=gpt2_like(num_layers=4), seq_len=65),
        Configuration(dp_replicate=8),
        ("seq_len 65", "64 learned"),
    ),
    "optimizer": (small_problem(optimizer="muon"), Configuration(dp_replicate=8), ("muon",)),
    "precision": (small_problem(precision="fp8"), Configuration(dp_replicate=8), ("fp8",)),
    "rope_scaling": (
        small_problem(model=llama_like(num_layers=4, rope=YARN)),
        Configuration(dp_replicate=8),
        ("yarn",),
    ),
    "head_dim": (small_problem(model=two_head_dims()), Configuration(dp_replicate=8), ("head_dim [4, 8]",)),
}


def names_broken(problem, configuration):
    return [rule.name for rule in RULES if not rule.holds(problem, configuration)]


def test_every_rule_has_a_configuration_that_breaks_it():
    assert set(BREAKS) >= {rule.name for rule in RULES}
    assert len({rule.name for rule in RULES}) == len(RULES)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_can_be_broken_alone_and_says_the_numbers(rule):
    problem, configuration, parts = BREAKS[rule.name]
    assert names_broken(problem, configuration) == [rule.name]
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


def test_all_broken_rules_are_said_at_once():
    with pytest.raises(ConfigurationError, match=r"^--fix: cp 2.*; virtual_stages 3.*; .*has 8") as failure:
        require_valid(small_problem(), Configuration(cp=2, virtual_stages=3), where="--fix")
    assert failure.value.message.count("; ") == 2
    assert failure.value.exit_status == 2


def test_tp_must_divide_every_kind_of_layer():
    model = llama_like(num_layers=1)
    odd = llama_like(num_layers=1, width=25)
    mixed = replace(model, blocks=(*model.blocks, *odd.blocks), layer_blocks=(0, 1, 0, 1))
    problem = small_problem(model=mixed)
    assert broken(problem, Configuration(dp_replicate=4, tp=2), kind="valid") == (
        "tp 2 does not divide feed-forward width 25",
    )


degrees = st.sampled_from((1, 2, 3, 4, 8))
configurations = st.builds(
    Configuration,
    dp_replicate=degrees,
    dp_shard=degrees,
    cp=st.sampled_from((1, 2)),
    tp=degrees,
    pp=degrees,
    ep=st.sampled_from((1, 2)),
    etp=st.sampled_from((1, 2)),
    sequence_parallel=st.booleans(),
    zero_stage=st.sampled_from((0, 1, 2, 3)),
    micro_batch=degrees,
    schedule=st.sampled_from(("gpipe", "1f1b")),
    virtual_stages=st.sampled_from((1, 2)),
    recompute=st.sampled_from(("none", "selective", "full")),
)
problems = st.sampled_from([problem for problem, _, _ in BREAKS.values()])


@settings(max_examples=200)
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
