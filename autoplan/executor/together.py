"""Ranks acting as one: an error on one rank is raised on all, so that none waits for a peer that gave up."""

from collections.abc import Callable
from typing import TypeVar, cast

import torch.distributed as dist

from autoplan.errors import AutoplanError

T = TypeVar("T")


def together(action: Callable[[], T]) -> list[T]:
    """Run `action` on every rank and return all results by rank; raises the lowest failing rank's AutoplanError."""
    outcome: T | AutoplanError
    try:
        outcome = action()
    except AutoplanError as error:
        outcome = error
    outcomes: list[T | AutoplanError] = [outcome] * dist.get_world_size()
    dist.all_gather_object(outcomes, outcome)
    results: list[T] = []
    for result in outcomes:
        if isinstance(result, AutoplanError):
            raise result
        results.append(result)
    return results


def on_first_rank(action: Callable[[], T]) -> T:
    """Run `action` on rank 0 alone and return its result on every rank; raises its AutoplanError on every rank."""
    results = together(lambda: action() if dist.get_rank() == 0 else None)
    return cast("T", results[0])
