"""Sizes of one rank and sums over operations that the tests of operations share."""

from dataclasses import replace

from autoplan.spec import AUTOPLAN
from costmodels.operations import Sizes
from costmodels.precision import PRECISIONS

TOKENS = 128
"""2 sequences of 64."""
EAGER = AUTOPLAN
FUSED = replace(AUTOPLAN, name="fused", pointwise="fused", windowed=True)
COMPILED = replace(AUTOPLAN, name="compiled", pointwise="compiled", fused_norms=False)


def sizes_for(model, *, stack=AUTOPLAN, precision="bf16", **changes):
    degrees = {"tp": 1, "sequence_parallel": False, "cp": 1, "cp_method": "allgather", "ep": 1, "etp": 1}
    lengths = {"micro_batch": 2, "seq_len": 64}
    return Sizes(hidden=model.hidden_size, precision=PRECISIONS[precision], stack=stack, **lengths | degrees | changes)


def named(operations, name):
    """Return the only operation of that name."""
    (found,) = [op for op in operations if op.name == name]
    return found


def shapes(operations):
    """Return (m, k, n, count) of every product, in order."""
    return [(p.m, p.k, p.n, p.count) for op in operations for p in op.products]


def flops(operations):
    products = sum(2.0 * p.count * p.m * p.k * p.n for op in operations for p in op.products)
    return products + sum(op.core.flops for op in operations if op.core is not None)


def moved(operations):
    """Return bytes forward and backward."""
    return sum(op.forward_bytes for op in operations), sum(op.backward_bytes for op in operations)


def sent(operations, axis, *, backward=False):
    """Return (op, bytes) of every collective over an axis that moves anything, in order."""
    transfers = [t for op in operations for t in (op.backward_transfers if backward else op.forward_transfers)]
    return [(t.op, float(t.num_bytes)) for t in transfers if t.axis == axis and t.num_bytes]
