"""From a parallelized decoder on the meta device to this rank's part of the initial weights."""

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor.placement_types import _StridedShard

from autoplan.models import Decoder, initial_value


@torch.no_grad()
def materialize(decoder: Decoder, *, seed: int, device: torch.device) -> None:
    """Allocate this rank's shards on `device` and fill them; the whole weights are the same in every layout.

    One whole parameter at a time is held on the CPU.
    """
    decoder.to_empty(device=device)
    for name, parameter in decoder.named_parameters():
        whole = initial_value(name, tuple(parameter.shape), seed=seed)
        if isinstance(parameter, DTensor):
            parameter.to_local().copy_(_local_part(whole, parameter))
        else:
            parameter.copy_(whole)


def _local_part(whole: Tensor, parameter: DTensor) -> Tensor:
    """Cut `whole` as `parameter` is: tensor parallelism, the innermost axis, cuts first."""
    mesh, part = parameter.device_mesh, whole
    for axis in reversed(range(mesh.ndim)):
        placement = parameter.placements[axis]
        if isinstance(placement, (Shard, _StridedShard)):
            part = _chunk(part, dim=placement.dim, num_chunks=mesh.size(axis), index=mesh.get_local_rank(axis))
    return part


def _chunk(tensor: Tensor, *, dim: int, num_chunks: int, index: int) -> Tensor:
    """Return chunk `index` of rows of ceil(n / num_chunks), the last ones shorter or empty, as DTensor cuts."""
    rows = tensor.shape[dim]
    size = -(-rows // num_chunks)
    start = min(index * size, rows)
    return tensor.narrow(dim, start, min(size, rows - start))
