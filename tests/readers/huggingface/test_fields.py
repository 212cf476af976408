import pytest

from autoplan.errors import ModelError
from autoplan.readers.huggingface.fields import LARGEST_COUNT, Fields


def fields(**data):
    return Fields(data, where="config.json")


def test_synonyms_must_agree():
    assert fields(n_head=4).spelling("num_attention_heads", "n_head") == "n_head"
    assert fields(num_attention_heads=4, n_head=4).spelling("num_attention_heads", "n_head") == "num_attention_heads"
    assert fields(n_head=None).spelling("num_attention_heads", "n_head") == "num_attention_heads"
    with pytest.raises(ModelError, match=r"^config\.json: n_head: 8 contradicts num_attention_heads 4$"):
        fields(num_attention_heads=4, n_head=8).spelling("num_attention_heads", "n_head")


def test_a_fixed_field_may_be_absent_but_not_another():
    fields().fixed("alibi_bias_max", 8)
    fields(alibi_bias_max=None).fixed("alibi_bias_max", 8)
    fields(alibi_bias_max=8).fixed("alibi_bias_max", 8)
    with pytest.raises(ModelError, match=r"^config\.json: alibi_bias_max: 4 makes a model .* it must be 8$"):
        fields(alibi_bias_max=4).fixed("alibi_bias_max", 8)


@pytest.mark.parametrize("bad", [-1, 1.5, True, "2", [0], 2**40])
def test_a_whole_number_may_be_zero(bad):
    assert fields(n=0).whole("n", 3) == 0
    assert fields(n=None).whole("n", 3) == fields().whole("n", 3) == 3
    with pytest.raises(ModelError, match=r"^config\.json: n: must be an integer from 0"):
        fields(n=bad).whole("n", 3)


@pytest.mark.parametrize("bad", [3, "0", [4], [-1], [True], [0.5], [[0]]])
def test_layers_are_numbers_of_layers(bad):
    assert fields(n=[0, 3, 3]).layers("n", num_layers=4) == {0, 3}
    assert fields(n=None).layers("n", num_layers=4) is None
    with pytest.raises(ModelError, match=r"^config\.json: n: must be a list of layer numbers below 4"):
        fields(n=bad).layers("n", num_layers=4)


@pytest.mark.parametrize(("factor", "times"), [(0.1, 3), (4, LARGEST_COUNT), (1e308, 10**300)])
def test_a_product_is_a_size(factor, times):
    assert fields().product("expand", 2.5, 4) == 10
    with pytest.raises(ModelError, match=r"^config\.json: expand: .* is not a size"):
        fields().product("expand", factor, times)


def test_null_and_absent_differ_where_a_number_is_optional():
    assert fields().optional_positive("cap", 50.0) == 50.0
    assert fields(cap=None).optional_positive("cap", 50.0) is None
    assert fields(cap=30).optional_positive("cap", 50.0) == 30.0


def test_what_was_not_read_is_known_in_sections_too():
    outer = fields(a=1, b=2, section={"c": 3, "d": 4})
    outer.get("a")
    outer.section("section").get("c")
    assert outer.unread() == {"b": 2, "section.d": 4}
    outer.section("section").items()
    assert outer.unread() == {"b": 2}


@pytest.mark.parametrize(("data", "said"), [({}, "is missing"), ({"s": None}, "is null"), ({"s": 3}, "must be an")])
def test_a_section_that_is_needed(data, said):
    with pytest.raises(ModelError, match=rf"^config\.json: s: {said}"):
        fields(**data).section("s")
