"""The words that people write for the settings of a run, in the table's own words.

Tables of other people say ``flash_attn_3``, ``full_block`` or ``Interleaved1F1B``. Case and punctuation do not matter.
Every function takes a cell and returns the table's word for it, or None for one that means nothing known.
"""

import re
from collections.abc import Callable

BLANKS = frozenset({"nan", "none", "null", "nil", "na", "nat", "unknown", "unspecified", "notgiven", "tbd"})
"""What stands for a blank cell, punctuation removed; so does a cell of punctuation alone (``-``, ``?``)."""

SCHEDULES = {
    "none": "none",
    "1f1b": "1f1b",
    "pipedream": "1f1b",
    "pipedreamflush": "1f1b",
    "noninterleaved": "1f1b",
    "gpipe": "gpipe",
    "afab": "gpipe",
    "fthenb": "gpipe",
    "interleaved": "interleaved",
    "interleaved1f1b": "interleaved",
    "1f1binterleaved": "interleaved",
    "interleaving": "interleaved",
    "vpp": "interleaved",
    "virtualpipeline": "interleaved",
    "zb": "zb",
    "zbb": "zb",
    "zerobubble": "zb",
    "zbh1": "zb-h1",
    "zbh2": "zb-2p",
    "zb1p": "zb-1p",
    "zb2p": "zb-2p",
    "zbv": "zb-v",
    "zbvzerobubble": "zb-v",
    "vhalf": "v-half",
    "vmin": "v-min",
    "dualpipe": "dualpipe",
    "dualpipev": "dualpipe-v",
}
ATTENTION = {
    "megatronfused": "megatron-fused",
    "fusedsoftmax": "megatron-fused",
    "cudnn": "cudnn",
    "cudnnfused": "cudnn",
    "fused": "cudnn",
    "fusedattn": "cudnn",
    "fusedattention": "cudnn",
    "te": "te",
    "transformerengine": "te",
    "sdpa": "sdpa",
    "flash": "flash",
    "triton": "flash",
    "xformers": "flash",
    "memoryefficient": "flash",
    "math": "unfused",
    "eager": "unfused",
    "naive": "unfused",
    "standard": "unfused",
    "vanilla": "unfused",
    "unfused": "unfused",
}
CP_METHODS = {
    "a2a": "a2a",
    "alltoall": "a2a",
    "ulysses": "a2a",
    "p2p": "p2p",
    "ring": "p2p",
    "a2ap2p": "p2p",  # Transformer Engine's two levels
    "allgather": "all_gather",
}
RECIPES = {
    "mx": "mx",
    "mxfp8": "mx",
    "cs": "current-scaling",
    "current": "current-scaling",
    "currentscaling": "current-scaling",
    "hybrid": "hybrid",
    "delayed": "delayed",
    "delayedscaling": "delayed",
    "block": "blockwise",
    "blockwise": "blockwise",
    "subchannel": "blockwise",
    "sc": "blockwise",
    "tensorwise": "tensorwise",
    "rowwise": "rowwise",
    "nvfp4": "nvfp4",
}
ARCHITECTURES = {
    "gpt": "gpt",
    "gptneox": "gpt",
    "opt": "gpt",
    "mpt": "gpt",
    "bloom": "gpt",
    "llama": "llama",
    "mistral": "llama",
    "qwen": "llama",
    "moe": "moe",
    "mixtral": "moe",
    "mixtureofexperts": "moe",
    "hybrid": "hybrid",
    "mamba": "hybrid",
    "jamba": "hybrid",
    "nemotronh": "hybrid",
}
YES, NO = frozenset({"true", "t", "yes", "y", "on", "1"}), frozenset({"false", "f", "no", "n", "off", "0"})
SWITCHED = {**dict.fromkeys(YES, True), **dict.fromkeys(NO, False)}
FLASH = re.compile(r"(?:flash(?:attention|attn)?|fa)(?:v?([123])\d*)?(?:varlen)?")
PRECISIONS = (  # the narrowest of several words is what the products are computed in
    (re.compile(r"fp4|float4"), "nvfp4"),
    (re.compile(r"mxfp8|fp8mx|mxfloat8"), "mxfp8"),
    (re.compile(r"fp8|float8|e4m3|e5m2"), "fp8"),
    (re.compile(r"bf16|bfloat16"), "bf16"),
    (re.compile(r"fp16|float16|half"), "fp16"),
    (re.compile(r"tf32|fp32|float32"), "fp32"),
)


