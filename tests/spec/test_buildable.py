import pytest

from autoplan.errors import ModelError
from autoplan.spec.buildable import dense_parts, require_buildable
from tests.tiny_models import gpt2_like, hybrid_like, latent_like, llama_like, moe_like, with_parts


@pytest.mark.parametrize("model", [llama_like(), llama_like(qk_norm="head", sliding_window=8), gpt2_like()])
def test_dense_families_are_built(model):
    require_buildable(model)
    assert dense_parts(model.blocks[0]) == (model.blocks[0].mixer, model.blocks[0].feed_forward)


@pytest.mark.parametrize(
    ("block", "sentence"),
    [
        (moe_like().blocks[0], "blocks: feed-forward moe: not in the models"),
        (latent_like().blocks[1], "blocks: mixer latent_attention; feed-forward moe: not in the models"),
        (hybrid_like().blocks[0], "blocks: mixer mamba2; layers without a feed-forward: not in the models"),
        (hybrid_like().blocks[1], "blocks: layers without a mixer: not in the models"),
    ],
)
def test_other_parts_are_refused_by_name(block, sentence):
    with pytest.raises(ModelError) as failure:
        dense_parts(block)
    assert str(failure.value) == sentence


def test_all_that_is_lacking_is_said_once():
    model = with_parts(llama_like(), mixer={"sinks": True, "softmax_scale": 0.5}, block={"norms": "both"})
    with pytest.raises(ModelError) as failure:
        require_buildable(model)
    assert (
        str(failure.value) == "model: norms both, attention sinks True, attention softmax_scale 0.5: not in the models"
    )
