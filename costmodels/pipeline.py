"""The pipeline in time: each stage does its schedule's work in order, as soon as its input has arrived.

`simulate` runs one configuration event by event and says when everything happens. `finish_seconds` computes the
same times for many configurations at once. For equal stages both give the closed form
(m + p − 1)(T_F + T_B) + 2(p − 1)·send (arXiv 2104.04473); tests hold the three to each other.

A send either travels while its sender goes on working, or blocks it (`send_blocks`, as on CPUs, where sending
takes the same cores): it is then part of the sender's work.
"""

from typing import Literal

import numpy as np

from autoplan.spec import Schedule
from autoplan.spec.value import value
from costmodels.batch import Floats, Ints, Strings

Kind = Literal["forward", "backward"]


@value
class Event:
    """A stage's work on one micro-batch, both counted from 0; times from the start of the step."""

    stage: int
    microbatch: int
    kind: Kind
    start_seconds: float
    duration_seconds: float


def stage_order(schedule: Schedule, *, stage: int, pp: int, num_microbatches: int) -> list[tuple[Kind, int]]:
    """Return what a stage does, in order.

    gpipe: all forwards, then all backwards. 1f1b: pp − stage forwards, then a backward and a forward in turn,
    then the backwards that are left.
    """
    ahead = num_microbatches if schedule == "gpipe" else min(pp - stage, num_microbatches)
    order: list[tuple[Kind, int]] = [("forward", j) for j in range(ahead)]
    for j in range(num_microbatches):
        order.append(("backward", j))
        if ahead + j < num_microbatches:
            order.append(("forward", ahead + j))
    return order


def in_flight(schedule: Strings, pp: Ints, num_microbatches: Ints, max_pp: int) -> Ints:
    """Return the micro-batches that each stage holds at its peak, shape (n, max_pp), 0 past pp.

    gpipe holds all m, 1f1b min(m, pp − stage); a single stage works them off one by one.
    """
    stage = np.arange(max_pp)
    m = num_microbatches[:, None]
    ahead = np.where((schedule == "gpipe")[:, None], m, np.minimum(m, pp[:, None] - stage))
    ahead = np.where(pp[:, None] == 1, 1, ahead)
    result: Ints = np.where(stage < pp[:, None], ahead, 0).astype(np.int64)
    return result


def simulate(
    schedule: Schedule,
    *,
    forward: Floats,
    backward: Floats,
    num_microbatches: int,
    send_seconds: float = 0.0,
    send_blocks: bool = False,
) -> tuple[float, tuple[Event, ...]]:
    """Return the makespan and all events of one step; `forward` and `backward` are seconds by stage, (pp,)."""
    pp = len(forward)
    left = [stage_order(schedule, stage=s, pp=pp, num_microbatches=num_microbatches)[::-1] for s in range(pp)]
    delay = 0.0 if send_blocks else send_seconds
    free = [0.0] * pp
    done: dict[tuple[Kind, int, int], float] = {}
    events: list[Event] = []
    while any(left):
        for s in range(pp):
            while left[s] and (arrival := _arrival(left[s][-1], s, pp, done, delay)) is not None:
                kind, j = left[s].pop()
                sends = s < pp - 1 if kind == "forward" else s > 0
                duration = float((forward if kind == "forward" else backward)[s])
                start = max(free[s], arrival)
                events.append(Event(stage=s, microbatch=j, kind=kind, start_seconds=start, duration_seconds=duration))
                free[s] = start + duration + (send_seconds if send_blocks and sends else 0.0)
                done[kind, j, s] = free[s]
    events.sort(key=lambda event: (event.start_seconds, event.stage))
    return max(free), tuple(events)


def _arrival(
    work: tuple[Kind, int], stage: int, pp: int, done: dict[tuple[Kind, int, int], float], delay: float
) -> float | None:
    """Return when the input of `work` is there; None while what it waits for has not run yet."""
    kind, j = work
    if kind == "forward":
        source: tuple[Kind, int, int] | None = ("forward", j, stage - 1) if stage > 0 else None
    else:
        source = ("backward", j, stage + 1) if stage < pp - 1 else ("forward", j, stage)
    if source is None:
        return 0.0
    if source not in done:
        return None
    return done[source] + (delay if source[2] != stage else 0.0)


