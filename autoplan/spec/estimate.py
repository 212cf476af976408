"""What a configuration is predicted to cost: time and memory by term, with a range and the source of every number."""

from typing import Literal

from autoplan.spec.value import value

Source = Literal["measured", "interpolated", "roofline"]


@value
class StageMemory:
    """Peak bytes of the heaviest rank of one pipeline stage, by term, and what its devices have.

    `runtime` and `communication` are held outside of the framework's allocator, `fragmentation` is what the allocator
    reserves beyond what it hands out.
    """

    stage: int
    terms: dict[str, int]
    limit_bytes: int

    @property
    def total_bytes(self) -> int:
        """The sum of the terms: what must fit."""
        return sum(self.terms.values())

    @property
    def reserved_bytes(self) -> int:
        """What the framework's allocator has from the device."""
        return self.total_bytes - self.terms.get("runtime", 0) - self.terms.get("communication", 0)

    @property
    def allocated_bytes(self) -> int:
        """What the framework's allocator hands out."""
        return self.reserved_bytes - self.terms.get("fragmentation", 0)


@value
class Estimate:
    """One configuration's step.

    `breakdown` maps terms (compute, recompute, tensor_parallel, pipeline_bubble, pipeline_send,
    data_parallel, optimizer) to the seconds of the step that each is responsible for; they sum to
    `step_seconds`. `mfu` counts model FLOPs: no recompute, causal-halved attention, logit layer counted,
    embedding lookup not, dense bf16 peak (fp32 where a device is faster
    in it). `energy_joules` and `cost` are None without power or price.
    """

    step_seconds: float
    step_seconds_low: float
    step_seconds_high: float
    breakdown: dict[str, float]
    memory: tuple[StageMemory, ...]
    peak_memory_bytes: int
    memory_limit_bytes: int
    fits: bool
    model_flops: float
    mfu: float
    tokens_per_second: float
    energy_joules: float | None
    cost: float | None
    sources: dict[str, Source]
    assumptions: tuple[str, ...]
    not_modelled: tuple[str, ...]
