"""What of a pipeline's cuts and modes of layers is pinned."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from costmodels.batch import RECOMPUTES, Bools


@dataclass(frozen=True, slots=True, kw_only=True)
class StagePins:
    """Limits on the modes of layers and on the cuts of pipelines with one chunk a rank.

    `allowed_modes` (num_layers, 3) says which modes each layer may have, in the order of `RECOMPUTES`; None allows all.
    `stage_layers` maps stages to their numbers of layers, and `boundaries` places in the cuts to layers. A pipeline
    that has no such stage or place, or cannot keep to them, has no cuts.
    """

    allowed_modes: Bools | None = None
    stage_layers: Mapping[int, int] = field(default_factory=dict)
    boundaries: Mapping[int, int] = field(default_factory=dict)

    @property
    def cut(self) -> bool:
        """Whether anything of the cuts is pinned."""
        return bool(self.stage_layers or self.boundaries)

    @classmethod
    def of(
        cls,
        num_layers: int,
        *,
        modes: Mapping[int, int] | None = None,
        stage_layers: Mapping[int, int] | None = None,
        cuts: tuple[int, ...] | None = None,
    ) -> "StagePins":
        """Pin layers to modes by their codes, stages to numbers of layers, and all boundaries to `cuts`."""
        allowed = None
        if modes:
            allowed = np.ones((num_layers, len(RECOMPUTES)), dtype=np.bool_)
            for layer, mode in modes.items():
                allowed[layer] = np.arange(len(RECOMPUTES)) == mode
        boundaries = {} if cuts is None else dict(enumerate(cuts))
        return cls(allowed_modes=allowed, stage_layers=dict(stage_layers or {}), boundaries=boundaries)


NO_PINS = StagePins()
