"""What the user asked: a model, a cluster, a workload, the software, and a profile where one was measured."""

from typing import Any

from autoplan.spec.cluster import Cluster, NodeOrder
from autoplan.spec.model import ModelSpec
from autoplan.spec.profile import Profile
from autoplan.spec.stack import AUTOPLAN, Stack
from autoplan.spec.value import value
from autoplan.spec.workload import Workload


@value
class Problem:
    """The input of every estimate and search.

    Ranks fill the groups of the cluster in their order. Where that is not the order in which the cluster was given,
    `node_order` says which of its nodes each group has (`autoplan.spec.arrangement`).
    """

    model: ModelSpec
    cluster: Cluster
    workload: Workload
    profile: Profile | None = None
    stack: Stack = AUTOPLAN
    node_order: NodeOrder | None = None


def num_microbatches(problem: Problem, configurations: Any) -> Any:
    """Return micro-batches per step and data-parallel rank, for one configuration or arrays of them.

    Where shares are uneven it is their mean, rounded up.
    """
    c = configurations
    return -(-problem.workload.global_batch // (c.dp_replicate * c.dp_shard * c.micro_batch))
