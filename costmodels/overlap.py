"""How long compute and communication take side by side, and how much of the communication that exposes."""

from typing import Any

import numpy as np

from autoplan.spec.profile import Contention


def overlapped_seconds(compute: Any, communication: Any, contention: Contention) -> Any:
    """Return the time until both are done when they start together.

    While both run, compute goes at 1/sc and communication at 1/sm of its rate, sc and sm the slowdowns of
    `contention`; the one that is left over goes on alone. With sc = sm = κ this is the
    ``max + (κ−1)·min``; with 2 and 2 it is the sum.
    """
    sc = np.maximum(contention.compute_slowdown, 1.0)
    sm = np.maximum(contention.communication_slowdown, 1.0)
    compute_alone, communication_alone = compute * sc, communication * sm
    compute_first = compute_alone + communication - compute_alone / sm
    communication_first = communication_alone + compute - communication_alone / sc
    return np.where(compute_alone <= communication_alone, compute_first, communication_first)


def exposed_seconds(compute: Any, communication: Any, contention: Contention) -> Any:
    """Return what communication behind `compute` adds to its time."""
    return np.maximum(overlapped_seconds(compute, communication, contention) - compute, 0.0)
