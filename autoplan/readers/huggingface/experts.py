"""Mixtures of experts in `config.json` files, and which layers have one."""

from dataclasses import dataclass
from typing import Literal

from autoplan.readers.huggingface.fields import Fields
from autoplan.spec import Mlp, Moe
from autoplan.spec.model import Activation

Placement = Literal["every_layer", "sparse_step"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """Names and facts of a family's mixture of experts.

    `width`, `number` and `top_k` are keys (of the last two the synonyms that published files use). `bias` is of the
    experts and of the router. `shared_width` names the width of a gated shared expert, None where there is none.
    """

    width: str
    number: tuple[str, ...]
    top_k: tuple[str, ...] = ("num_experts_per_tok",)
    bias: bool = False
    shared_width: str | None = None
    placement: Placement = "every_layer"


def read_experts(fields: Fields, experts: Experts, *, activation: Activation) -> Moe:
    """Return the mixture of gated experts that one layer has; raises ModelError that names the field."""
    shared = experts.shared_width
    return make_moe(
        fields,
        num_experts=fields.count(fields.spelling(*experts.number)),
        top_k=fields.spelling(*experts.top_k),
        expert=Mlp(width=fields.count(experts.width), gated=True, activation=activation, bias=experts.bias),
        router_bias=experts.bias,
        shared=Mlp(width=fields.count(shared), gated=True, activation=activation) if shared else None,
        shared_gate=shared is not None,
    )


def make_moe(
    fields: Fields,
    *,
    num_experts: int,
    top_k: str,
    expert: Mlp,
    shared: Mlp | None = None,
    router: Literal["softmax", "sigmoid"] = "softmax",
    router_bias: bool = False,
    correction_bias: bool = False,
    shared_gate: bool = False,
    groups: tuple[int, int] = (1, 1),
) -> Moe:
    """Return a mixture whose field `top_k` may not exceed its experts; `groups` are all and the chosen ones."""
    visited = fields.count(top_k)
    if visited > num_experts:
        raise fields.problem(top_k, f"{visited} is more than the {num_experts} experts")
    return Moe(
        num_experts=num_experts,
        top_k=visited,
        expert=expert,
        shared=shared,
        router=router,
        router_bias=router_bias,
        correction_bias=correction_bias,
        shared_gate=shared_gate,
        num_groups=groups[0],
        top_groups=groups[1],
    )


def read_sparse_layers(fields: Fields, placement: Placement, *, num_layers: int) -> frozenset[int]:
    """Return the layers that have a mixture of experts.

    `sparse_step` (Qwen): every `decoder_sparse_step`-th layer but those of `mlp_only_layers`.
    """
    if placement == "every_layer":
        return frozenset(range(num_layers))
    step = fields.count("decoder_sparse_step", 1)
    dense = fields.layers("mlp_only_layers", num_layers=num_layers) or frozenset()
    return frozenset(range(step - 1, num_layers, step)) - dense
