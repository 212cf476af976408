"""The software of one row of the table of published runs, from its settings.

The settings say which framework trained; a source's name only decides where they leave it open. An unknown source
is read the same way.
"""

from dataclasses import replace
from typing import Any, get_args

from autoplan.readers.run_models import read_arch
from autoplan.readers.stacks import load_stack
from autoplan.readers.table import Row
from autoplan.spec import Stack
from autoplan.spec.stack import AttentionKernel, Redone

TITAN_DETAILS, TITAN_RECIPES = ("op-sac", "every-kth-block"), ("tensorwise", "rowwise")
FP8_RECIPES = ("mx", "current-scaling", "hybrid", "delayed", "blockwise", "nvfp4")  # Transformer Engine's
NARROW = ("fp8", "mxfp8", "nvfp4")
MEGATRON = ("megatron", "nemo", "megatron-classic")
NAMES = {
    "torchtune": "torchtune",
    "titan": "torchtitan",
    "automodel": "torchtitan",
    "nemo": "nemo",
    "bridge": "nemo",
    "megatron": "megatron",
    "mcore": "megatron",
    "moe-folding": "megatron",
    "simumax": "megatron",
    "primus": "megatron",
    "fsdp": "fsdp",
    "foundry": "fsdp",
    "hagemann": "scaling",
    "deepspeed": "deepspeed",
    "internevo": "deepspeed",
}
# What the words of `recompute_detail` repeat; blocks are counted in layers instead (run_configurations).
DETAILS: dict[str, tuple[Redone, ...]] = {
    "core-attention": ("core_attention",),
    "core_attn": ("core_attention",),
    "op-sac": ("norms", "pointwise", "alternate_products"),
    "mla_up_proj": ("up_projections",),
    "layernorm": ("norms",),
    "norm": ("norms",),
    "moe_act": ("pointwise",),
    "mlp_act": ("pointwise",),
    "act": ("pointwise",),
    "mlp": ("feed_forward",),
    "moe": ("feed_forward",),
    "shared_experts": ("feed_forward",),
}
ATTENTION_WORDS: dict[str, AttentionKernel] = {"megatron-fused": "fused_softmax", "sdpa": "flash2", "te": "cudnn"}


def read_framework(row: Row, *, recent: bool, assumptions: list[str]) -> Stack:
    """Return the framework that a row's settings look like; `recent` devices have fp8 (2022 and later)."""
    name = _settled(row, recent=recent)
    if name is None:
        name = _named(row) or _guessed(row, recent=recent)
        assumptions.append(f"stack {name}")
    return load_stack(name)


def read_stack(row: Row, framework: Stack, *, recent: bool, assumptions: list[str]) -> Stack:
    """Return the framework as the row has set it up."""
    gpt, megatron = read_arch(row) == "gpt", framework.name in MEGATRON
    changes: dict[str, Any] = {
        "attention": _read_attention(row, framework, recent=recent, assumptions=assumptions),
        "redone": _read_redone(row, framework),
        "dropout": framework.dropout or (gpt and megatron),
        "offloaded_layers": (row.count("cpu_offload_layers") or 0) if row.flag("cpu_offload") else 0,
    }
    fused = row.flag("fused_rmsnorm")
    if fused is not None:
        changes["fused_norms"] = fused
    if _is_compiled(row, framework, assumptions):
        changes |= {"pointwise": "compiled", "fused_norms": True}
    if row.count("zero_stage") == 3 and framework.data_parallel == "ddp":
        changes["data_parallel"] = "fsdp"
    changes |= {**_read_numbers(row, framework), **_read_overlaps(row)}
    return replace(framework, **changes)


def _is_compiled(row: Row, framework: Stack, assumptions: list[str]) -> bool:
    """Return whether a compiler joins kernels: torchtitan's fp8 and tensor-parallel overlap are the compiler's work."""
    flag = row.flag("compile")
    if flag is None and framework.name == "torchtitan":
        flag = row.text("precision") in NARROW or row.flag("overlap_tp") is not None
        assumptions.append(f"compile {str(flag).lower()}")
    return bool(flag)


