"""Bytes that autograd keeps between a forward and its backward."""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor


def saved_bytes(forward: Callable[[], Tensor], *, excluded: Iterable[Tensor]) -> int:
    """Run `forward` and return the bytes of the distinct storages that its graph keeps.

    A storage counts once and whole, however many views of it are saved. `excluded` are tensors that live
    anyway: parameters, buffers and what other layers share.
    """
    known = {tensor.untyped_storage().data_ptr() for tensor in excluded}
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    # The result holds the graph, so that no storage is freed and its address given to another.
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = forward()
    assert result.requires_grad
    return sum(kept.values())
