"""Seconds of collectives: ring formulas with latency, within a node and across nodes (nccl-tests, PERFORMANCE.md).

S is the whole logical buffer in bytes (for all_to_all what one rank holds), n the ranks of the group, α a
link's latency and B its bytes per second in each direction. Everything is arrays or scalars alike.
"""

from typing import Any, Literal

import numpy as np

CollectiveOp = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv"]


def steps(op: CollectiveOp, num_ranks: Any) -> Any:
    """Return how many messages follow each other: n−1, twice that for all_reduce, 1 for send_recv."""
    if op == "send_recv":
        return np.minimum(num_ranks - 1, 1)
    return (2 if op == "all_reduce" else 1) * (num_ranks - 1)


def wire_bytes(op: CollectiveOp, num_ranks: Any, num_bytes: Any) -> Any:
    """Return the bytes that one rank sends: (n−1)/n·S, twice that for all_reduce, S for send_recv."""
    if op == "send_recv":
        return np.where(np.asarray(num_ranks) > 1, num_bytes, 0.0)
    return (2 if op == "all_reduce" else 1) * (num_ranks - 1) / num_ranks * num_bytes


def ring_seconds(op: CollectiveOp, num_ranks: Any, num_bytes: Any, *, latency: Any, bandwidth: Any) -> Any:
    """Return ``steps·α + wire_bytes/B``: a ring over one kind of link."""
    return steps(op, num_ranks) * latency + wire_bytes(op, num_ranks, num_bytes) / bandwidth


def two_level_seconds(
    op: CollectiveOp,
    local: Any,
    nodes: Any,
    num_bytes: Any,
    *,
    intra: tuple[Any, Any],
    inter: tuple[Any, Any],
) -> Any:
    """Return the time over `nodes` nodes with `local` ranks of the group in each; links are (α, B).

    Latencies of both levels follow each other. Bytes move on both at once, as NCCL's rings do: each rank's own
    share of the network carries what its node must send, 1/local of a ring's bytes (all of it for all_to_all and
    send_recv), while the links inside the node carry the ring of all ranks. With one node, or with one rank a
    node, this is `ring_seconds`.
    """
    ranks = local * nodes
    shared = 1 if op in {"all_to_all", "send_recv"} else local
    across = wire_bytes(op, nodes, num_bytes / shared) / inter[1]
    if op == "send_recv":
        return np.where(
            nodes > 1, inter[0] + across, ring_seconds(op, local, num_bytes, latency=intra[0], bandwidth=intra[1])
        )
    within = np.where(local > 1, wire_bytes(op, ranks, num_bytes) / intra[1], 0.0)
    return steps(op, local) * intra[0] + steps(op, nodes) * inter[0] + np.maximum(within, across)
