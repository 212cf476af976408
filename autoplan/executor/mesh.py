"""Where a rank stands: the device mesh of a plan, and this rank's device."""

import os
from dataclasses import dataclass
from math import prod

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from autoplan.errors import PlanError
from autoplan.spec.plan import MeshAxis, Plan


@dataclass(frozen=True, slots=True)
class Layout:
    """The mesh with all its axes, those of size 1 too, and the device of this rank."""

    mesh: DeviceMesh
    device: torch.device

    def size(self, axis: MeshAxis) -> int:
        """Return the number of ranks along `axis`."""
        return self.mesh[axis].size()

    def coordinate(self, axis: MeshAxis) -> int:
        """Return where this rank stands along `axis`."""
        return self.mesh[axis].get_local_rank()

    @property
    def data_ranks(self) -> int:
        """The number of parts that the global batch is cut into: dp_replicate · dp_shard."""
        return self.size("dp_replicate") * self.size("dp_shard")

    @property
    def data_rank(self) -> int:
        """The part of the global batch that this rank reads."""
        return self.coordinate("dp_replicate") * self.size("dp_shard") + self.coordinate("dp_shard")


def choose_device(plan: Plan) -> torch.device:
    """Return this rank's device of the plan's cluster: the CPU, or the CUDA device of its local rank."""
    if plan.cluster.device_kind == "cpu":
        return torch.device("cpu")
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))


def build_layout(plan: Plan) -> Layout:
    """Build the plan's mesh in the initialized default group; raises PlanError when the ranks are not as many."""
    needed, started = prod(plan.mesh.sizes), dist.get_world_size()
    if needed != started:
        raise PlanError(f"the plan is for {needed} ranks, {started} were started", where="mesh.sizes")
    device = choose_device(plan)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    mesh = init_device_mesh(device.type, plan.mesh.sizes, mesh_dim_names=plan.mesh.axes)
    return Layout(mesh=mesh, device=device)
