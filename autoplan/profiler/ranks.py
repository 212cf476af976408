"""The ranks that measure together: who they are, how they wait for each other and what they agree on."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal, TypeVar

import torch
import torch.distributed as dist

from autoplan.errors import RunError

T = TypeVar("T")

_TIMEOUT = timedelta(minutes=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One rank's place: ranks are numbered node by node, `ranks_per_node` on each."""

    rank: int
    num_ranks: int
    ranks_per_node: int

    @property
    def local_rank(self) -> int:
        """The number of this rank within its node."""
        return self.rank % self.ranks_per_node

    @property
    def num_nodes(self) -> int:
        """The number of nodes."""
        return self.num_ranks // self.ranks_per_node


def under_torchrun(environment: Mapping[str, str] = os.environ) -> bool:
    """Say whether this process was started as a rank by torchrun or by something that sets the same variables."""
    return {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"} <= environment.keys()


def place_from_environment(environment: Mapping[str, str] = os.environ) -> Place:
    """Read this rank's place from torchrun's variables; raises RunError where nodes cannot be alike."""
    num_ranks = int(environment["WORLD_SIZE"])
    ranks_per_node = int(environment.get("LOCAL_WORLD_SIZE", num_ranks))
    if num_ranks % ranks_per_node:
        raise RunError(
            f"{num_ranks} ranks are not a multiple of {ranks_per_node} on this node: "
            "start the same number of ranks on every node (torchrun --nproc-per-node)"
        )
    return Place(rank=int(environment["RANK"]), num_ranks=num_ranks, ranks_per_node=ranks_per_node)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """An initialized process group, seen by one rank that owns `device`.

    Control messages travel over gloo whatever the device is, so a barrier never waits for a CUDA stream.
    """

    place: Place
    device: torch.device

    @property
    def kind(self) -> Literal["cpu", "cuda"]:
        """The kind of device that is measured."""
        return "cuda" if self.device.type == "cuda" else "cpu"

    def barrier(self) -> None:
        """Wait until every rank is here."""
        dist.all_reduce(torch.zeros(1))

    def gather(self, value: T) -> list[T]:
        """Return every rank's `value`, in rank order, on every rank."""
        values: list[T | None] = [None] * self.place.num_ranks
        dist.all_gather_object(values, value)
        return values  # type: ignore[return-value]

    def slowest(self, seconds: Sequence[float]) -> list[float]:
        """Return for each position the largest value of any rank: the step waits for its slowest rank."""
        return [max(column) for column in zip(*self.gather(list(seconds)), strict=True)]

    def synchronize(self) -> None:
        """Wait until this rank's device has done what was asked of it."""
        if self.kind == "cuda":
            torch.cuda.synchronize(self.device)


@contextmanager
def join_ranks(place: Place, *, kind: Literal["cpu", "cuda"], init_method: str, num_threads: int) -> Iterator[Ranks]:
    """Initialize the process group and this rank's device; both are given up at the end.

    `init_method` is a URL of torch.distributed: ``env://`` or ``file://…``.
    """
    torch.set_num_threads(num_threads)
    device = torch.device("cpu")
    if kind == "cuda":
        device = torch.device("cuda", place.local_rank)
        torch.cuda.set_device(device)
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if kind == "cuda" else "gloo",
        init_method=init_method,
        rank=place.rank,
        world_size=place.num_ranks,
        timeout=_TIMEOUT,
    )
    try:
        yield Ranks(place=place, device=device)
    finally:
        dist.destroy_process_group()
