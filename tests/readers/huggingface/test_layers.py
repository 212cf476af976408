from autoplan.readers.huggingface.layers import merge
from autoplan.spec import Block, Mlp


def block(width):
    return Block(mixer=None, feed_forward=Mlp(width=width, gated=False, activation="relu"))


def test_alike_layers_are_one_block_in_order_of_appearance():
    assert merge([block(3), block(1), block(3), block(2), block(1)]) == (
        (block(3), block(1), block(2)),
        (0, 1, 0, 2, 1),
    )
