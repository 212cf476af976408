"""The sizes that one rank sees, for arrays of configurations."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from autoplan.spec import Problem, Stack
from costmodels.precision import Precision, resolve_precision


def shares(size: Any, degree: Any) -> Any:
    """Return the part of `size` that the largest of `degree` ranks has."""
    return -(-size // degree)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Degrees and lengths, arrays or scalars, with what every operation counts by.

    `tokens` are those of one micro-batch on one rank, after context parallelism; outside of tensor-parallel regions a
    rank works on `outside` of them, which sequence parallelism cuts.
    """

    micro_batch: Any
    seq_len: int
    tp: Any
    sequence_parallel: Any
    cp: Any
    cp_method: Any
    ep: Any
    etp: Any
    hidden: int
    precision: Precision
    stack: Stack

    @property
    def tokens(self) -> Any:
        """Tokens of a micro-batch on one rank."""
        return self.micro_batch * shares(self.seq_len, self.cp)

    @property
    def outside(self) -> Any:
        """Tokens that a rank normalizes and adds up."""
        return self.tokens / np.where(self.sequence_parallel, self.tp, 1)

    @property
    def element(self) -> int:
        """Bytes of an activation."""
        return self.precision.compute_bytes

    @property
    def operand(self) -> int:
        """Bytes of what a product keeps of its input: fused low-precision layers keep the cast copy."""
        fused = self.stack.pointwise == "fused"
        return min(self.precision.operand_bytes, self.element) if fused else self.element

    @property
    def hidden_bytes(self) -> Any:
        """Bytes of the hidden state of all tokens of a rank."""
        return 1.0 * self.tokens * self.hidden * self.element

    @property
    def outside_bytes(self) -> Any:
        """Bytes of the hidden state where sequence parallelism cuts it."""
        return self.outside * self.hidden * self.element


def sizes_of(problem: Problem, keys: Any) -> Sizes:
    """Return the sizes of `keys`, anything with the degrees as attributes (a batch, a configuration)."""
    return Sizes(
        micro_batch=keys.micro_batch,
        seq_len=problem.workload.seq_len,
        tp=keys.tp,
        sequence_parallel=keys.sequence_parallel,
        cp=keys.cp,
        cp_method=keys.cp_method,
        ep=keys.ep,
        etp=keys.etp,
        hidden=problem.model.hidden_size,
        precision=resolve_precision(problem),
        stack=problem.stack,
    )
