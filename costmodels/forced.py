"""The recompute that memory forces, as a lower bound: a linear relaxation over the layers of the whole model.

For weights λ_s ≥ 0 of the stages (`costmodels.bounds.WeighedMemory`) every plan that fits has
Σ_s λ_s·bytes_s ≤ limit·Σ_s λ_s. A layer of kind u in mode μ adds at least c_uμ = min_s λ_s·(static_u + k_s·kept_uμ) to
the left, and a micro-batch takes g_uμ seconds there and back. What no modes change is the rest. With x_uμ layers of
kind u in mode μ

    min Σ x_uμ·(g_uμ − g_u0)   where   Σ x_uμ·c_uμ ≤ limit·Σλ − rest,   Σ_μ x_uμ = layers of kind u,   x ≥ 0

is no more than what recompute adds to a micro-batch's way through the model (`forced_seconds`). It is a fractional
knapsack: the steps along each kind's lower convex hull are taken in the order of seconds per byte (`_steps`).
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

import numpy as np

from autoplan.spec import ModelSpec
from costmodels.batch import Batch, Floats
from costmodels.bounds import WeighedMemory, bound_seconds, count_model
from costmodels.stage_costs import StageCosts
from costmodels.whole_layers import longest_stage_with_memory


def least_of(modes: Sequence[StageCosts], ends: Sequence[StageCosts]) -> StageCosts:
    """Return the least of what layers cost in any of `modes`, lightest first, and of what stages and ends hold."""
    return replace(
        modes[0],
        reduce_seconds=_least(modes, "reduce_seconds"),
        static_bytes=np.hstack([_least(modes, "static_bytes")[:, :-3], _least(ends, "static_bytes")[:, -3:]]),
        in_flight_bytes=np.hstack([_least(modes, "in_flight_bytes")[:, :-3], _least(ends, "in_flight_bytes")[:, -3:]]),
    )


def bound_tier(
    model: ModelSpec,
    batch: Batch,
    modes: Sequence[StageCosts],
    least: StageCosts,
    *,
    memory_limit: float,
    whole_layers: bool = True,
) -> Floats:
    """Return a lower bound (n,) on the step of configurations whose layers are each in one of `modes`, lightest first.

    `least` is what `least_of` gives of them. The bound is inf where no cuts fit `memory_limit` bytes. Without
    `whole_layers` it is sooner found, as if stages had room for any part of a layer.
    """
    forced = forced_seconds(model, batch, modes, least, memory_limit=memory_limit)
    longest = np.zeros(len(batch))
    if whole_layers:
        longest = longest_stage_with_memory(model, batch, modes, least, memory_limit=memory_limit)
    fits = np.isfinite(forced) & np.isfinite(longest)
    seconds = bound_seconds(
        model,
        batch,
        least,
        forced_seconds=np.where(fits, forced, 0.0),
        heaviest_turns=modes[-1].forward_seconds + modes[-1].backward_seconds,
        longest_seconds=np.where(fits, longest, 0.0),
    )
    return np.where(fits, seconds, np.inf)


def _least(costs: Sequence[StageCosts], name: str) -> Floats:
    """Return the least of one cost (n, u)."""
    least: Floats = reduce(np.minimum, (getattr(one, name) for one in costs))
    return least


def forced_seconds(
    model: ModelSpec, batch: Batch, modes: Sequence[StageCosts], least: StageCosts, *, memory_limit: float
) -> Floats:
    """Return the least seconds (n,) that recompute adds to a micro-batch in the whole model; inf where nothing fits.

    `least` has the bytes of stages and ends, and those of layers at the mode that keeps least.
    """
    counts = count_model(model)[: least.num_blocks]
    weighed = WeighedMemory.of(model, batch, least)
    bytes_of = np.stack([weighed.least(least.static_bytes, costs.in_flight_bytes) for costs in modes], axis=-1)
    turns = [(costs.forward_seconds + costs.backward_seconds)[:, : least.num_blocks] for costs in modes]
    seconds_of = np.maximum(np.stack(turns, axis=-1) - turns[0][..., None], 0.0)
    missing = counts @ bytes_of[..., 0].T + weighed.rest - memory_limit * weighed.total * (1 + 1e-9)
    saved, seconds = _steps(bytes_of, seconds_of)
    return _fill(np.maximum(missing, 0.0), np.tile(counts, 2) * saved, np.tile(counts, 2) * seconds)


def _steps(bytes_of: Floats, seconds_of: Floats) -> tuple[Floats, Floats]:
    """Return the bytes saved and the seconds (n, 2·K) of two steps along the lower convex hull of each kind's modes.

    Where the middle mode is on the hull it is the first step's end; else the first step is nothing.
    """
    saved = np.maximum(bytes_of[..., :1] - bytes_of, 0.0)
    middle, far = saved[..., min(1, saved.shape[-1] - 1)], saved[..., -1]
    slow, slowest = seconds_of[..., min(1, saved.shape[-1] - 1)], seconds_of[..., -1]
    on_hull = (middle < far) & (slow * far < slowest * middle)
    first, first_seconds = np.where(on_hull, middle, 0.0), np.where(on_hull, slow, 0.0)
    return np.hstack([first, far - first]), np.hstack([first_seconds, slowest - first_seconds])


def _fill(missing: Floats, saved: Floats, seconds: Floats) -> Floats:
    """Return the least seconds (n,) of steps, taken in part, that save `missing` bytes; inf where all save too few."""
    order = np.argsort(seconds / np.maximum(saved, 1e-300), axis=1)
    saved, seconds = np.take_along_axis(saved, order, axis=1), np.take_along_axis(seconds, order, axis=1)
    before = np.cumsum(saved, axis=1) - saved
    share = np.clip((missing[:, None] - before) / np.maximum(saved, 1e-300), 0.0, 1.0)
    enough = saved.sum(axis=1) >= missing * (1 - 1e-9)
    return np.where(enough, (share * seconds).sum(axis=1), np.inf)
