"""The stack argument: the name of a training framework's preset, or an autoplan stack JSON.

What a preset leaves out has the default of `Stack`. Where the presets' facts come from:

- ``autoplan``: this package's executor, `AUTOPLAN`.
- ``megatron``: Megatron-Core with Transformer Engine; ``DistributedOptimizer`` keeps fp32 masters and moments and
  ``DistributedDataParallel`` fp32 gradients, reduced while backward runs; sequence parallelism keeps its own part;
  the fused loss keeps one copy of the logits.
- ``nemo``: Megatron-Core as NeMo's and Megatron-Bridge's performance recipes set it: ``grad_reduce_in_fp32`` off,
  ``tp_comm_overlap`` on.
- ``megatron-classic``: Megatron-LM and Megatron-DeepSpeed of 2021-23 (arXiv 2104.04473, 2205.05198): scores are kept,
  nothing runs beside compute, sends are cut over tensor-parallel ranks (``scatter_gather_tensors_in_pipeline``).
- ``deepspeed``: ZeRO-1/2 of DeepSpeed and of systems like it (InternEvo): gradients are kept and reduced in 16 bits.
- ``scaling``: github.com/Aleph-Alpha/scaling (arXiv 2311.05610): gradients are kept in bf16 and all-reduced in fp32
  after the last micro-batch (``allreduce.py``), the head gathers all logits (``lm_head.py``), the loss copies them to
  fp32 for itself, its softmax and their gradient, values are a view of the joint projection (``attention.py``). Its
  own tests train with dropout, and so do, by which layouts ran out of memory, the runs of the paper.
- ``fsdp``: FullyShardedDataParallel in eager mode with the usual policy (Composer, llm-foundry, Lightning): fp32
  shards, parameters and reduction in the compute type, all logits on every rank.
- ``torchtitan``: FSDP2 with DTensor's tensor parallelism; its operator-level selective recompute keeps attention and
  every second matrix product.
- ``torchtune``: weights, gradients and moments all bf16, no masters.
"""

from pathlib import Path

from autoplan.errors import InputError
from autoplan.readers.documents import near, preset_names, preset_text, read_text
from autoplan.spec import AUTOPLAN, Stack
from autoplan.spec.codec import from_json


def stack_presets() -> tuple[str, ...]:
    """Return the names of the stack presets, sorted."""
    return tuple(sorted((AUTOPLAN.name, *preset_names("stacks"))))


def load_stack(name_or_path: str | Path) -> Stack:
    """Return the stack that a command-line argument names: a preset, or the path of a JSON file.

    Raises InputError that names the file and field, or near presets.
    """
    text = str(name_or_path)
    if text == AUTOPLAN.name:
        return AUTOPLAN
    if text in stack_presets():
        return from_json(Stack, preset_text("stacks", text), where=f"preset {text}", error=InputError)
    path = Path(name_or_path)
    if path.suffix != ".json" and not path.is_file():
        raise InputError(f"unknown stack {text!r}. {near(text, stack_presets())}", where="stack")
    return from_json(Stack, read_text(path, error=InputError), where=text, error=InputError)
