"""Nodes that are dead or slow, as options and cluster files name them.

A derating is written as shares of the nominal speed: ``0.8`` of computing, or ``compute:0.8,links:0.5``.
"""

import re
from collections.abc import Sequence
from typing import Any

from autoplan.errors import ClusterError
from autoplan.spec import Cluster, Derate
from autoplan.spec.codec import from_jsonable
from autoplan.spec.nodes import derated, without_nodes

_ASPECTS = ("compute", "links")
_NODE = re.compile(r"\d{1,9}", re.ASCII)
_SHARE = re.compile(r"\d*\.?\d+(e-?\d+)?", re.ASCII)


def change_nodes(cluster: Cluster, *, exclude: Sequence[int] = (), derate: Sequence[str] = ()) -> Cluster:
    """Return the cluster without the nodes of ``--exclude-node`` and with those of ``--derate`` slower.

    All nodes are numbered as in `cluster`. Raises ClusterError that names the flag.
    """
    slow = derated(cluster, parse_derates(derate), where="--derate")
    return without_nodes(slow, exclude, where="--exclude-node")


def parse_derates(items: Sequence[str], *, flag: str = "--derate") -> dict[int, Derate]:
    """Read ``NODE=SHARE`` or ``NODE=compute:SHARE,links:SHARE``; raises ClusterError that names the flag."""
    nodes: dict[int, Derate] = {}
    for item in items:
        where = f"{flag} {item}"
        number, _, text = (part.strip() for part in item.partition("="))
        if not _NODE.fullmatch(number):
            raise ClusterError("not NODE=SHARE, such as 5=0.8", where=where)
        if int(number) in nodes:
            raise ClusterError(f"node {int(number)} is derated twice", where=where)
        nodes[int(number)] = parse_derate(text, where=where)
    return nodes


def parse_derate(text: str, *, where: str) -> Derate:
    """Read ``SHARE`` of computing, or shares by name: ``compute:0.8,links:0.5``; raises ClusterError with `where`."""
    shares: dict[str, float] = {}
    for part in text.split(","):
        name, colon, number = part.rpartition(":")
        name = name.strip() if colon else "compute"
        if name not in _ASPECTS:
            raise ClusterError(f"{name!r} is not a share: it is of {' or '.join(_ASPECTS)}", where=where)
        if name in shares:
            raise ClusterError(f"the share of {name} comes twice in {text!r}", where=where)
        shares[name] = _share(number.strip(), where=where)
    return Derate(**shares)


def apply_node_keys(cluster: Cluster, *, exclude: Any, derate: Any, where: str) -> Cluster:
    """Return the cluster with what ``exclude_nodes`` and ``derate_nodes`` of its file say; raises ClusterError."""
    if not isinstance(exclude, list) or any(type(node) is not int for node in exclude):
        raise ClusterError("must be a list of node numbers", where=f"{where}: exclude_nodes")
    if not isinstance(derate, dict) or not all(_NODE.fullmatch(node) for node in derate):
        raise ClusterError('must be an object such as {"5": {"compute": 0.8}}', where=f"{where}: derate_nodes")
    shares = {
        int(node): from_jsonable(Derate, one, where=f"{where}: derate_nodes.{node}", error=ClusterError)
        for node, one in derate.items()
    }
    slow = derated(cluster, shares, where=f"{where}: derate_nodes")
    return without_nodes(slow, exclude, where=f"{where}: exclude_nodes")


def _share(text: str, *, where: str) -> float:
    share = float(text) if _SHARE.fullmatch(text) else 0.0
    if not 0 < share <= 1:
        raise ClusterError(f"{text!r} is no share: a number above 0, at most 1", where=where)
    return share
