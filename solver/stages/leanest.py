"""The leanest cuts of one configuration: what the fullest stage holds is least, whatever it costs in time.

Variables, cuts x and modes μ, are those of `solver.stages.best`. Objective: min max_s (static_s + in_flight_s ·
activations_s), in a mixed cluster without what devices have beyond the smallest. All layers are in the modes that keep
least. Whether any cuts hold at most so much is known exactly (`solver.stages.windows.cuts_within`), which gives such
cuts; so the least is bracketed by halves, then cuts are asked for that hold less than the last ones until there are
none (`least_bytes`). Of the cuts and modes that hold no more the fastest are then chosen.
"""

from collections.abc import Callable
from dataclasses import replace
from math import inf

from solver.stages.best import best_cuts
from solver.stages.branch import Answer
from solver.stages.pipelines import Pipeline
from solver.stages.windows import cuts_within, fullest_bytes

CLOSE = 1e-4
"""Share of the least bytes to which they are bracketed by halves."""
LESS = 1 - 1e-11
"""Share of what some cuts hold that others must not hold more than to hold less."""


def leanest_cuts(pipeline: Pipeline, *, most_bytes: float = inf, stop: Callable[[], bool] = lambda: False) -> Answer:
    """Return the leanest cuts and modes of a configuration that fit and hold at most `most_bytes`, the fastest of them.

    The bound of the answer is on the time of all that hold as little.
    """
    limit = min(pipeline.limit_bytes, most_bytes)
    if cuts_within(pipeline, limit) is None:
        return Answer(best=None, bound_seconds=inf)
    least = least_bytes(pipeline) / LESS
    return best_cuts(replace(pipeline, most_bytes=least), cutoff=inf, stop=stop)


def least_bytes(pipeline: Pipeline) -> float:
    """Return what the fullest stage holds of the leanest cuts, whether devices have so much or not; inf without any."""
    cuts = cuts_within(pipeline, inf)
    if cuts is None:
        return inf
    held, lower = fullest_bytes(pipeline, cuts), 0.0
    while held - lower > CLOSE * abs(held):
        middle = (lower + held) / 2
        cuts = cuts_within(pipeline, middle)
        held, lower = (held, middle) if cuts is None else (fullest_bytes(pipeline, cuts), lower)
    while (cuts := cuts_within(pipeline, held * LESS)) is not None:
        held = fullest_bytes(pipeline, cuts)
    return held
