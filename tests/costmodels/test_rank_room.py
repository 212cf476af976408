"""Layers shared among ranks in part, against the optimum that a linear program finds."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from costmodels.rank_room import Cost, Room


@st.composite
def rooms(draw, kinds=(1, 2)):
    """One pipeline whose layers take longer and hold less from mode to mode."""
    p, k, modes = draw(st.integers(1, 4)), draw(st.sampled_from(kinds)), draw(st.integers(1, 3))
    generator = np.random.default_rng(draw(st.integers(0, 2**20)))
    seconds = np.cumsum(generator.uniform(0.1, 1.0, (1, p, k, modes)), axis=-1) * generator.uniform(
        0.3, 3, (1, p, 1, 1)
    )
    held = np.cumsum(generator.uniform(1.0, 10.0, (1, p, k, modes)), axis=-1)[..., ::-1] * 1e3
    once = generator.uniform(0.0, 2.0, (1, p))
    counts = generator.integers(1, 9, k).astype(np.float64)
    room = generator.uniform(0.05, 1.2, (1, p)) * held.max() * counts.sum() * draw(st.sampled_from([0.3, 1.0, 3.0])) / p
    turns, none = Cost(seconds, once), Cost(np.zeros_like(seconds), np.zeros_like(once))
    whole = np.array([draw(st.booleans())])
    return Room(held=held, room=room, turns=turns, reduced=none, updated=none, counts=counts, whole=whole)


def program(room, *, slowest):
    """The least sum of the seconds of all ranks, or that of the `slowest`; inf where nothing fits."""
    _, p, k, modes = room.held.shape
    size = p * k * modes
    of_rank, of_kind = np.repeat(np.arange(p), k * modes), np.tile(np.repeat(np.arange(k), modes), p)
    seconds, held = room.turns.layer.ravel(), room.held.ravel()
    rows, limits = [np.append(held * (of_rank == s), 0.0) for s in range(p)], list(room.room[0])
    if slowest:
        rows += [np.append(seconds * (of_rank == s), -1.0) for s in range(p)]
        limits += list(-room.turns.once[0])
    if room.whole[0]:
        rows += [np.append(-1.0 * (of_rank == s), 0.0) for s in range(p)]
        limits += [-1.0] * p
    equal = [np.append(1.0 * (of_kind == u), 0.0) for u in range(k)]
    cost = np.append(np.zeros(size), 1.0) if slowest else np.append(seconds, 0.0)
    found = linprog(cost, A_ub=rows, b_ub=limits, A_eq=equal, b_eq=room.counts)
    return np.inf if found.status == 2 else found.fun + (0.0 if slowest else room.turns.once.sum())


@given(room=rooms(), factors=st.lists(st.floats(0, 3), min_size=4, max_size=4))
@settings(max_examples=60, deadline=None)
def test_no_shares_of_layers_cost_less(room, factors):
    found = room.turns.scaled(np.asarray([factors[: room.num_ranks]]))
    weighed = Room(**{name: getattr(room, name) for name in ("held", "room", "counts", "whole")}, **costs(found))
    least = program(weighed, slowest=False)
    assert weighed.least(found)[0] <= least * (1 + 1e-6) + 1e-9
    assert room.least(found)[0] <= least * (1 + 1e-6) + 1e-9
    if np.isfinite(least):
        assert room.fits[0]


def costs(turns):
    none = Cost(np.zeros_like(turns.layer), np.zeros_like(turns.once))
    return {"turns": turns, "reduced": none, "updated": none}


@given(room=rooms())
@settings(max_examples=60, deadline=None)
def test_the_slowest_rank_takes_no_less_and_with_one_kind_of_layers_exactly_as_long(room):
    least = program(room, slowest=True)
    weights = room.speed(room.turns)
    weights = weights / np.maximum(weights.sum(), 1e-300)
    bound = room.least(room.turns.scaled(weights))[0]
    assert bound <= least * (1 + 1e-6) + 1e-9
    if np.isfinite(least):
        assert room.fits[0]
        if len(room.counts) == 1 and not room.whole[0]:
            assert max(bound, room.turns.once.max()) == pytest.approx(least, rel=1e-6)
    elif len(room.counts) == 1 and not room.whole[0]:
        assert not room.fits[0]


@given(room=rooms(kinds=(1,)))
@settings(max_examples=15, deadline=None)
def test_with_whole_layers_the_slowest_takes_no_less_than_in_part_and_no_more_than_it_could(room):
    whole, part = room.slowest(room.turns)[0], program(room, slowest=True)
    assert part <= whole * (1 + 1e-5) + 1e-9 or not np.isfinite(part)
    best = best_of_whole_layers(room)
    assert whole <= best * (1 + 1e-9)


def best_of_whole_layers(room):
    """The least seconds of the slowest rank of all numbers of layers, in part in some modes."""
    layers, p = int(room.counts.sum()), room.num_ranks
    least = np.full((p, layers + 1), np.inf)
    for s in range(p):
        for n in range(layers + 1):
            one = Room(
                held=room.held[:, s : s + 1],
                room=room.room[:, s : s + 1],
                counts=np.array([float(n)]),
                whole=np.array([False]),
                **costs(Cost(room.turns.layer[:, s : s + 1], room.turns.once[:, s : s + 1])),
            )
            least[s, n] = program(one, slowest=True) if n else room.turns.once[0, s]
    least[:, 0] = np.where(room.whole[0], np.inf, least[:, 0])
    best = least[0]
    for s in range(1, p):
        best = np.array([max_of_split(best, least[s], n) for n in range(layers + 1)])
    return float(best[layers])


def max_of_split(before, own, total):
    return min(max(before[total - n], own[n]) for n in range(total + 1))
