"""What the user asked: a model, a cluster, a workload, and a profile where one was measured."""

from autoplan.spec.cluster import Cluster
from autoplan.spec.model import ModelSpec
from autoplan.spec.profile import Profile
from autoplan.spec.value import value
from autoplan.spec.workload import Workload


@value
class Problem:
    """The input of every estimate and search."""

    model: ModelSpec
    cluster: Cluster
    workload: Workload
    profile: Profile | None = None
