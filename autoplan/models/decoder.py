"""A decoder, whole or a run of its layers."""

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from autoplan.errors import ModelError
from autoplan.models.block import DecoderBlock
from autoplan.models.norm import build_norm
from autoplan.models.rope import RopeTables, rope_tables
from autoplan.spec.buildable import dense_parts, require_buildable
from autoplan.spec.model import ModelSpec


class Embedding(nn.Module):
    """Token vectors, plus position vectors where the model learns them."""

    def __init__(self, model: ModelSpec, *, positions: bool) -> None:
        super().__init__()
        self.token = nn.Embedding(model.vocab_size, model.hidden_size)
        self.position = nn.Embedding(model.max_positions, model.hidden_size) if positions else None

    def forward(self, tokens: Tensor) -> Tensor:
        """Map tokens (b, s) to (b, s, h)."""
        hidden: Tensor = self.token(tokens)
        if self.position is not None:
            hidden = hidden + self.position(torch.arange(tokens.shape[1], device=tokens.device))
        return hidden


class TiedOutput(nn.Module):
    """An output projection without a weight of its own."""

    def forward(self, hidden: Tensor, weight: Tensor) -> Tensor:
        """Map (b, s, h) to logits (b, s, V) by the token table (V, h)."""
        return linear(hidden, weight)


class Head(nn.Module):
    """The final norm and the output projection."""

    def __init__(self, model: ModelSpec) -> None:
        super().__init__()
        self.norm = build_norm(model.norm, model.hidden_size)
        self.output = (
            TiedOutput() if model.tied_embeddings else nn.Linear(model.hidden_size, model.vocab_size, bias=False)
        )

    def forward(self, hidden: Tensor, tied_weight: Tensor | None) -> Tensor:
        """Map (b, s, h) to logits (b, s, V)."""
        hidden = self.norm(hidden)
        logits: Tensor = self.output(hidden) if tied_weight is None else self.output(hidden, tied_weight)
        return logits


class Decoder(nn.Module):
    """`layers` of the model with, where asked, the embedding before and the head after them.

    A part with a tied head but without the embedding holds the token table all the same, under its own name:
    `embeds` says whether the input is tokens.
    """

    def __init__(self, model: ModelSpec, *, layers: range, embedding: bool, head: bool) -> None:
        super().__init__()
        tied = head and model.tied_embeddings
        require_buildable(model)
        _require_one_head_dim(model)
        self.model = model
        self.embeds = embedding
        self.embedding = (
            Embedding(model, positions=embedding and model.positions == "learned") if embedding or tied else None
        )
        self.layers = nn.ModuleDict({str(i): DecoderBlock(model, model.block(i)) for i in layers})
        self.head = Head(model) if head else None

    def forward(self, inputs: Tensor, rope: RopeTables | None = None) -> Tensor:
        """Map tokens (b, s) or hidden (b, s, h) to hidden (b, s, h), or to logits (b, s, V) with the head.

        `rope` are the tables for all positions of a sequence; they are built for s positions when not given.
        """
        hidden = inputs if not self.embeds or self.embedding is None else self.embedding(inputs)
        if rope is None:
            rope = self.rope_tables(inputs.shape[1], hidden.device, hidden.dtype)
        for layer in self.layers.values():
            hidden = layer(hidden, rope)
        if self.head is None:
            return hidden
        tied_weight = None
        if self.model.tied_embeddings and self.embedding is not None:
            tied_weight = self.embedding.token.weight
        logits: Tensor = self.head(hidden, tied_weight)
        return logits

    def rope_tables(self, seq_len: int, device: torch.device, dtype: torch.dtype) -> RopeTables | None:
        """Return the tables of `seq_len` positions for activations of `dtype`; None for learned positions."""
        if self.model.rope is None:
            return None
        head_dim = dense_parts(self.model.blocks[0])[0].head_dim
        return rope_tables(self.model.rope, head_dim=head_dim, seq_len=seq_len, device=device, dtype=dtype)


def _require_one_head_dim(model: ModelSpec) -> None:
    head_dims = {dense_parts(block)[0].head_dim for block in model.blocks}
    if model.rope is not None and len(head_dims) > 1:
        message = f"blocks of head_dim {sorted(head_dims)} would each need rope tables of their own"
        raise ModelError(message, where="blocks")


def build_model(model: ModelSpec, *, layers: range | None = None, embedding: bool = True, head: bool = True) -> Decoder:
    """Build the model, or the part of it that has `layers` and, where asked, the embedding and the head.

    Parameter names and shapes are those of `autoplan.spec.tensors`. The part is built on torch's current
    default device, uninitialized; see `initialize`. Raises ModelError for a model that has what no module here does.
    """
    if layers is None:
        layers = range(model.num_layers)
    return Decoder(model, layers=layers, embedding=embedding, head=head)
