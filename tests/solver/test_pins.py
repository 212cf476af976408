from dataclasses import replace

import numpy as np
import pytest

from autoplan.errors import ConfigurationError
from autoplan.spec import Configuration
from costmodels.batch import Batch
from solver.pins import LayerPins, is_layer_pin, require_pins, write_pins


def configurations(*several):
    return Batch.of(several, np.zeros((len(several), 2), dtype=np.int64))


def test_layers_stages_and_cuts_are_read():
    pins = LayerPins.parse(
        {
            "layers[0:3].recompute": "full",
            "layers[5].recompute": "none",
            "stages[0].layers": "10",
            "stages[2].layers": 4,
        }
    )
    assert pins.modes == {0: 2, 1: 2, 2: 2, 5: 0}
    assert pins.stages == {0: 10, 2: 4}
    assert LayerPins.parse({"cuts": "0, 20,40"}).cuts == (0, 20, 40)
    assert not LayerPins.parse({})


@pytest.mark.parametrize(
    ("pins", "says"),
    [
        ({"layers": "full"}, "not a pin of layers or stages: write layers[FIRST:END]"),
        ({"layers[0:4]": "full"}, "not a pin of layers or stages"),
        ({"layers[0:4].zero_stage": "3"}, "not a pin of layers or stages"),
        ({"layers[a].recompute": "full"}, "not a pin of layers or stages"),
        ({"layers[0:4].recompute": "most"}, "recompute is one of none, selective, full"),
        ({"layers[4:2].recompute": "full"}, "no layers from 4 up to 2"),
        ({"layers[4:4].recompute": "full"}, "no layers from 4 up to 4"),
        ({"layers[-1].recompute": "full"}, "layers and stages count from 0"),
        ({"layers[0:99999999999].recompute": "full"}, "is more than 1048576"),
        ({"layers[0:2147483647].recompute": "full"}, "is more than 1048576"),
        ({f"layers[{'9' * 5000}].recompute": "full"}, "is more than 1048576"),
        ({"stages[0].layers": "9" * 5000}, "1 or more layers, not 999"),
        ({"layers[0:4].recompute": "full", "layers[3:5].recompute": "full"}, "layer 3 is pinned twice"),
        ({"stages[0].layers": "0"}, "1 or more layers, not 0"),
        ({"stages[0].layers": "-1"}, "1 or more layers, not -1"),
        ({"stages[0].layers": "x"}, "1 or more layers, not x"),
        ({"stages[-1].layers": "3"}, "count from 0"),
        ({"stages[0].cuts": "3"}, "not a pin of layers or stages"),
        ({"cuts": "0,x"}, "cuts are layer numbers"),
        ({"cuts": "0,-4,8"}, "cuts are layer numbers"),
        ({"cuts": "0"}, "cuts ascend from 0"),
        ({"cuts": "1,8"}, "cuts ascend from 0"),
        ({"cuts": "0,8,4"}, "cuts ascend from 0"),
        ({"cuts": "0,4,4,8"}, "only the first and the last chunk may be without layers"),
        ({"cuts": "0,4,8", "stages[0].layers": "4"}, "give one of both"),
    ],
)
def test_a_bad_pin_is_quoted(pins, says):
    with pytest.raises(ConfigurationError) as caught:
        LayerPins.parse(pins)
    assert says in caught.value.message
    assert caught.value.where.startswith(f"--fix {list(pins)[-1].split('[')[0] if 'both' not in says else 'cuts'}")


@pytest.mark.parametrize(
    ("pins", "where", "says"),
    [
        ({"layers[6:9].recompute": "full"}, "--fix layers[8].recompute", "layers 0 to 7"),
        ({"cuts": "0,4,9"}, "--fix cuts", "the last boundary is 9, the model has 8 layers"),
        ({"stages[0].layers": "5", "stages[1].layers": "4"}, "--fix stages[0], stages[1]", "9 layers, the model has 8"),
        ({"stages[8].layers": "1"}, "--fix stages[8].layers", "stages 0 to 7 at the most"),
    ],
)
def test_what_the_model_does_not_have_is_refused(pins, where, says):
    with pytest.raises(ConfigurationError, match=says) as caught:
        require_pins(LayerPins.parse(pins), 8)
    assert caught.value.where == where


def test_what_the_model_has_is_taken():
    for pins in (
        {"layers[0:8].recompute": "full"},
        {"cuts": "0,4,8"},
        {"stages[0].layers": "5", "stages[1].layers": "3"},
    ):
        require_pins(LayerPins.parse(pins), 8)


