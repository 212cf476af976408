"""Keys that a family's class does not read, although they look as if they changed the model.

`model_type` decides: the class of that family ignores such a key too, so the model is the one we read. But a
file that names experts in a dense family is more likely mislabelled than verbose, hence a warning. A key that
the class does read, with a value that a model spec cannot express, is an error where it is read.
"""

import re
from typing import Any

from autoplan.readers.huggingface.fields import Fields
from autoplan.readers.notices import notice

_STRUCTURAL = re.compile(
    r"expert|(^|_)moe(_|$)|sparse_step|mlp_only_layers|capacity_factor"  # mixture of experts
    r"|lora_rank|qk_(nope|rope)|v_head_dim"  # latent attention
    r"|ssm|mamba|conv_kernel|d_conv|state_size|time_step_rank"  # state spaces
    r"|layer_types|_pattern|layers_block_type|window|chunk_size$|no_rope"  # layers that differ
    r"|softcap|multiplier$|logits?_scal|query_pre_attn_scalar"  # scaled or capped values
    r"|alibi|rotary|mrope|parallel_(attn|residual|block)|cross_attention"
    r"|(qk|q|k)_(norm|layernorm|ln)|(^|_)bias$|norm_type"
    r"|num_(\w+_)?(heads|layers)$|head_dim$|hidden_size|intermediate_size|n_inner|d_model|d_ff|ffn|expansion_ratio"
    r"|^(text|vision|attn|audio|llm)_config$"
)
_HARMLESS = re.compile(r"loss|jitter|overlap$|kernels?$|dtype$")  # how it is trained or computed
_FULL = "full_attention"
# Families whose files name the class of another one.
_CLASSES = {"kimi_k2": "deepseekv3", "gemma3_text": "gemma3", "llama4_text": "llama4"}


def warn_about_unread(fields: Fields, *, model_type: str) -> None:
    """Warn once (ReaderWarning) about all unread keys that look structural and are switched on."""
    keys = sorted(key for key, value in fields.unread().items() if _is_structural(key) and _is_on(value))
    if keys:
        named = ", ".join(keys)
        notice(
            f"looks structural, but a {model_type} model does not have it, so it is left out: {named}",
            where=fields.where,
        )
    named_for = fields.unread().get("architectures")
    if isinstance(named_for, list) and named_for and not any(_belongs(item, model_type) for item in named_for):
        notice(
            f"architectures: {named_for} is not of model_type {model_type!r}, which is what is read", where=fields.where
        )


def _is_structural(key: str) -> bool:
    own = key.rpartition(".")[2]
    return bool(_STRUCTURAL.search(own)) and not _HARMLESS.search(own)


def _is_on(value: Any) -> bool:
    if isinstance(value, list):
        return any(item != _FULL for item in value)
    return value not in (None, False, 0, 1.0, "", {}) or value is True


def _belongs(architecture: Any, model_type: str) -> bool:
    if not isinstance(architecture, str):
        return False
    names = (model_type.replace("_", ""), _CLASSES.get(model_type, model_type))
    return architecture.lower().startswith(names)
