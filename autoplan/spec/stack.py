"""The software that trains: what differs between frameworks, as a few physical facts."""

from typing import Literal

from autoplan.spec.value import Name, NonNegative, NonNegativeFloat, value

AttentionKernel = Literal["flash1", "flash2", "flash3", "cudnn", "fused_softmax", "unfused"]
Pointwise = Literal["eager", "fused", "compiled"]
Redone = Literal["norms", "pointwise", "core_attention", "up_projections", "feed_forward", "alternate_products"]
DataParallel = Literal["ddp", "fsdp", "fsdp2"]


@value
class Stack:
    """A training framework.

    `attention` is its kernel (fused_softmax: scores are kept, mask and softmax are one kernel; unfused: each its own;
    None: the fastest that the device has), `windowed` whether it skips what a sliding window hides. `pointwise` says
    whether activations, residual sums, rotary positions and dropout are single kernels (eager), joined by hand (fused)
    or by a compiler (compiled); `fused_norms` whether a normalization is one kernel. `dropout` keeps masks. The host
    needs `host_seconds` for one kernel launch, and none inside a CUDA graph (`cuda_graph`: all that is of fixed size is
    in one). `grouped_kernel` says that a product of all experts is one kernel, otherwise one for each expert. With
    sequence parallelism, `regathers` keeps a rank's own part of a product's input and gathers it again for the weight's
    gradient. With `joint_qkv`, values are a view of the product that gives queries and keys too, which stays whole
    beside these, rotated. `offloaded_layers` keep their activations in the host's memory. `scatters_sends` cuts
    what pipeline stages send over tensor-parallel ranks; `preallocates` allocates what a stage receives for all
    micro-batches at once. `scatters_gradients` says that ZeRO-1 and 2 reduce to each rank its own part, otherwise all
    ranks get all sums.

    Bytes per parameter: of the weights that compute reads at rest (`weight_bytes`), of a separate fp32 master
    (`master_bytes`, 0 when there is none), of accumulated gradients (`gradient_bytes`; with `fused_accumulation` the
    product that computes a gradient adds it up), of both moments (`moment_bytes`); `reduce_bytes` is what a gradient
    has on the wire, `clip_bytes` what clipping by the global norm reads and writes. `data_parallel` says who shards:
    ddp keeps buckets for the whole model, fsdp and fsdp2 gather unit by unit.

    An `overlap_` flag says that the axis's communication runs beside compute; `overlap_gather` that of gathering
    weights once a step, which else waits for the optimizer and holds up the forward. `dispatches_by_node` sends a token
    once to every node that has experts of its, not once to every expert, where the router bounds its nodes.
    `parallel_loss` splits the loss over the vocabulary, otherwise every tensor-parallel rank has all logits;
    `fused_loss` computes it in one kernel. `logit_copies` counts fp32 copies of the logits at the peak. `redone` is
    what selective recompute repeats (alternate_products: every second matrix product); full recompute repeats a layer,
    or with `stops_early` what comes before the last tensor that its backward needs.
    """

    name: Name
    attention: AttentionKernel | None = None
    windowed: bool = True
    regathers: bool = False
    scatters_sends: bool = False
    preallocates: bool = False
    scatters_gradients: bool = True
    pointwise: Pointwise = "eager"
    fused_norms: bool = True
    dropout: bool = False
    joint_qkv: bool = False
    offloaded_layers: NonNegative = 0
    host_seconds: NonNegativeFloat = 30e-6
    cuda_graph: bool = False
    grouped_kernel: bool = True
    weight_bytes: Literal[0, 2, 4] = 0
    master_bytes: Literal[0, 4] = 4
    gradient_bytes: Literal[2, 4] = 4
    fused_accumulation: bool = False
    moment_bytes: Literal[2, 4, 8] = 8
    reduce_bytes: Literal[2, 4] = 4
    clip_bytes: NonNegative = 12
    data_parallel: DataParallel = "fsdp2"
    overlap_data: bool = True
    overlap_gather: bool = True
    overlap_tensor: bool = False
    overlap_pipeline: bool = True
    overlap_expert: bool = False
    overlap_context: bool = True
    dispatches_by_node: bool = False
    parallel_loss: bool = True
    fused_loss: bool = False
    logit_copies: Literal[0, 1, 2, 3] = 2
    redone: tuple[Redone, ...] = ("norms", "pointwise", "core_attention")
    stops_early: bool = False


AUTOPLAN = Stack(name="autoplan", windowed=False, preallocates=True, clip_bytes=44, stops_early=True)
"""Our executor: fp32 masters are the module's own parameters, gathered in the compute type by FSDP2; the norm for
clipping is taken in fp64 (the gradient read, cast, squared, summed: 4 + 8, 8 + 8, 8; then read and written: 8)."""