def test_cuts_say_how_many_chunks_there_are():
    batch = configurations(
        Configuration(pp=2), Configuration(pp=4), Configuration(pp=2, virtual_stages=2, schedule="interleaved")
    )
    assert LayerPins.parse({"cuts": "0,4,8"}).allows_chunks(batch, 8).tolist() == [True, False, False]
    assert LayerPins.parse({"cuts": "0,2,4,6,8"}).allows_chunks(batch, 8).tolist() == [False, True, True]
    assert LayerPins.parse({"cuts": "0,0,4,6,8"}).allows_chunks(batch, 8).tolist() == [False, False, True]


def test_a_pinned_stage_exists():
    batch = configurations(Configuration(), Configuration(pp=2), Configuration(pp=4))
    assert LayerPins.parse({"stages[1].layers": "3"}).allows_chunks(batch, 8).tolist() == [False, True, True]


def test_the_other_stages_have_layers_too():
    chunks = Configuration(pp=4, virtual_stages=2, schedule="interleaved")
    batch = configurations(Configuration(), Configuration(pp=2), Configuration(pp=4), chunks)
    assert LayerPins.parse({"stages[0].layers": "8"}).allows_chunks(batch, 8).tolist() == [True, False, False, True]
    assert LayerPins.parse({"stages[0].layers": "7"}).allows_chunks(batch, 8).tolist() == [False, True, False, True]
    both = LayerPins.parse({"stages[0].layers": "5", "stages[1].layers": "2"})
    assert both.allows_chunks(batch, 8).tolist() == [False, False, False, True]
    assert LayerPins.parse({}).allows_chunks(batch, 8).tolist() == [True] * 4


def test_pinned_layers_need_a_recompute_that_allows_them():
    tiers = [Configuration(recompute=mode) for mode in ("none", "selective", "full")]
    chunks = [
        Configuration(pp=2, virtual_stages=2, schedule="interleaved", recompute=mode)
        for mode in ("none", "selective", "full")
    ]
    batch = configurations(*tiers, *chunks)
    some = LayerPins.parse({"layers[0:4].recompute": "selective"})
    assert some.allows_modes(batch).tolist() == [False, True, True, False, True, False]
    mixed = LayerPins.parse({"layers[0].recompute": "none", "layers[1].recompute": "full"})
    assert mixed.allows_modes(batch).tolist() == [False, False, True, False, False, False]
    none = LayerPins.parse({"layers[0].recompute": "none"})
    assert none.allows_modes(batch).tolist() == [True, True, True, True, False, False]


def test_a_rank_has_the_layers_of_all_its_chunks():
    pins = LayerPins.parse({"stages[0].layers": "5"})
    several = {"pp": 2, "virtual_stages": 2}
    batch = Batch.of(
        [
            Configuration(pp=2),
            Configuration(pp=2),
            Configuration(**several, schedule="zb-v"),
            Configuration(**several, schedule="interleaved"),
            Configuration(**several, schedule="interleaved"),
        ],
        np.asarray([[0, 5, 8, 8, 8], [0, 4, 8, 8, 8], [0, 4, 6, 7, 8], [0, 2, 4, 7, 8], [0, 2, 4, 5, 8]]),
    )
    assert pins.allows_layers(batch).tolist() == [True, False, True, True, False]
    assert LayerPins.parse({}).allows_layers(batch).all()


@pytest.mark.parametrize(
    ("name", "answer"), [("cuts", True), ("layers[0].x", True), ("stages", True), ("cuts2", True), ("tp", False)]
)
def test_names_of_layers_and_stages_are_told_from_fields(name, answer):
    assert is_layer_pin(name) == answer


def test_pins_of_a_plan_are_read_back():
    plain = Configuration(pp=2, recompute="full")
    assert write_pins(plain, (0, 2, 4), (2, 2, 2, 2)) == {"cuts": "0,2,4"}
    assert write_pins(replace(plain, pp=1), (0, 4), (2, 2, 2, 2)) == {}
    pins = write_pins(plain, (0, 1, 4), (2, 0, 0, 1))
    read = LayerPins.parse(pins)
    assert read.cuts == (0, 1, 4)
    assert read.modes == {0: 2, 1: 0, 2: 0, 3: 1}
    spread = replace(plain, recompute_layers=2)
    assert write_pins(spread, (0, 2, 4), (0, 2, 0, 2)) == {"cuts": "0,2,4"}
