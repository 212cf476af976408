"""The plan space as arrays: every configuration that the rules allow, each meaning once.

The space is the product of

- degrees (dp_replicate, dp_shard, cp, tp, pp) whose product is the number of devices,
- sequence_parallel, zero_stage, micro_batch (divisors of the global batch), recompute, schedule,

filtered by `autoplan.spec.rules`, by the pins and by the forbidden regions; every other choice is at its default unless
it is pinned. Two entries that would run the same are one: with one stage or one micro-batch the schedules coincide, and
1f1b stands for both.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import isqrt
from typing import Any

import numpy as np

from autoplan.spec import Configuration, Problem
from autoplan.spec.problem import num_microbatches
from autoplan.spec.rules import holds
from costmodels.batch import Batch, Bools, Ints, even_cuts
from solver.options import CHOICES, SEARCHED, Condition, SearchOptions

_CHOSEN = ("sequence_parallel", "zero_stage", "micro_batch", "schedule", "recompute")
_DEFAULT = Configuration()
_ALONE = ("cp_method", "ep", "etp", "virtual_stages", "recompute_layers")


def enumerate_space(problem: Problem, options: SearchOptions) -> Batch:
    """Return every configuration of the problem within the options, with even cuts; (0,) arrays when there is none."""
    axes = _choices(problem, options)
    degrees = _degrees(problem, options)
    batch = _product(degrees, axes)
    keep = holds(problem, batch, kind="valid") & _allowed(batch, options) & _is_canonical(problem, batch, options)
    if options.runnable_only:
        keep &= holds(problem, batch, kind="runnable")
    batch = batch.take(keep)
    return replace(batch, cuts=even_cuts(problem.model.num_layers, batch.pp)) if len(batch) else batch


def trim_cuts(batch: Batch) -> Batch:
    """Return the batch with no more columns of cuts than its longest pipeline needs."""
    return replace(batch, cuts=batch.cuts[:, : int(batch.pp.max()) + 1])


def divisors(number: int) -> list[int]:
    """Return the divisors of a positive number, ascending."""
    candidates = np.arange(1, isqrt(number) + 1)
    small = candidates[number % candidates == 0].tolist()
    return sorted({*small, *(number // d for d in small)})


def _choices(problem: Problem, options: SearchOptions) -> dict[str, Sequence[Any]]:
    axes: dict[str, Sequence[Any]] = {name: CHOICES[name] for name in _CHOSEN if name in CHOICES}
    axes["schedule"] = SEARCHED
    axes["micro_batch"] = divisors(problem.workload.global_batch)
    axes |= {name: (getattr(_DEFAULT, name),) for name in _ALONE}
    return axes | {name: (options.fix[name],) for name in axes if name in options.fix}


def plainest(problem: Problem, options: SearchOptions) -> Batch:
    """Return every tuple of degrees, valid or not, with the plainest choices that the pins leave it.

    Plain means no sequence parallelism, one sequence a micro-batch, a zero stage that suits dp_shard, and recompute
    where layers to recompute are pinned: no rule asks for less of a tuple, so one that breaks a rule here breaks it
    with any other choices too.
    """
    devices = problem.cluster.num_devices
    every = divisors(devices)
    axes = [sorted({options.fix.get(name, d) for d in every}) for name in ("dp_shard", "tp", "pp")]
    dp_shard, tp, pp = (grid.ravel() for grid in np.meshgrid(*axes, indexing="ij"))
    cp = np.full_like(tp, options.fix.get("cp", 1))
    dp_replicate = np.maximum(devices // (dp_shard * tp * pp * cp), 1)
    ones, size = np.ones_like(tp), len(tp)
    columns = {
        "dp_replicate": dp_replicate,
        "dp_shard": dp_shard,
        "tp": tp,
        "pp": pp,
        "sequence_parallel": np.zeros(size, dtype=np.bool_),
        "zero_stage": np.minimum(dp_shard - 1, 1),
        "schedule": np.full(size, "gpipe"),
        "recompute": np.full(size, "full" if options.fix.get("recompute_layers") else "none"),
        "micro_batch": ones,
        **{name: np.full(size, getattr(_DEFAULT, name)) for name in _ALONE},
    }
    columns |= {name: np.full(size, pinned) for name, pinned in options.fix.items()}
    return _batch(columns | {"cp": cp})


def _degrees(problem: Problem, options: SearchOptions) -> dict[str, Ints]:
    """Return the degree tuples (k,) that some valid configuration may have."""
    plain = plainest(problem, options)
    plain = plain.take(holds(problem, plain, kind="valid"))
    return {name: getattr(plain, name) for name in ("dp_replicate", "dp_shard", "cp", "tp", "pp")}


def _product(degrees: dict[str, Ints], axes: dict[str, Sequence[Any]]) -> Batch:
    names = [*_CHOSEN, *_ALONE]
    grids = np.meshgrid(*(np.asarray(axes[name]) for name in names), indexing="ij")
    choices = {name: grid.ravel() for name, grid in zip(names, grids, strict=True)}
    num_choices, num_degrees = grids[0].size, len(degrees["tp"])
    return _batch(
        {name: np.repeat(column, num_choices) for name, column in degrees.items()}
        | {name: np.tile(column, num_degrees) for name, column in choices.items()}
    )


def _batch(columns: dict[str, Any]) -> Batch:
    return Batch(**columns, cuts=np.zeros((len(columns["tp"]), 2), dtype=np.int64))


def _allowed(batch: Batch, options: SearchOptions) -> Bools:
    keep = np.ones(len(batch), dtype=np.bool_)
    for name, pinned in options.fix.items():
        keep &= getattr(batch, name) == pinned
    for text in options.forbid:
        keep &= ~Condition.parse(text).holds(batch)
    return keep


def _is_canonical(problem: Problem, batch: Batch, options: SearchOptions) -> Bools:
    """Return where an entry stands for itself: a gpipe one with a twin only when no 1f1b is allowed."""
    twins = (batch.pp == 1) | (num_microbatches(problem, batch) == 1)
    of_schedule = SearchOptions(
        fix={name: pin for name, pin in options.fix.items() if name == "schedule"},
        forbid=tuple(text for text in options.forbid if Condition.parse(text).name == "schedule"),
    )
    standard = np.full(len(batch), "1f1b")
    keep: Bools = ~(twins & _allowed(replace(batch, schedule=standard), of_schedule)) | (batch.schedule == standard)
    return keep
