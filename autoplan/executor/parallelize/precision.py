"""Element types of a run."""

from dataclasses import dataclass

import torch

from autoplan.spec.plan import Dtype, PrecisionPlan


@dataclass(frozen=True, slots=True)
class Precision:
    """Types of compute and activations, of the weights that the optimizer updates, and of gradient reduction."""

    compute: torch.dtype
    master: torch.dtype
    reduce: torch.dtype

    @property
    def is_uniform(self) -> bool:
        """True when nothing is ever cast."""
        return self.compute == self.master == self.reduce


_DTYPES: dict[Dtype, torch.dtype] = {
    "float64": torch.float64,
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


def choose_precision(plan: PrecisionPlan, *, override: Dtype | None = None) -> Precision:
    """Return the plan's types, or `override` for all three."""
    names = (plan.compute, plan.master, plan.reduce) if override is None else (override,) * 3
    compute, master, reduce = (_DTYPES[name] for name in names)
    return Precision(compute=compute, master=master, reduce=reduce)
