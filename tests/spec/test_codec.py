import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoplan.errors import ClusterError, InputError, ModelError
from autoplan.spec import Cluster, Configuration, Link, ModelSpec, Profile, Workload
from autoplan.spec.codec import canonical_json, content_hash, from_json, from_jsonable, to_json, to_jsonable
from autoplan.spec.value import value
from tests.spec import values
from tests.tiny_models import llama_like

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | values.names,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(values.names, inner, max_size=3),
    max_leaves=8,
)


@given(values.models() | values.clusters() | values.workloads | values.profiles)
def test_a_value_survives_json(item):
    text = to_json(item)
    again = from_json(type(item), text, where="there")
    assert again == item
    assert to_json(again) == text
    assert from_jsonable(type(item), json.loads(text), where="there") == item


@given(values.models() | values.clusters() | values.profiles)
def test_the_hash_of_a_value_survives_json(item):
    again = from_json(type(item), to_json(item), where="there")
    assert content_hash(to_jsonable(again)) == content_hash(to_jsonable(item))


@given(st.dictionaries(values.names, json_values, max_size=4))
def test_the_hash_ignores_the_order_of_keys_and_the_layout_of_the_text(data):
    shuffled = dict(reversed(data.items()))
    spaced = json.loads(json.dumps(shuffled, indent=3))
    assert content_hash(data) == content_hash(spaced)


@given(json_values, json_values)
def test_different_values_have_different_canonical_json(a, b):
    if json.dumps(a, sort_keys=True) != json.dumps(b, sort_keys=True):
        assert canonical_json(a) != canonical_json(b)


def test_the_hash_is_pinned():
    assert canonical_json({"b": [1, 2.5], "a": "µ"}) == '{"a":"µ","b":[1,2.5]}'.encode()
    assert content_hash({}) == "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_numbers_that_json_lacks_are_refused(number):
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical_json({"a": number})
    with pytest.raises(InputError, match=r"^there: not a JSON value"):
        from_jsonable(Link, {"latency_seconds": number, "bytes_per_second": 1.0}, where="there")


def test_what_json_cannot_hold_is_refused():
    deep = []
    for _ in range(100_000):
        deep = [deep]
    for data in (object(), {"a": {1, 2}}, deep):
        with pytest.raises(InputError, match="not a JSON value"):
            from_jsonable(Link, data, where="there")


WORKLOAD = {"global_batch": 8, "seq_len": 16}


@pytest.mark.parametrize(
    ("data", "field"),
    [
        ({"seq_len": 16}, "global_batch"),
        ({**WORKLOAD, "speed": 9}, "speed"),
        ({**WORKLOAD, "global_batch": 0}, "global_batch"),
        ({**WORKLOAD, "global_batch": -1}, "global_batch"),
        ({**WORKLOAD, "global_batch": 2**31}, "global_batch"),
        ({**WORKLOAD, "global_batch": "8"}, "global_batch"),
        ({**WORKLOAD, "global_batch": 8.0}, "global_batch"),
        ({**WORKLOAD, "global_batch": 8.5}, "global_batch"),
        ({**WORKLOAD, "global_batch": True}, "global_batch"),
        ({**WORKLOAD, "global_batch": None}, "global_batch"),
        ({**WORKLOAD, "global_batch": [8]}, "global_batch"),
        ({**WORKLOAD, "optimizer": "adamW"}, "optimizer"),
        ({**WORKLOAD, "precision": None}, "precision"),
    ],
)
def test_reading_is_strict_and_names_the_field(data, field):
    with pytest.raises(InputError, match=rf"^there: {field}: "):
        from_jsonable(Workload, data, where="there")


def test_a_whole_number_stands_for_a_float():
    assert from_jsonable(Link, {"latency_seconds": 0, "bytes_per_second": 5}, where="there") == Link(
        latency_seconds=0.0, bytes_per_second=5.0
    )


@pytest.mark.parametrize("flag", [1, "true", None])
def test_a_flag_is_true_or_false(flag):
    with pytest.raises(InputError, match=r"^there: sequence_parallel: "):
        from_jsonable(Configuration, {"sequence_parallel": flag}, where="there")


@pytest.mark.parametrize("data", [None, 3, "x", [], [1]])
def test_a_value_is_an_object(data):
    with pytest.raises(InputError, match=r"^there: "):
        from_jsonable(Workload, data, where="there")


def test_a_nested_field_is_named_by_its_path():
    data = to_jsonable(values.small_cluster())
    data["groups"][0]["device"]["memory_bytes"] = "much"
    with pytest.raises(ClusterError, match=r"^there: groups\.0\.device\.memory_bytes: "):
        from_jsonable(Cluster, data, where="there", error=ClusterError)


def test_a_contradiction_is_said_with_its_place():
    data = to_jsonable(llama_like())
    data["blocks"][0]["mixer"]["num_kv_heads"] = 3
    message = r"^there: blocks\.0\.mixer: num_heads 4 is not a multiple of num_kv_heads 3$"
    with pytest.raises(ModelError, match=message):
        from_jsonable(ModelSpec, data, where="there", error=ModelError)


def test_the_kind_of_a_part_is_no_step_of_a_path():
    data = to_jsonable(llama_like())
    data["blocks"][0]["mixer"]["num_heads"] = "many"
    with pytest.raises(ModelError, match=r"^there: blocks\.0\.mixer\.num_heads: "):
        from_jsonable(ModelSpec, data, where="there", error=ModelError)
    del data["blocks"][0]["mixer"]["num_heads"]
    with pytest.raises(ModelError, match=r"^there: blocks\.0\.mixer\.num_heads: Field required"):
        from_jsonable(ModelSpec, data, where="there", error=ModelError)


def test_further_problems_are_counted():
    with pytest.raises(InputError, match=r"\(and 1 more\)$"):
        from_jsonable(Workload, {}, where="there")


def test_malformed_text_names_line_and_column():
    with pytest.raises(InputError, match=r"^there: .*line 2 column"):
        from_json(Workload, '{\n "global_batch": }', where="there")


def test_two_types_of_one_name_do_not_share_an_adapter():
    @value
    class Pair:
        first: int

    one = Pair

    @value
    class Pair:
        second: int

    assert from_jsonable(one, {"first": 1}, where="there") == one(first=1)
    assert from_jsonable(Pair, {"second": 1}, where="there") == Pair(second=1)


def test_values_are_frozen_and_take_no_other_attributes():
    workload = Workload(global_batch=1, seq_len=1)
    with pytest.raises(AttributeError):
        workload.seq_len = 2
    with pytest.raises((AttributeError, TypeError)):
        workload.speed = 2
    with pytest.raises(TypeError):
        Workload(1, 1)


def test_a_schema_of_another_document_is_refused():
    data = {**to_jsonable(values.small_cluster()), "schema": "autoplan.plan/1"}
    with pytest.raises(InputError, match=r"^there: schema: "):
        from_jsonable(Cluster, data, where="there")
    with pytest.raises(InputError, match=r"^there: schema: "):
        from_jsonable(Profile, data, where="there")
