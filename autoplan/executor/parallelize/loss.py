"""Mean next-token cross entropy, over whole or vocabulary-sharded logits."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import loss_parallel
from torch.nn.functional import cross_entropy


def next_token_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the mean over tokens of logits (b, s, V) against targets (b, s), a scalar in at least fp32."""
    logits = logits.flatten(0, 1).to(torch.promote_types(logits.dtype, torch.float32))
    loss = cross_entropy(logits, targets.flatten())
    return loss.to_local() if isinstance(loss, DTensor) else loss


def loss_context(tp: int) -> AbstractContextManager[None]:
    """Return the context in which forward and backward of the loss run when `tp` ranks share the vocabulary."""
    return loss_parallel() if tp > 1 else nullcontext()
