"""Mamba models in the format of the state-spaces repository, which has no `model_type`.

Defaults: mamba_ssm's MambaConfig, and the arguments of its Mamba and Mamba2 modules, which `ssm_cfg` overrides.
"""

from autoplan.readers.huggingface.fields import Fields
from autoplan.readers.huggingface.layers import read_num_layers
from autoplan.readers.huggingface.mamba import UNBOUNDED, read_inner_size, read_step_rank
from autoplan.spec import Block, Mamba1, Mamba2, Mlp, ModelSpec, Norm

_LAYERS = ("Mamba1", "Mamba2")
_MLP_MULTIPLE = 128  # GatedMLP rounds its width up to it


def read_state_spaces(fields: Fields, name: str) -> ModelSpec:
    """Return the model of a state-spaces `config.json`; raises ModelError that names the field.

    The vocabulary is rounded up to `pad_vocab_size_multiple`, as it is in the weights.
    """
    fields.fixed("attn_layer_idx", [])
    fields.mapping("attn_cfg")
    hidden_size, vocab_size = fields.count("d_model"), fields.count("vocab_size")
    multiple = fields.count("pad_vocab_size_multiple", 8)
    mixer = _read_mixer(fields.section("ssm_cfg"), hidden_size=hidden_size)
    rms = fields.flag("rms_norm", default=True)
    return ModelSpec(
        name=name,
        family="mamba2" if isinstance(mixer, Mamba2) else "mamba",
        vocab_size=fields.product("vocab_size", multiple, -(-vocab_size // multiple)),
        hidden_size=hidden_size,
        max_positions=UNBOUNDED,
        positions="none",
        norm=Norm(kind="rmsnorm" if rms else "layernorm", eps=1e-5, bias=not rms),
        tied_embeddings=fields.flag("tie_embeddings", default=True),
        blocks=(Block(mixer=mixer, feed_forward=_read_mlp(fields)),),
        layer_blocks=(0,) * read_num_layers(fields, "n_layer"),
    )


def _read_mixer(section: Fields, *, hidden_size: int) -> Mamba1 | Mamba2:
    layer = section.text("layer", _LAYERS[0])
    if layer not in _LAYERS:
        raise section.problem("layer", f"unknown layer {layer!r}; known: {', '.join(_LAYERS)}")
    inner_size = read_inner_size(section, "expand", hidden_size=hidden_size)
    if layer == "Mamba2":
        return _read_mamba2(section, inner_size=inner_size)
    return Mamba1(
        inner_size=inner_size,
        state_size=section.count("d_state", 16),
        conv_kernel=section.count("d_conv", 4),
        step_rank=read_step_rank(section, "dt_rank", hidden_size=hidden_size),
        conv_bias=section.flag("conv_bias", default=True),
        projection_bias=section.flag("bias", default=False),
    )


def _read_mamba2(section: Fields, *, inner_size: int) -> Mamba2:
    for key, value in (("d_ssm", None), ("D_has_hdim", False), ("rmsnorm", True), ("norm_before_gate", False)):
        section.fixed(key, value)
    head_dim = section.count("headdim", 64)
    if inner_size % head_dim:
        raise section.problem("headdim", f"{head_dim} does not divide expand times d_model, {inner_size}")
    return Mamba2(
        num_heads=inner_size // head_dim,
        head_dim=head_dim,
        state_size=section.count("d_state", 128),
        num_groups=section.count("ngroups", 1),
        conv_kernel=section.count("d_conv", 4),
        chunk_size=section.count("chunk_size", 256),
        conv_bias=section.flag("conv_bias", default=True),
        projection_bias=section.flag("bias", default=False),
    )


def _read_mlp(fields: Fields) -> Mlp | None:
    width = fields.whole("d_intermediate", 0)
    if not width:
        return None
    padded = fields.product("d_intermediate", _MLP_MULTIPLE, -(-width // _MLP_MULTIPLE))
    return Mlp(width=padded, gated=True, activation="silu")
