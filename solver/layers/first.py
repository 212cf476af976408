"""A choice to begin with: near-even stages, as far as pins allow, each with the modes that its memory asks for."""

import numpy as np

from costmodels.batch import Floats, Ints
from solver.layers.problem import MEMORY, WEIGHT, Choice, LayerProblem


def first_choice(problem: LayerProblem) -> Choice | None:
    """Return near-even stages whose layers repeat as much as fits, or None where these stages do not fit."""
    cuts = _near_even(problem)
    counts = problem.count(cuts, tuple(problem.usual[problem.layer_class].tolist()))
    for s in range(problem.pp):
        if not _lighten(problem, counts[s], s):
            return None
    return Choice(cuts=cuts, counts=counts)


def _near_even(problem: LayerProblem) -> tuple[int, ...]:
    """Return boundaries that are each as near to an even one as those before it allow."""
    cuts = [0]
    for s in range(problem.pp):
        least = max(int(problem.low[s + 1]), cuts[s] + int(problem.fewest[s]))
        most = min(int(problem.high[s + 1]), cuts[s] + int(problem.most[s]))
        cuts.append(min(max(-(-(s + 1) * problem.num_layers // problem.pp), least), most))
    return tuple(cuts)


def _lighten(problem: LayerProblem, counts: Ints, stage: int) -> bool:
    """Give layers of a stage (C, 3) other modes in place, by bytes saved per second, until it fits; return whether."""
    bytes_ = problem.by_layer[MEMORY, stage]
    seconds = problem.by_layer[: WEIGHT + 1, stage].sum(axis=0)
    over = float((bytes_ * counts).sum()) + problem.once[MEMORY, stage] - problem.limit_bytes
    for k, mode, other in _swaps(problem, bytes_, seconds):
        saved = bytes_[k, mode] - bytes_[k, other]
        moved = min(int(np.ceil(max(over, 0.0) / saved)), int(counts[k, mode]))
        counts[k, mode] -= moved
        counts[k, other] += moved
        over -= moved * saved
    return bool(over <= 0)


def _swaps(problem: LayerProblem, bytes_: Floats, seconds: Floats) -> list[tuple[int, int, int]]:
    """Return what saves bytes, as class, mode and other mode: the usual one for another, then that for the leanest."""
    swaps = []
    for k, usual in enumerate(problem.usual.tolist()):
        others = [m for m in np.flatnonzero(problem.allowed[k]).tolist() if bytes_[k, m] < bytes_[k, usual]]
        swaps += [(k, usual, m) for m in others]
        swaps += [(k, a, b) for a in others for b in others if bytes_[k, b] < bytes_[k, a]]

    def price(swap: tuple[int, int, int]) -> float:
        k, mode, other = swap
        return float((seconds[k, other] - seconds[k, mode]) / (bytes_[k, mode] - bytes_[k, other]))

    return sorted(swaps, key=price)
