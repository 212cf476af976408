"""Mamba and Mamba-2 as transformers stores them: nothing but state-space mixers."""

from autoplan.readers.huggingface.fields import Fields
from autoplan.readers.huggingface.layers import read_num_layers
from autoplan.spec import Block, Mamba1, Mamba2, ModelSpec, Norm
from autoplan.spec.value import LARGEST_SIZE

UNBOUNDED = LARGEST_SIZE  # positions of a model that has no notion of them


def read_mamba(fields: Fields, name: str) -> ModelSpec:
    """Return the model of a mamba `config.json` (MambaConfig); raises ModelError that names the field."""
    fields.fixed("hidden_act", "silu")
    hidden_size = fields.count("hidden_size")
    mixer = Mamba1(
        inner_size=read_inner_size(fields, "expand", hidden_size=hidden_size),
        state_size=fields.count("state_size", 16),
        conv_kernel=fields.count("conv_kernel", 4),
        step_rank=read_step_rank(fields, "time_step_rank", hidden_size=hidden_size),
        conv_bias=fields.flag("use_conv_bias", default=True),
        projection_bias=fields.flag("use_bias", default=False),
    )
    return _model(fields, name, family="mamba", block=Block(mixer=mixer, feed_forward=None), tied=True)


def read_mamba2(fields: Fields, name: str) -> ModelSpec:
    """Return the model of a mamba2 `config.json` (Mamba2Config); raises ModelError that names the field."""
    fields.fixed("hidden_act", "silu")
    fields.get("time_step_rank")  # Mamba-2 has a step for each head
    num_heads, head_dim = fields.count("num_heads"), fields.count("head_dim", 64)
    inner_size = read_inner_size(fields, "expand", hidden_size=fields.count("hidden_size"))
    if num_heads * head_dim != inner_size:
        raise fields.problem("num_heads", f"{num_heads} of head_dim {head_dim} are not expand times hidden_size")
    mixer = Mamba2(
        num_heads=num_heads,
        head_dim=head_dim,
        state_size=fields.count("state_size", 128),
        num_groups=fields.count("n_groups", 8),
        conv_kernel=fields.count("conv_kernel", 4),
        chunk_size=fields.count("chunk_size", 256),
        conv_bias=fields.flag("use_conv_bias", default=True),
        projection_bias=fields.flag("use_bias", default=False),
    )
    return _model(fields, name, family="mamba2", block=Block(mixer=mixer, feed_forward=None), tied=False)


def read_inner_size(fields: Fields, name: str, *, hidden_size: int) -> int:
    """Return the width of the scanned input: hidden_size times the expansion, 2 where the file is silent."""
    return fields.product(name, fields.positive(name, 2), hidden_size)


def read_step_rank(fields: Fields, name: str, *, hidden_size: int) -> int:
    """Return the rank of the steps' projection; `auto` means hidden_size/16, rounded up."""
    if fields.get(name) in (None, "auto"):
        return -(-hidden_size // 16)
    return fields.count(name)


def _model(fields: Fields, name: str, *, family: str, block: Block, tied: bool) -> ModelSpec:
    return ModelSpec(
        name=name,
        family=family,
        vocab_size=fields.count("vocab_size"),
        hidden_size=fields.count("hidden_size"),
        max_positions=UNBOUNDED,
        positions="none",
        norm=Norm(kind="rmsnorm", eps=fields.positive("layer_norm_epsilon", 1e-5)),
        tied_embeddings=fields.flag("tie_word_embeddings", default=tied),
        blocks=(block,),
        layer_blocks=(0,) * read_num_layers(fields, "num_hidden_layers"),
    )
