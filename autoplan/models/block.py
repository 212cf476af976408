"""One layer."""

from torch import Tensor, nn

from autoplan.models.attention import Attention
from autoplan.models.mlp import Mlp
from autoplan.models.norm import build_norm
from autoplan.models.rope import RopeTables
from autoplan.spec.buildable import dense_parts
from autoplan.spec.model import Block, ModelSpec


class DecoderBlock(nn.Module):
    """x + mixer(norm(x)), then x + feed_forward(norm(x)).

    What one of t tensor-parallel ranks computes is the block with 1/t of the heads and of the width.
    """

    def __init__(self, model: ModelSpec, block: Block) -> None:
        super().__init__()
        mixer, feed_forward = dense_parts(block)
        self.mixer_norm = build_norm(model.norm, model.hidden_size)
        self.mixer = Attention(model, mixer)
        self.feed_forward_norm = build_norm(model.norm, model.hidden_size)
        self.feed_forward = Mlp(model, feed_forward)

    def forward(self, hidden: Tensor, rope: RopeTables | None) -> Tensor:
        """Map (b, s, h) to (b, s, h); `rope` are the tables of all s positions, None for learned positions."""
        hidden = hidden + self.mixer(self.mixer_norm(hidden), rope)
        output: Tensor = hidden + self.feed_forward(self.feed_forward_norm(hidden))
        return output
