"""What communication costs at the links' nominal figures, kept so that other efficiencies are quick to apply."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from costmodels.batch import Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkRates:
    """What the links reach: shares of their nominal bandwidth inside and between nodes, and a factor of latencies."""

    intra: float = 1.0
    inter: float = 1.0
    latency: float = 1.0


NOMINAL = LinkRates()


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkWork:
    """Nominal seconds, three arrays of one shape: of latency, of bytes inside nodes, of bytes between nodes.

    Both kinds of links work at the same time.
    """

    latency_seconds: Floats
    intra_seconds: Floats
    inter_seconds: Floats

    @classmethod
    def zeros(cls, shape: tuple[int, ...]) -> "LinkWork":
        """Return no work."""
        return cls(latency_seconds=np.zeros(shape), intra_seconds=np.zeros(shape), inter_seconds=np.zeros(shape))

    @classmethod
    def stack(cls, works: "Sequence[LinkWork]", *, axis: int = 0) -> "LinkWork":
        """Join works of one shape along a new axis."""
        return cls(
            latency_seconds=np.stack([work.latency_seconds for work in works], axis=axis),
            intra_seconds=np.stack([work.intra_seconds for work in works], axis=axis),
            inter_seconds=np.stack([work.inter_seconds for work in works], axis=axis),
        )

    def __add__(self, other: "LinkWork") -> "LinkWork":
        """Return the work of both, one after the other, where the same kind of link holds both up.

        Of works that wait for different kinds, price each and add the seconds: added as work, one would hide behind
        the other.
        """
        return LinkWork(
            latency_seconds=self.latency_seconds + other.latency_seconds,
            intra_seconds=self.intra_seconds + other.intra_seconds,
            inter_seconds=self.inter_seconds + other.inter_seconds,
        )

    def __mul__(self, times: Any) -> "LinkWork":
        """Return the work done `times` times, a number or an array that broadcasts."""
        return LinkWork(
            latency_seconds=self.latency_seconds * times,
            intra_seconds=self.intra_seconds * times,
            inter_seconds=self.inter_seconds * times,
        )

    __rmul__ = __mul__

    def __getitem__(self, index: Any) -> "LinkWork":
        """Return the part that `index` selects of each array."""
        return LinkWork(
            latency_seconds=self.latency_seconds[index],
            intra_seconds=self.intra_seconds[index],
            inter_seconds=self.inter_seconds[index],
        )

    def seconds(self, rates: LinkRates = NOMINAL) -> Floats:
        """Return the time at the given rates."""
        moved = np.maximum(self.intra_seconds / rates.intra, self.inter_seconds / rates.inter)
        seconds: Floats = self.latency_seconds * rates.latency + moved
        return seconds
