from dataclasses import replace

import pytest

from autoplan.spec import AUTOPLAN
from costmodels.precision import OPTIMIZERS, PRECISIONS, resolve_precision, state_bytes, traffic_bytes
from tests.costmodels.problems import make_cluster, make_group, make_problem

MIXED = replace(AUTOPLAN, weight_bytes=2, master_bytes=4, gradient_bytes=4, moment_bytes=8, clip_bytes=12)
PURE = replace(AUTOPLAN, weight_bytes=2, master_bytes=0, gradient_bytes=2, moment_bytes=4, clip_bytes=6)


@pytest.mark.parametrize(("optimizer", "kept"), [("adamw", 8), ("adamw8bit", 2), ("muon", 4), ("lamb", 8), ("sgd", 0)])
def test_states_by_optimizer(optimizer, kept):
    assert state_bytes(AUTOPLAN, optimizer) == kept
    assert state_bytes(PURE, optimizer) == (4 if optimizer == "adamw" else kept)


def test_a_step_of_adam_counted_by_hand():
    """The fp32 weight, read and written 8, the copy written 2, the gradient read 4, both moments 16, clipping 12."""
    assert traffic_bytes(MIXED, "adamw", 2) == 8 + 2 + 4 + 16 + 12
    assert traffic_bytes(PURE, "adamw", 2) == 4 + 2 + 8 + 6, "bf16 weights, gradients and moments"


def test_our_executor_has_no_copy_and_takes_the_norm_in_fp64():
    """28 bytes for the update, 36 for the norm and 8 for scaling by it."""
    assert traffic_bytes(AUTOPLAN, "adamw", 2) == 28 + 36 + 8


def test_other_optimizers_move_their_own_states():
    adam = traffic_bytes(AUTOPLAN, "adamw", 2)
    assert adam - traffic_bytes(AUTOPLAN, "sgd", 2) == 16
    assert adam - traffic_bytes(AUTOPLAN, "muon", 2) == 8
    assert traffic_bytes(AUTOPLAN, "lamb", 2) - adam == OPTIMIZERS["lamb"].extra == 12


def test_products_never_read_wider_operands_than_activations():
    for precision in PRECISIONS.values():
        assert precision.operand_bytes <= precision.compute_bytes
    assert {name for name, p in PRECISIONS.items() if p.operand_bytes < p.compute_bytes} == {"fp8", "mxfp8", "nvfp4"}


@pytest.mark.parametrize("precision", ["fp8", "mxfp8", "nvfp4"])
def test_a_device_without_narrow_rates_computes_in_16_bits(precision):
    wide = make_problem(cluster=make_cluster(make_group(peak_flops={"bf16": 100e12})), precision=precision)
    narrow = make_problem(
        cluster=make_cluster(make_group(peak_flops={"bf16": 100e12, "fp8": 200e12})), precision=precision
    )
    assert resolve_precision(wide) == PRECISIONS["bf16"]
    assert resolve_precision(narrow) == PRECISIONS[precision]
