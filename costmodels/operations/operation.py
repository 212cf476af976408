"""What a layer does, operation by operation: every cost and every byte held is a sum over these.

All figures are of one micro-batch on one rank; arrays have one element a configuration, and scalars stand for all.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from costmodels.collective import CollectiveOp

Tag = Literal["product", "norms", "pointwise", "core_attention", "up_projections", "feed_forward", "fused"]
Axis = Literal["tp", "cp", "ep", "etp"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """`count` matrix products (m, k) x (k, n) with a weight of (k, n).

    Forward is one product each, backward two: (m, n) x (n, k) for the input's gradient, (k, m) x (m, n) for the
    weight's, in `launches` kernels each. `low` ones run in the workload's 8- or 4-bit precision where it has one;
    `grouped` ones are those of experts, of sizes that vary; `weight` is false where the second factor is an activation
    too.
    """

    m: Any
    k: Any
    n: Any
    count: Any = 1
    launches: Any = 1
    low: bool = True
    grouped: bool = False
    weight: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Core:
    """The scores of attention and their use.

    `flops` are those of the forward, both products, over the pairs that the kernel visits; `seq_len` is the length of
    the keys that a query may see and `head_dim` the width of a head, which decide how well the kernel does.
    """

    flops: Any
    seq_len: Any
    head_dim: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """One collective over `axis` on a buffer of S = `num_bytes`; 0 bytes is no collective.

    `copies` is how many experts every token goes to, where that is what is sent and the router bounds the nodes that
    these are on.
    """

    axis: Axis
    op: CollectiveOp
    num_bytes: Any
    copies: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One step of a layer.

    `forward_bytes` and `backward_bytes` are read and written between products; `forward_kernels` and
    `backward_kernels` are launches besides those of products; the sizes of a `routed` one are known only once tokens
    are, so that no CUDA graph holds it. `saved` bytes of its output stay until the backward, unless `tag` is among what
    recompute repeats; where it repeats every second product instead, `alternate` bytes of output stay, needed or not.
    `forward_transfers` and `backward_transfers` are collectives; a forward's are repeated with it.
    """

    name: str
    tag: Tag
    products: tuple[Product, ...] = ()
    core: Core | None = None
    forward_bytes: Any = 0.0
    backward_bytes: Any = 0.0
    forward_kernels: Any = 0.0
    backward_kernels: Any = 0.0
    routed: bool = False
    saved: Any = 0.0
    alternate: Any = 0.0
    forward_transfers: tuple[Transfer, ...] = ()
    backward_transfers: tuple[Transfer, ...] = ()


def product(name: str, *products: Product, saved: Any = 0.0, alternate: Any = 0.0, tag: Tag = "product") -> Operation:
    """Return the operation of linear layers that share an input, with the bytes of output that backward needs."""
    return Operation(name=name, tag=tag, products=products, saved=saved, alternate=alternate)


def total_saved(operations: Iterable[Operation], redone: frozenset[str] = frozenset()) -> Any:
    """Return the bytes that operations leave until backward when those tagged with `redone` are repeated there.

    Where every second product is repeated, all that is not a product is too, but for attention's scores.
    """
    if "alternate_products" in redone:
        return sum((op.alternate for op in operations), 0.0)
    return sum((op.saved for op in operations if op.tag not in redone), 0.0)
