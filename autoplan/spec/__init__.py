"""Frozen values that every room shares: model, cluster, workload, profile, configuration, estimate, plan."""

from autoplan.spec.cluster import Cluster, Derate, Device, Link, NodeGroup
from autoplan.spec.configuration import Configuration, CpMethod, Recompute, Schedule
from autoplan.spec.estimate import Estimate, Source, StageMemory
from autoplan.spec.model import (
    Attention,
    Block,
    LatentAttention,
    Mamba1,
    Mamba2,
    Mlp,
    ModelSpec,
    Moe,
    Norm,
    Rope,
    RopeScaling,
)
from autoplan.spec.plan import Plan, read_plan, seal
from autoplan.spec.problem import Problem
from autoplan.spec.profile import Profile
from autoplan.spec.stack import AUTOPLAN, Stack
from autoplan.spec.workload import OptimizerKind, PrecisionKind, Workload

__all__ = [
    "AUTOPLAN",
    "Attention",
    "Block",
    "Cluster",
    "Configuration",
    "CpMethod",
    "Derate",
    "Device",
    "Estimate",
    "LatentAttention",
    "Link",
    "Mamba1",
    "Mamba2",
    "Mlp",
    "ModelSpec",
    "Moe",
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
    "Stack",
    "StageMemory",
    "Workload",
    "read_plan",
    "seal",
]
