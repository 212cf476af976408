"""Pins of layers and stages, beside those of the configuration's fields.

    layers[FIRST:END].recompute=MODE    layers FIRST up to END − 1 repeat MODE: none, selective or full
    layers[N].recompute=MODE            layer N does
    stages[N].layers=COUNT              pipeline rank N has COUNT layers, in all of its chunks
    cuts=0,…,LAYERS                     the boundaries of all chunks in the order of the layers

such as ``layers[0:4].recompute=full``, ``stages[0].layers=10`` and ``cuts=0,20,40,60,80``. Layers and ranks count from
0. What contradicts itself is refused where it is read; what contradicts the model where options and problem meet
(`require_pins`). A configuration that cannot keep the pins is not in the space.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any

import numpy as np

from autoplan.errors import ConfigurationError
from autoplan.spec import Configuration
from costmodels.batch import RECOMPUTES, Batch, Bools
from costmodels.stage_costs import sum_chunks

PinValue = int | str | bool
LARGEST_PLACE = 2**20
"""More than any model has layers; pins are kept layer by layer."""
FORMS = "layers[FIRST:END].recompute=MODE, layers[N].recompute=MODE, stages[N].layers=COUNT or cuts=0,…,LAYERS"

_NAME = re.compile(r"layers\[(-?\d+)(?::(-?\d+))?\]\.recompute|stages\[(-?\d+)\]\.layers|cuts", re.ASCII)
_STARTS = ("layers", "stages", "cuts")


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerPins:
    """What is pinned of layers and stages.

    `modes` maps layers to places in `RECOMPUTES`, `stages` pipeline ranks to numbers of layers; `cuts` are all
    boundaries.
    """

    modes: dict[int, int]
    stages: dict[int, int]
    cuts: tuple[int, ...] | None = None

    @classmethod
    def parse(cls, pins: Mapping[str, PinValue], *, flag: str = "--fix") -> "LayerPins":
        """Read pins by name; raises ConfigurationError that quotes the one which is wrong or contradicts another."""
        modes: dict[int, int] = {}
        stages: dict[int, int] = {}
        cuts = None
        for name, pinned in pins.items():
            where = f"{flag} {name}={pinned}"
            match = _NAME.fullmatch(name)
            if match is None:
                raise ConfigurationError(f"not a pin of layers or stages: write {FORMS}", where=where)
            first, end, stage = match.groups()
            if name == "cuts":
                cuts = _read_cuts(pinned, where=where)
            elif stage is not None:
                stages[_read_place(stage, where=where)] = _read_count(pinned, where=where)
            else:
                modes |= _read_layers(first, end, pinned, known=modes, where=where)
        if cuts is not None and stages:
            raise ConfigurationError("cuts say what every stage has: give one of both", where=f"{flag} cuts")
        return cls(modes=modes, stages=stages, cuts=cuts)

    def __bool__(self) -> bool:
        return bool(self.modes or self.stages or self.cuts is not None)

    @property
    def heaviest(self) -> int:
        """The most that a pinned layer repeats, as a place in `RECOMPUTES`."""
        return max(self.modes.values(), default=0)

    def allows_chunks(self, configurations: Any, num_layers: int) -> Bools:
        """Return which configurations (n,) have as many stages and chunks as the pins need, and layers for them."""
        pp, chunks = configurations.pp, configurations.virtual_stages
        others, left = pp - len(self.stages), num_layers - sum(self.stages.values())
        keep: Bools = (pp > max(self.stages, default=-1)) & np.where(
            others > 0, left >= others * (chunks == 1), left == 0
        )
        if self.cuts is None:
            return keep if self.stages else np.ones_like(keep)
        empty = any(first == end for first, end in pairwise(self.cuts))
        as_many: Bools = (pp * chunks == len(self.cuts) - 1) & (chunks > int(empty))
        return as_many

    def allows_modes(self, configurations: Any) -> Bools:
        """Return which configurations (n,) allow layers what they are pinned to; of several chunks all are alike."""
        chunks = configurations.virtual_stages
        if not self.modes:
            return np.ones(np.shape(chunks), dtype=np.bool_)
        tier = np.select([configurations.recompute == mode for mode in RECOMPUTES], range(len(RECOMPUTES)))
        alike = tier == (self.heaviest if len(set(self.modes.values())) == 1 else -1)
        keep: Bools = np.where(chunks == 1, tier >= self.heaviest, alike)
        return keep

    def allows_layers(self, batch: Batch) -> Bools:
        """Return which configurations with their cuts (n,) have as many layers on every rank as is pinned."""
        held = sum_chunks(batch, np.diff(batch.cuts, axis=1).astype(np.float64))
        keep: Bools = np.all([held[:, stage] == count for stage, count in self.stages.items()], axis=0)
        return keep & np.ones(len(batch), dtype=np.bool_)


def write_pins(configuration: Configuration, cuts: tuple[int, ...], layers: tuple[int, ...]) -> dict[str, PinValue]:
    """Return the pins that, with all fields of the configuration pinned, leave one plan alone.

    That are its cuts where it has several chunks, and what layers repeat, by their places in `RECOMPUTES`, where they
    are not all alike.
    """
    pins: dict[str, PinValue] = {} if len(cuts) == 2 else {"cuts": ",".join(map(str, cuts))}
    if configuration.recompute_layers or set(layers) == {RECOMPUTES.index(configuration.recompute)}:
        return pins
    first = 0
    for mode, run in groupby(layers):
        end = first + len(list(run))
        pins[f"layers[{first}:{end}].recompute"] = RECOMPUTES[mode]
        first = end
    return pins


def is_layer_pin(name: str) -> bool:
    """Return whether a pin's name is of layers or stages, well written or not, and not of a configuration's field."""
    return re.split(r"[^a-z]", name, maxsplit=1)[0] in _STARTS


def require_pins(pins: LayerPins, num_layers: int, *, flag: str = "--fix") -> None:
    """Raise ConfigurationError where pins ask for layers that a model of `num_layers` does not have."""
    beyond = [layer for layer in pins.modes if layer >= num_layers]
    if beyond:
        raise ConfigurationError(
            f"the model has layers 0 to {num_layers - 1}", where=f"{flag} layers[{min(beyond)}].recompute"
        )
    if pins.cuts is not None and pins.cuts[-1] != num_layers:
        raise ConfigurationError(
            f"the last boundary is {pins.cuts[-1]}, the model has {num_layers} layers", where=f"{flag} cuts"
        )
    stage = max(pins.stages, default=0)
    if stage >= num_layers:
        raise ConfigurationError(
            f"{num_layers} layers make stages 0 to {num_layers - 1} at the most", where=f"{flag} stages[{stage}].layers"
        )
    held = sum(pins.stages.values())
    if held > num_layers:
        named = ", ".join(f"stages[{stage}]" for stage in pins.stages)
        raise ConfigurationError(f"{held} layers, the model has {num_layers}", where=f"{flag} {named}")


def _read_cuts(pinned: PinValue, *, where: str) -> tuple[int, ...]:
    parts = str(pinned).split(",")
    if not all(re.fullmatch(r"\s*\d{1,10}\s*", part, re.ASCII) for part in parts):
        raise ConfigurationError("cuts are layer numbers, such as 0,20,40", where=where)
    cuts = tuple(map(int, parts))
    if len(cuts) < 2 or cuts[0] != 0 or list(cuts) != sorted(cuts):
        raise ConfigurationError("cuts ascend from 0 to the number of layers", where=where)
    if len(set(cuts[1:-1])) < len(cuts) - 2:
        raise ConfigurationError("only the first and the last chunk may be without layers", where=where)
    return cuts


def _read_place(text: str, *, where: str) -> int:
    if text.startswith("-"):
        raise ConfigurationError(f"{text}: layers and stages count from 0", where=where)
    if len(text.lstrip("0")) > len(str(LARGEST_PLACE)) or int(text) > LARGEST_PLACE:
        raise ConfigurationError(f"{text} is more than {LARGEST_PLACE}", where=where)
    return int(text)


def _read_count(pinned: PinValue, *, where: str) -> int:
    text = str(pinned)
    count = int(text) if re.fullmatch(r"\d{1,10}", text, re.ASCII) else 0
    if count < 1:
        raise ConfigurationError(f"a stage has 1 or more layers, not {text}", where=where)
    return count


def _read_layers(first: str, end: str | None, pinned: PinValue, *, known: dict[int, int], where: str) -> dict[int, int]:
    start = _read_place(first, where=where)
    stop = start + 1 if end is None else _read_place(end, where=where)
    if stop <= start:
        raise ConfigurationError(f"no layers from {start} up to {stop}: the second number is the larger", where=where)
    if pinned not in RECOMPUTES:
        raise ConfigurationError(f"recompute is one of {', '.join(RECOMPUTES)}", where=where)
    layers = range(start, stop)
    twice = [layer for layer in layers if layer in known]
    if twice:
        raise ConfigurationError(f"layer {twice[0]} is pinned twice", where=where)
    return dict.fromkeys(layers, RECOMPUTES.index(str(pinned)))
