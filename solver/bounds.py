"""Which configurations can still be the best: an admissible ranking of the space.

`costmodels.estimate.lower_bounds` gives, for every configuration c and whatever the stage cuts x,
B(c) ≤ T(c, x) and N(c) ≤ max over stages of M(c, x). So c is ruled out when N(c) is above the memory limit,
and no pipeline after position i of the ranking takes less than ``seconds[i]``.
"""

from dataclasses import dataclass
from math import inf

import numpy as np

from autoplan.spec import Problem
from costmodels.batch import Batch, Floats, Ints
from costmodels.estimate import lower_bounds
from costmodels.hardware import resolve_hardware


@dataclass(frozen=True, slots=True, kw_only=True)
class Frontier:
    """What memory allows of a space, as indices into it.

    `singles` have one stage, and `singles_seconds` is the least of their bounds (inf without any); `order` (k,) are
    the pipelines in ascending order of their bounds `seconds` (k,).
    """

    singles: Ints
    singles_seconds: float
    order: Ints
    seconds: Floats

    def bound_from(self, position: int) -> float:
        """Return the least bound of the pipelines from `position` on; inf when there are none."""
        return float(self.seconds[position]) if position < len(self.seconds) else inf


def rank_by_bound(problem: Problem, space: Batch) -> Frontier:
    """Rank the configurations whose memory bound is within the limit by time bound, then by memory bound."""
    seconds, memory_bytes = lower_bounds(problem, space)
    order = np.lexsort((memory_bytes, seconds))
    order = order[memory_bytes[order] <= resolve_hardware(problem).memory_limit_bytes]
    single = space.pp[order] == 1
    singles, several = order[single], order[~single]
    return Frontier(
        singles=singles,
        singles_seconds=float(seconds[singles[0]]) if len(singles) else inf,
        order=several,
        seconds=seconds[several],
    )
