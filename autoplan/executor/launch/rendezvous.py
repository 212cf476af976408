"""Joining the process group, also after torchrun has restarted the workers."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Literal

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from autoplan.executor.launch.failure import RESTART_COUNT


@contextmanager
def process_group(kind: Literal["cuda", "cpu"], *, timeout_seconds: float) -> Iterator[torch.device]:
    """Join the group that torchrun describes in the environment, and leave it when all went well.

    torchrun keeps its store over restarts, and with it the keys of the dead attempt, which new workers would
    take for their own; so each attempt has a prefix. After an error the group is not left in order, since peers
    may be gone: the process is about to end and its sockets with it.
    """
    timeout = timedelta(seconds=timeout_seconds)
    store, rank, world_size = next(rendezvous("env://", timeout=timeout))
    attempt = PrefixStore(f"attempt-{os.environ.get(RESTART_COUNT, '0')}", store)
    device = torch.device("cpu")
    if kind == "cuda":
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    backend = "cpu:gloo,cuda:nccl" if kind == "cuda" else "gloo"
    dist.init_process_group(backend, store=attempt, rank=rank, world_size=world_size, timeout=timeout)
    yield device
    dist.destroy_process_group()
