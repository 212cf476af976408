import pytest

from autoplan.errors import ConfigurationError
from autoplan.spec import Configuration
from autoplan.spec.codec import from_jsonable, to_jsonable
from solver.options import (
    Condition,
    SearchOptions,
    parse_fix,
    pins_of_fields,
    pins_of_layers,
    split_list,
    write_value,
)


def test_pins_are_read_with_their_types():
    pins = parse_fix(["tp=8", "recompute=full", "sequence_parallel=true", " zero_stage = 0 "])
    assert pins == {"tp": 8, "recompute": "full", "sequence_parallel": True, "zero_stage": 0}
    assert SearchOptions(fix=pins).fix == pins


@pytest.mark.parametrize(
    ("item", "says"),
    [
        ("tp", "not a pin"),
        ("tp=", "not a pin"),
        ("tq=8", "tq is not a choice of a plan"),
        ("tp=0", "whole number of 1 or more"),
        ("tp=-2", "whole number of 1 or more"),
        ("tp=1.5", "whole number of 1 or more"),
        ("tp=true", "whole number of 1 or more"),
        ("recompute=most", "one of none, selective, full"),
        ("zero_stage=4", "one of 0, 1, 2, 3"),
        ("sequence_parallel=1", "one of false, true"),
        ("schedule=__import__('os')", "one of gpipe, 1f1b"),
        ("schedule=zb-1p", "interleaved, zb-v and dualpipe-v; `autoplan estimate` takes zb-1p"),
        ("cp_method=star", "one of ulysses, allgather, ring"),
        ("recompute_layers=-1", "whole number of 0 or more"),
    ],
)
def test_a_bad_pin_names_the_flag(item, says):
    with pytest.raises(ConfigurationError, match=says) as caught:
        parse_fix([item])
    assert caught.value.where == f"--fix {item}"


def test_pins_of_fields_and_of_layers_are_told_apart():
    pins = parse_fix(["tp=8", "layers[0:4].recompute=full", "cuts=0,16,32"])
    assert pins_of_fields(pins) == {"tp": 8}
    assert pins_of_layers(pins) == {"layers[0:4].recompute": "full", "cuts": "0,16,32"}
    options = SearchOptions(fix=pins_of_fields(pins), pins=pins_of_layers(pins))
    assert from_jsonable(SearchOptions, to_jsonable(options), where="options") == options


def test_a_list_of_pins_may_have_cuts():
    assert split_list("tp=4,cuts=0,16,32,pp=2") == ["tp=4", "cuts=0,16,32", "pp=2"]
    assert split_list("layers[0:2].recompute=full,layers[3].recompute=none") == [
        "layers[0:2].recompute=full",
        "layers[3].recompute=none",
    ]
    assert split_list("tp=4,,pp=2") == ["tp=4,", "pp=2"]


@pytest.mark.parametrize(
    ("fix", "pins", "where", "says"),
    [
        (
            {"recompute": "none"},
            {"layers[0].recompute": "full"},
            "--fix recompute=none",
            "more than any layer may repeat",
        ),
        ({"recompute_layers": 2}, {"layers[0].recompute": "full"}, "--fix recompute_layers", "pinned one by one"),
        ({"pp": 2}, {"stages[2].layers": "4"}, "--fix stages[2].layers", "stages count from 0 to 1"),
        ({"pp": 2}, {"cuts": "0,1,2,8"}, "--fix cuts", "cuts of 3 chunks, pp asks for a multiple of 2"),
        ({"pp": 2, "virtual_stages": 1}, {"cuts": "0,1,2,3,8"}, "--fix cuts", "cuts of 4 chunks, pp asks for 2 x"),
    ],
)
def test_pins_that_contradict_each_other_are_refused(fix, pins, where, says):
    with pytest.raises(ConfigurationError, match=says) as caught:
        SearchOptions(fix=fix, pins=pins)
    assert caught.value.where == where


