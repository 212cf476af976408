"""Pinned layers and stages, against all splits that keep the pins."""

import numpy as np
import pytest

from solver.stages import NO_PINS, StagePins, leanest_cuts, least_bytes
from tests.solver.stages.mixed import make_case
from tests.solver.stages.test_best import check_best

PATTERN = ("dense", "tiny", "dense", "huge", "dense", "tiny")


@pytest.mark.parametrize("share", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "zb-h1"])
@pytest.mark.parametrize(
    "pins",
    [
        {"modes": {0: 2, 1: 2, 4: 0}},
        {"stage_layers": {0: 1}},
        {"stage_layers": {1: 3}, "modes": {3: 1}},
        {"cuts": (0, 1, 4, 6)},
    ],
    ids=["layers", "stage", "both", "cuts"],
)
def test_the_best_that_keeps_the_pins_is_found(pins, schedule, share):
    case = make_case(PATTERN, pp=3, schedule=schedule, recompute="full", share=share, pins=StagePins.of(6, **pins))
    best = check_best(case)
    assert all(best.layers[layer] == mode for layer, mode in pins.get("modes", {}).items())
    assert all(np.diff(best.cuts)[stage] == count for stage, count in pins.get("stage_layers", {}).items())
    assert least_bytes(case.pipeline) == pytest.approx(case.needed.min(), rel=1e-9)
    assert leanest_cuts(case.pipeline).best.cuts == pins.get("cuts", leanest_cuts(case.pipeline).best.cuts)


def test_nothing_is_pinned_by_default():
    assert StagePins.of(4) == NO_PINS
    assert not NO_PINS.cut
    assert StagePins.of(4, cuts=(0, 4)).cut


def test_pinned_layers_have_one_mode():
    allowed = StagePins.of(3, modes={1: 2}).allowed_modes
    assert allowed.tolist() == [[True] * 3, [False, False, True], [True] * 3]
