"""A part's share of the wall time, on which all ranks agree."""

from time import perf_counter

from autoplan.profiler.ranks import Ranks


class Budget:
    """Wall seconds that are left; every rank gets the same answers because rank 0's clock decides."""

    __slots__ = ("_end", "_ranks")

    def __init__(self, ranks: Ranks, *, seconds: float) -> None:
        self._ranks = ranks
        self._end = perf_counter() + seconds

    def left(self) -> float:
        """Return the seconds that are left, negative when they are overdrawn."""
        return self._ranks.gather(self._end - perf_counter())[0]

    def allows(self, expected_seconds: float) -> bool:
        """Say whether something that takes about `expected_seconds` (the same on all ranks) still fits."""
        return self.left() >= expected_seconds

    def split(self, num_parts: int) -> "Budget":
        """Return an even share of what is left."""
        return Budget(self._ranks, seconds=self.left() / num_parts)
