"""The cells of one published run, each in the table's own form, so that what reads them may be strict.

Numbers lose their thousands separators, switches become true or false, words the table's own (`run_words`). A measured
figure, a switch or a word that means nothing is left out and said; a setting that should be a number and is none stays,
for whoever reads it to refuse.
"""

import re
from dataclasses import replace

from autoplan.errors import DataError
from autoplan.readers.run_words import READERS, is_blank, read_flag, recipe_in, squash
from autoplan.readers.table import Row

FLAGS = (
    "gated_mlp",
    "tied_embeddings",
    "parallel_block",
    "sequence_parallel",
    "compile",
    "overlap_dp",
    "overlap_tp",
    "overlap_pp",
    "overlap_ep",
    "fused_rmsnorm",
    "cpu_offload",
    "deterministic",
    "moe_forced_balance",
    "cuda_graph",
)
SIZES = (
    *("n_layers", "hidden", "ffn_hidden", "n_heads", "n_kv_heads", "head_dim", "vocab", "seq_len", "sliding_window"),
    *("n_experts", "top_k", "moe_ffn_hidden", "n_shared_experts", "n_dense_layers", "mtp_layers"),
    *("q_lora_rank", "kv_lora_rank", "qk_rope_head_dim", "n_gpus", "gpus_per_node", "nvlink_domain"),
    *("dp", "tp", "pp", "cp", "ep", "etp", "vpp", "dp_shard", "micro_batch", "global_batch", "num_microbatches"),
    *("recompute_layers", "cpu_offload_layers"),
)
RATES = ("inter_gbit_per_s_per_gpu",)
MEASURED = ("step_time_s", "peak_mem_gib", "tokens_per_s_per_gpu")
STATED_AS_NONE = ("recompute", "schedule")
ALL = ("dp_shard", "recompute_layers", "sliding_window")
"""Columns in which −1 is written for what is not limited (torchtitan, Megatron, flash-attention)."""
CHOICES = ("recompute", "status", "use", "peak_mem_kind")
"""Words of which only the known mean anything; what other columns say is told by who reads them."""

THOUSANDS = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.0*)?")
ZERO = re.compile(r"(?:zero|stage|zerostage)([0-3])")
SMALLEST_MEASURED, LARGEST_MEASURED = 1e-6, 1e9


def tidy(row: Row, notes: list[str]) -> Row:
    """Return the row with its cells in the table's form; what words were taken for is added to `notes`."""
    cells = {name: "" if _says_nothing(name, text) else text.strip() for name, text in row.cells.items()}
    for name in (*SIZES, *RATES):
        if name in cells:
            cells[name] = _number(cells[name], unlimited=name in ALL)
    for name in MEASURED:
        if cells.get(name):
            cells[name] = _measured(row, name, _number(cells[name]), notes)
    for name in FLAGS:
        if cells.get(name):
            cells[name] = _known(name, cells[name], read_flag(cells[name]), notes, or_blank=True)
    _fill_recipe(cells)
    for name, read in READERS.items():
        if cells.get(name):
            cells[name] = _known(name, cells[name], read(cells[name]), notes, or_blank=name in CHOICES)
    if stage := ZERO.fullmatch(squash(cells.get("zero_stage", ""))):
        cells["zero_stage"] = stage[1]
    return replace(row, cells=cells)


def _says_nothing(name: str, text: str) -> bool:
    return is_blank(text) and not (name in STATED_AS_NONE and squash(text) == "none")


def _number(text: str, *, unlimited: bool = False) -> str:
    if unlimited and text in ("-1", "-1.0"):
        return ""
    return text.replace(",", "") if THOUSANDS.fullmatch(text) else text


def _measured(row: Row, name: str, text: str, notes: list[str]) -> str:
    """Return a measured figure, blank and said where nothing measures such a figure; 0 is blank."""
    try:
        figure = replace(row, cells={name: text}).number(name)
    except DataError as problem:
        notes.append(f"{problem.message}: left out")
        return ""
    if figure and not SMALLEST_MEASURED <= figure <= LARGEST_MEASURED:
        notes.append(f"{name}: {text!r} is not between {SMALLEST_MEASURED:g} and {LARGEST_MEASURED:g}: left out")
        return ""
    return text if figure else ""


def _known(name: str, text: str, found: str | None, notes: list[str], *, or_blank: bool) -> str:
    """Return the table's word; says so where another word stands there, and what is left out."""
    if found is None:
        if or_blank:
            notes.append(f"{name}: {text!r} is not known: left out")
        return "" if or_blank else text
    if squash(found) != squash(text) and name not in FLAGS:
        notes.append(f"{name} {found} for {text}")
    return found


def _fill_recipe(cells: dict[str, str]) -> None:
    """Fill in the recipe of 8-bit products where the word for the precision names it too."""
    recipe = recipe_in(cells.get("precision", ""))
    if recipe and not cells.get("fp8_recipe"):
        cells["fp8_recipe"] = recipe
