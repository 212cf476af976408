"""Which configurations can still be the best: an admissible ranking of the space.

`costmodels.estimate.lower_bounds` gives, for every configuration c and whatever the stage cuts x,
B(c) ≤ T(c, x) and N(c) ≤ max over stages of M(c, x). So c is ruled out when N(c) is above the memory limit,
and no configuration after position i of the ranking takes less than ``seconds[i]``.
"""

from dataclasses import dataclass

import numpy as np

from autoplan.spec import Problem
from costmodels.batch import Batch, Floats, Ints
from costmodels.estimate import lower_bounds
from costmodels.hardware import resolve_hardware


@dataclass(frozen=True, slots=True)
class Frontier:
    """Indices (k,) into the space in ascending order of their bounds, seconds (k,)."""

    order: Ints
    seconds: Floats


def rank_by_bound(problem: Problem, space: Batch) -> Frontier:
    """Rank the configurations whose memory bound is within the limit by time bound, then by memory bound."""
    seconds, memory_bytes = lower_bounds(problem, space)
    order = np.lexsort((memory_bytes, seconds))
    order = order[memory_bytes[order] <= resolve_hardware(problem).memory_limit_bytes]
    return Frontier(order=order, seconds=seconds[order])