def _settled(row: Row, *, recent: bool) -> str | None:
    """Return the framework where the settings leave no doubt."""
    if row.text("mp_mode"):
        return "fsdp"  # Composer's word
    if row.text("recompute_detail") in TITAN_DETAILS or row.text("fp8_recipe") in TITAN_RECIPES:
        return "torchtitan"
    old = row.text("attention") == "megatron-fused" or row.text("precision") == "fp16"
    if not recent and old and read_arch(row) == "gpt":
        return "megatron-classic"
    if recent and row.text("fp8_recipe") in FP8_RECIPES:
        return "nemo"
    return None


def _named(row: Row) -> str | None:
    source = row.text("source").lower()
    return next((framework for word, framework in NAMES.items() if word in source), None)


def _guessed(row: Row, *, recent: bool) -> str:
    """Return the likeliest framework: by sharding, then by the device's years."""
    degrees = [row.count(column) or 1 for column in ("tp", "pp", "cp", "ep")]
    stage, narrow = row.count("zero_stage"), row.text("precision") in NARROW
    if stage == 3 and not (narrow and row.flag("compile") is None):
        return "torchtitan" if max(degrees) > 1 or row.flag("compile") else "fsdp"
    if max(degrees) == 1 and (row.count("n_gpus") == 1 or row.flag("compile")):
        return "torchtitan" if row.flag("compile") else "fsdp"
    plain = row.count("pp") == 1 and not row.text("attention")
    hybrid = stage == 1 and plain and not recent and row.flag("overlap_dp")
    if hybrid or (stage == 2 and max(degrees) == 1):
        return "deepspeed"
    if narrow or row.flag("cuda_graph") is not None or row.flag("moe_forced_balance"):
        return "nemo"  # what its performance recipes tell of
    if row.flag("fused_rmsnorm") is not None:
        return "scaling"  # which was measured with and without such a kernel
    return "megatron" if recent or read_arch(row) != "gpt" else "megatron-classic"


def _read_attention(row: Row, framework: Stack, *, recent: bool, assumptions: list[str]) -> AttentionKernel | None:
    word = row.text("attention")
    if not word:
        return framework.attention
    if word == "unfused" and framework.name in MEGATRON:
        return "fused_softmax"  # what Megatron falls back to without flash attention
    if word == "flash":  # Triton's and others of FlashAttention's first version, until Hopper
        return "flash2" if recent else "flash1"
    kernel = ATTENTION_WORDS.get(word, word)
    if kernel not in get_args(AttentionKernel):
        assumptions.append(f"attention {word}: taken as the framework's own")
        return framework.attention
    return kernel  # type: ignore[return-value]


def _read_redone(row: Row, framework: Stack) -> tuple[Redone, ...]:
    words = row.text("recompute_detail").replace(",", "+").split("+")
    redone = [part for word in words for part in DETAILS.get(word.strip(), ())]
    if redone or framework.name not in MEGATRON or not row.count("n_experts"):
        return tuple(dict.fromkeys(redone)) or framework.redone
    # Megatron-Bridge's recipes for mixtures of experts: core attention is flash and cheap to keep.
    return ("norms", "pointwise", "up_projections") if row.count("kv_lora_rank") else ("norms", "pointwise")


def _read_numbers(row: Row, framework: Stack) -> dict[str, Any]:
    """Return the bytes that a row's number formats change."""
    mode, precision = row.text("mp_mode"), row.text("precision")
    if mode in ("default", "pure"):  # Composer reduces in fp32 or in the compute type; its loss is one fused kernel
        return {"reduce_bytes": 2 if mode == "pure" else 4, "logit_copies": 0}
    if framework.name == "megatron-classic" and precision == "fp16":
        return {
            "gradient_bytes": 2,
            "reduce_bytes": 2,
        }  # only bf16 accumulates and reduces in fp32 (megatron/arguments.py)
    if precision == "fp32" and framework.weight_bytes == 2:
        return {"weight_bytes": 4, "master_bytes": 0, "gradient_bytes": 4, "moment_bytes": 8, "reduce_bytes": 4}
    return {}


def _read_overlaps(row: Row) -> dict[str, bool]:
    columns = {
        "overlap_dp": "overlap_data",
        "overlap_tp": "overlap_tensor",
        "overlap_pp": "overlap_pipeline",
        "overlap_ep": "overlap_expert",
        "cuda_graph": "cuda_graph",
    }
    flags = {field: row.flag(column) for column, field in columns.items()}
    return {field: flag for field, flag in flags.items() if flag is not None}