def test_a_pin_of_layers_names_the_flag():
    with pytest.raises(ConfigurationError, match="no layers from 4 up to 2") as caught:
        parse_fix(["layers[4:2].recompute=full"], flag="--why-not")
    assert caught.value.where == "--why-not layers[4:2].recompute=full"


def test_a_pin_given_twice_is_refused():
    with pytest.raises(ConfigurationError, match="pinned twice"):
        parse_fix(["tp=2", "tp=4"])


def test_pins_are_checked_however_the_options_were_made():
    with pytest.raises(ConfigurationError, match="--fix tp=x: tp is a whole number"):
        SearchOptions(fix={"tp": "x"})
    with pytest.raises(ConfigurationError, match="--fix schedule=zb-2p: the search has"):
        SearchOptions(fix={"schedule": "zb-2p"})
    with pytest.raises(ConfigurationError, match="--fix zero_stage=true"):
        SearchOptions(fix={"zero_stage": True})
    with pytest.raises(ConfigurationError, match="--time-limit"):
        SearchOptions(time_limit_seconds=0.0)
    with pytest.raises(ConfigurationError, match="--top"):
        SearchOptions(top=-1)


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("cp>1", False),
        ("tp==8", True),
        ("tp != 8", False),
        ("recompute==full", True),
        ("recompute!=full", False),
        ("sequence_parallel==true", False),
        ("micro_batch<=2", True),
        ("micro_batch<2", False),
        ("pp>=1", True),
    ],
)
def test_a_forbidden_region_is_a_condition(text, holds):
    assert Condition.parse(text).holds(Configuration(tp=8, recompute="full", micro_batch=2)) == holds


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("tp", "not a condition"),
        ("tp=8", "not a condition"),
        ("1<tp<8", "not a condition"),
        ("tp>8 or True", "not a condition"),
        ("__class__==1", "is not a choice of a plan"),
        ("tp>full", "whole number"),
        ("recompute>full", "recompute has no order"),
        ("schedule==2f2b", "one of gpipe, 1f1b"),
    ],
)
def test_a_bad_condition_is_quoted(text, says):
    with pytest.raises(ConfigurationError, match=says) as caught:
        SearchOptions(forbid=(text,))
    assert caught.value.where == f"--forbid '{text}'"


def test_options_have_a_json_form():
    options = SearchOptions(fix={"tp": 2, "sequence_parallel": True}, forbid=("pp>1",), top=5, time_limit_seconds=2.5)
    assert from_jsonable(SearchOptions, to_jsonable(options), where="options") == options
    with pytest.raises(ConfigurationError, match=r"options: .*--fix tp=0"):
        from_jsonable(SearchOptions, {"fix": {"tp": 0}}, where="options", error=ConfigurationError)


@pytest.mark.parametrize("pinned", [8, "full", True])
def test_a_value_is_written_as_it_is_read(pinned):
    name = {int: "tp", str: "recompute", bool: "sequence_parallel"}[type(pinned)]
    assert parse_fix([f"{name}={write_value(pinned)}"]) == {name: pinned}


@pytest.mark.parametrize("digits", [10, 23, 5000])
@pytest.mark.parametrize("name", ["tp", "micro_batch"])
def test_a_pin_beyond_every_size_is_refused_by_name(name, digits):
    with pytest.raises(ConfigurationError, match="at most 2147483647") as caught:
        parse_fix([f"{name}={'9' * digits}"])
    assert name in caught.value.where


@pytest.mark.parametrize("limit", [0, -1, float("nan")])
def test_a_time_limit_is_more_than_0(limit):
    with pytest.raises(ConfigurationError, match="must be more than 0") as caught:
        SearchOptions(time_limit_seconds=limit)
    assert caught.value.where == "--time-limit"


@pytest.mark.parametrize("solver", ["milp", "cp-sat"])
def test_the_least_memory_is_found_by_one_solver_alone(solver):
    with pytest.raises(ConfigurationError, match="dynamic programming") as caught:
        SearchOptions(objective="memory", solver=solver)
    assert caught.value.where == f"--solver {solver}"