def squash(text: str) -> str:
    """Return a word without case and punctuation; a number loses its ``.0``."""
    return re.sub(r"[^a-z0-9]+", "", re.sub(r"^(\d+)\.0+$", r"\1", text.strip().lower()))


def is_blank(text: str) -> bool:
    """Return whether a cell says nothing."""
    return not (word := squash(text)) or word in BLANKS


def read_flag(text: str) -> str | None:
    """Return true or false."""
    found = SWITCHED.get(squash(text))
    return None if found is None else str(found).lower()


def read_recompute(text: str) -> str | None:
    """Return none, selective or full; what is only said to be on is full."""
    word = squash(text)
    if word in NO or word == "none" or word.startswith(("norecompute", "nocheckpoint", "disable")):
        return "none"
    if any(part in word for part in ("selective", "sac", "core", "partial", "fraction", "kth")):
        return "selective"
    if word in YES or any(part in word for part in ("full", "all", "block", "layer", "uniform", "checkpointing")):
        return "full"
    return None


def read_attention(text: str) -> str | None:
    """Return an attention kernel: flash with its version where one is given."""
    word = squash(text)
    flash = FLASH.fullmatch(word)
    return f"flash{flash[1] or ''}" if flash else ATTENTION.get(word)


def read_precision(text: str) -> str | None:
    """Return the element type of the products."""
    word = squash(text)
    return next((precision for pattern, precision in PRECISIONS if pattern.search(word)), None)


def recipe_in(precision: str) -> str | None:
    """Return the recipe that is named beside narrow products, as in ``fp8-mx`` and ``FP8_CS``."""
    first, *others = re.split(r"[^a-z0-9]+", precision.strip().lower())
    narrow = first in ("fp8", "float8")
    return next((RECIPES[part] for part in others if part in RECIPES), None) if narrow else None


def read_arch(text: str) -> str | None:
    """Return the kind of model; a number behind its name says no more (``gpt2``, ``llama-3.1``)."""
    return ARCHITECTURES.get(squash(text).rstrip("0123456789"))


def read_status(text: str) -> str | None:
    """Return ok, oom or error."""
    word = squash(text)
    if "oom" in word or "outofmemory" in word:
        return "oom"
    if word in ("ok", "success", "succeeded", "completed", "done", "passed"):
        return "ok"
    return "error" if any(part in word for part in ("err", "fail", "crash", "timeout", "hang")) else None


def read_use(text: str) -> str | None:
    """Return what a row is for."""
    uses = {squash(use): use for use in ("accuracy", "ranking-only", "memory-only", "feasibility", "exclude")}
    return {**uses, "excluded": "exclude", "ranking": "ranking-only", "memory": "memory-only"}.get(squash(text))


def read_memory_kind(text: str) -> str | None:
    """Return who counted the peak: the framework's allocator, what it reserved, or somebody on paper."""
    word = squash(text)
    parts = {"alloc": "allocated", "reserv": "reserved", "cached": "reserved", "analytic": "analytic"}
    return next((kind for part, kind in parts.items() if part in word), None)


def one_of(words: dict[str, str]) -> Callable[[str], str | None]:
    """Return the reader of a column that knows these words."""
    return lambda text: words.get(squash(text))


READERS: dict[str, Callable[[str], str | None]] = {
    "arch": read_arch,
    "precision": read_precision,
    "fp8_recipe": one_of(RECIPES),
    "recompute": read_recompute,
    "schedule": one_of(SCHEDULES),
    "attention": read_attention,
    "cp_comm": one_of(CP_METHODS),
    "status": read_status,
    "use": read_use,
    "peak_mem_kind": read_memory_kind,
}
"""By column, the function that reads its words."""
