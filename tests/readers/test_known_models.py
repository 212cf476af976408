from dataclasses import replace

import pytest

from autoplan.readers.known_models import with_known_layers
from autoplan.readers.models import load_model
from autoplan.spec import Attention, Mlp, Moe
from tests.tiny_models import llama_like


def bare(name):
    """A preset without what no table of sizes tells."""
    model = load_model(name)

    def stripped(block):
        mixer, ffn = block.mixer, block.feed_forward
        if isinstance(mixer, Attention):
            mixer = replace(mixer, qkv_bias=False, output_bias=False, qk_norm="none")
        if isinstance(ffn, Moe):
            expert = replace(ffn.expert, bias=False)
            ffn = replace(ffn, expert=expert, router_bias=False, correction_bias=False, num_groups=1, top_groups=1)
        if isinstance(ffn, Mlp):
            ffn = replace(ffn, bias=False)
        return replace(block, mixer=mixer, feed_forward=ffn)

    return replace(model, name="published", vocab_size=1000, blocks=tuple(map(stripped, model.blocks)), mtp=())


@pytest.mark.parametrize("name", ["gpt-oss-120b", "qwen3-30b-a3b", "deepseek-v3"])
def test_what_sizes_leave_open_is_that_of_the_architecture_with_these_sizes(name):
    said = []
    found, known = with_known_layers(bare(name), said), load_model(name)
    assert (found.blocks, found.layer_blocks, found.norm) == (known.blocks, known.layer_blocks, known.norm)
    assert (found.name, found.vocab_size, found.mtp) == ("published", 1000, ())
    assert said == [f"layers of {name}, which has these sizes"]


def test_one_layer_fewer_is_another_model():
    model = bare("gpt-oss-120b")
    shorter = replace(model, layer_blocks=model.layer_blocks[:-1])
    said = []
    assert with_known_layers(shorter, said) == shorter
    assert with_known_layers(llama_like(), said) == llama_like()
    assert said == []