def finish_seconds(
    schedule: Strings,
    pp: Ints,
    num_microbatches: Ints,
    *,
    forward: Floats,
    backward: Floats,
    send_seconds: Floats,
    send_blocks: bool,
) -> Floats:
    """Return when each stage has done its last backward, shape (n, max_pp), 0 past pp.

    `forward` and `backward` have shape (n, max_pp), the others (n,).
    """
    finish = np.zeros_like(forward)
    single = pp == 1
    finish[single, 0] = num_microbatches[single] * (forward[single, 0] + backward[single, 0])
    if single.all():
        return finish
    keys = np.stack([np.where(schedule == "gpipe", 0, num_microbatches), pp], axis=1)
    keys[single] = 0
    kinds, group = np.unique(keys, axis=0, return_inverse=True)
    for g, (m, stages) in enumerate(kinds.tolist()):
        rows = np.flatnonzero(group == g)
        if stages == 0:
            continue
        f, b = forward[rows, :stages].T.copy(), backward[rows, :stages].T.copy()
        delay = send_seconds[rows]
        if send_blocks:
            f[:-1] += delay
            b[1:] += delay
            delay = np.zeros_like(delay)
        times = _finish_1f1b(f, b, delay, m) if m else _finish_gpipe(f, b, delay, num_microbatches[rows])
        finish[rows, :stages] = times.T
    return finish


def _finish_gpipe(forward: Floats, backward: Floats, delay: Floats, m: Ints) -> Floats:
    """Two flow shops of m equal jobs, one after the other: Σ of the times on the way + (m−1)·the longest of them."""
    stages = len(forward)
    forwards_done = forward.sum(axis=0) + (m - 1) * forward.max(axis=0) + (stages - 1) * delay
    way_back = backward[::-1]
    hops = np.arange(stages)[:, None] * delay
    done = forwards_done + way_back.cumsum(axis=0) + (m - 1) * np.maximum.accumulate(way_back, axis=0) + hops
    times: Floats = done[::-1]
    return times


def _finish_1f1b(forward: Floats, backward: Floats, delay: Floats, m: int) -> Floats:
    """Walk a grid of ticks whose inputs all lie on earlier ticks; a stage has at most one job a tick.

    With p stages, forward j of stage s falls on tick s + j while j < p − s and on s + 2j later, backward j on
    2p − 1 − s + 2j. Arrays have shape (p, n), `delay` (n,). A row of −inf before the first and after the last stage
    stands for inputs that are always there.
    """
    p, n = forward.shape
    free = np.zeros((p, n))
    forwarded = np.full((p + 1, n), -np.inf)  # row s + 1 is stage s
    returned = np.full((p + 1, n), -np.inf)  # row s is stage s
    for tick in range(2 * (m + p - 1)):
        ahead = _forward_stages(tick, p, m)
        done = np.maximum(free[ahead], forwarded[ahead] + delay) + forward[ahead]
        free[ahead] = forwarded[slice(ahead.start + 1, ahead.stop + 1, ahead.step)] = done
        back = _backward_stages(tick, p, m)
        done = (
            np.maximum(free[back], returned[slice(back.start + 1, back.stop + 1, back.step)] + delay) + backward[back]
        )
        free[back] = returned[back] = done
    return free


def _forward_stages(tick: int, p: int, m: int) -> slice:
    if tick < p:
        return slice(max(0, tick - m + 1), tick + 1, 1)
    first = max(0, 2 * p - tick, tick - 2 * m + 2)
    return slice(first + (first - tick) % 2, p, 2)


def _backward_stages(tick: int, p: int, m: int) -> slice:
    first, last = max(0, 2 * p - 1 - tick), min(p - 1, 2 * (m + p) - 3 - tick)
    return slice(first + (first - tick - 1) % 2, max(last + 1, 0), 2)
