import pytest

from autoplan.errors import ModelError
from autoplan.spec import Rope, RopeScaling
from tests.readers.huggingface import files
from tests.readers.huggingface.test_llama_like import read

LLAMA3 = {
    "factor": 8.0,
    "high_freq_factor": 4.0,
    "low_freq_factor": 1.0,
    "original_max_position_embeddings": 8192,
    "rope_type": "llama3",
}


def test_plain_positions():
    assert read("llama").rope == Rope(theta=500_000.0)
    assert read("llama", rope_scaling={"rope_type": "default"}).rope.scaling is None


def test_a_scaling_keeps_its_numbers():
    scaling = RopeScaling(
        kind="llama3",
        parameters={
            "factor": 8.0,
            "high_freq_factor": 4.0,
            "low_freq_factor": 1.0,
            "original_max_position_embeddings": 8192.0,
        },
    )
    assert read("llama", rope_scaling=LLAMA3).rope.scaling == scaling


def test_the_older_name_of_the_kind_is_read():
    assert read("llama", rope_scaling={"type": "linear", "factor": 2}).rope.scaling == RopeScaling(
        kind="linear", parameters={"factor": 2.0}
    )


def test_the_newer_section_is_read():
    section = {"rope_theta": 7e5, "rope_type": "default"}
    assert read("llama", without=["rope_theta", "rope_scaling"], rope_parameters=section).rope == Rope(theta=7e5)
    model = read("llama", without=["rope_theta"], rope_parameters={**LLAMA3, "rope_theta": 7e5})
    assert (model.rope.theta, model.rope.scaling.kind) == (7e5, "llama3")
    assert "rope_theta" not in model.rope.scaling.parameters


def test_partial_rotation_belongs_to_families_that_have_it():
    assert read("stablelm").rope.fraction == 0.25
    assert read("stablelm", without=["partial_rotary_factor"]).rope.fraction == 0.25
    assert read("phi3").rope.fraction == 1.0
    section = {"partial_rotary_factor": 0.5, "rope_theta": 1e4}
    assert read("phi3", rope_parameters=section).rope.fraction == 0.5


def test_gpt_neox_has_names_of_its_own():
    assert files.read("gpt-neox-20b").rope == Rope(theta=10_000.0, fraction=0.25)
    assert files.read("gpt-neox-20b", rotary_pct=0.5, rotary_emb_base=7e5).rope == Rope(theta=7e5, fraction=0.5)


def test_yarn_keeps_its_numbers():
    scaling = files.read("deepseek-v3").rope.scaling
    assert (scaling.kind, scaling.parameters["factor"], scaling.parameters["mscale_all_dim"]) == ("yarn", 40.0, 1.0)
    assert files.read("gpt-oss-120b").rope.scaling.parameters == {
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "factor": 32.0,
        "original_max_position_embeddings": 4096.0,
    }


def test_windowed_layers_of_gemma_3_turn_otherwise():
    def rope(**changes):
        return files.read_gemma_3(**changes).rope

    assert rope(without=["rope_theta"]) == Rope(theta=1e6, local_theta=1e4)
    assert rope(rope_theta=5e5, rope_local_base_freq=2e4) == Rope(theta=5e5, local_theta=2e4)
    linear = {"rope_type": "linear", "factor": 8.0}
    newer = {
        "full_attention": {"rope_theta": 1e6, **linear},
        "sliding_attention": {"rope_theta": 3e4, "rope_type": "default"},
    }
    scaling = RopeScaling(kind="linear", parameters={"factor": 8.0})
    assert rope(without=["rope_theta"], rope_parameters=newer) == Rope(theta=1e6, local_theta=3e4, scaling=scaling)
    assert rope(without=["rope_theta"], rope_scaling=linear) == Rope(theta=1e6, local_theta=1e4, scaling=scaling)


@pytest.mark.parametrize("field", ["factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"])
def test_a_scaling_without_a_parameter_is_an_error(field):
    section = {key: value for key, value in LLAMA3.items() if key != field}
    with pytest.raises(ModelError, match=rf"^config\.json: rope_scaling\.{field}: is missing"):
        read("llama", rope_scaling=section)


@pytest.mark.parametrize(
    ("section", "field"),
    [
        ({"rope_type": "linear", "factor": 0}, r"rope_scaling\.factor"),
        ({"rope_type": 3}, r"rope_scaling\.rope_type"),
        ({"full_attention": {"rope_type": "default"}}, r"rope_scaling\.full_attention"),
        ([], "rope_scaling"),
    ],
)
def test_a_malformed_section_is_named(section, field):
    with pytest.raises(ModelError, match=rf"^config\.json: {field}: "):
        read("llama", rope_scaling=section)
