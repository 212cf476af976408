"""Whole micro-batches for replicas of unlike speed, so that the slowest is done as early as can be.

Replica d takes m_d ≥ 1 of M micro-batches, t_d seconds each: min max_d m_d·t_d where Σ m_d = M. By a time T a replica
can take max(1, ⌊T/t_d⌋), and the best T is the least by which all together can take M. Below it all take what they can,
and what is left goes one by one to whom the next costs least: that is the best, since whatever is done by T was done in
this order. Replicas that are alike are counted, so that thousands cost no more than two.
"""

import numpy as np

from costmodels.batch import Floats, Ints

HALVINGS = 64
ROUNDING = 1e-12


def best_shares(total: Ints, seconds: Floats, replicas: Ints) -> tuple[Ints, Ints]:
    """Return the micro-batches that a replica of each kind takes (n, k), and how many of them take one more (n, k).

    `total` (n,) micro-batches are shared by `replicas` (n, k) of k kinds, of which some kind has any and which are no
    more than the micro-batches; one takes `seconds` (n, k).
    """
    seconds = np.where(replicas > 0, seconds, np.inf)
    low, high = np.zeros(len(total)), total * seconds.min(axis=1)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        fits = (replicas * _taken(seconds, middle)).sum(axis=1) <= total
        low, high = np.where(fits, middle, low), np.where(fits, high, middle)
    shares = _taken(seconds, low)
    left = total - (replicas * shares).sum(axis=1)
    more = np.zeros_like(shares)
    rows = np.arange(len(total))
    for _ in range(shares.shape[1]):
        due = np.where(more < replicas, (shares + 1) * seconds, np.inf)
        kind = due.argmin(axis=1)
        some = np.minimum(left, replicas[rows, kind] - more[rows, kind])
        more[rows, kind] += some
        left = left - some
    return shares, more


def slowest_seconds(seconds: Floats, replicas: Ints, shares: Ints, more: Ints) -> Floats:
    """Return when replicas of each kind are done (n, k), 0 where there are none."""
    return np.where(replicas > 0, (shares + (more > 0)) * np.where(replicas > 0, seconds, 0.0), 0.0)


def _taken(seconds: Floats, by: Floats) -> Ints:
    """Return what replicas (n, k) can take by some time (n,): at least one."""
    taken: Ints = np.maximum(np.floor(by[:, None] / seconds * (1 + ROUNDING)), 1.0).astype(np.int64)
    return taken
