"""Frozen values that every room shares: model, cluster, workload, profile, configuration, estimate, plan."""

from autoplan.spec.cluster import Cluster, Device, Link, NodeGroup
from autoplan.spec.configuration import Configuration, Recompute, Schedule
from autoplan.spec.estimate import Estimate, Source, StageMemory
from autoplan.spec.model import Attention, Block, Mlp, ModelSpec, Norm, Rope, RopeScaling
from autoplan.spec.plan import Plan, read_plan, seal
from autoplan.spec.problem import Problem
from autoplan.spec.profile import Profile
from autoplan.spec.workload import OptimizerKind, PrecisionKind, Workload

__all__ = [
    "Attention",
    "Block",
    "Cluster",
    "Configuration",
    "Device",
    "Estimate",
    "Link",
    "Mlp",
    "ModelSpec",
    "NodeGroup",
    "Norm",
    "OptimizerKind",
    "Plan",
    "PrecisionKind",
    "Problem",
    "Profile",
    "Recompute",
    "Rope",
    "RopeScaling",
    "Schedule",
    "Source",
    "StageMemory",
    "Workload",
    "read_plan",
    "seal",
]
