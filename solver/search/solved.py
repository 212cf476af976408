"""What is known of configurations once they are solved."""

from dataclasses import dataclass
from math import inf

from costmodels.batch import Batch
from solver.stages import Solution


@dataclass(frozen=True, slots=True, kw_only=True)
class Solved:
    """`count` configurations are done: `found` are those worth costing, with their cuts.

    `bound` is what no cuts that are neither found nor above the cutoff have less of, inf when there are none; `left`
    bounds the configurations that are left. Where `known`, that is what the one configuration that is found costs.
    """

    count: int
    found: Batch | None
    known: Solution | None = None
    bound: float = inf
    left: float
