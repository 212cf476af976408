"""How many devices a published run had, and its degrees: blank ones follow from the others.

dp·tp·pp·cp = n_gpus. Where a row says otherwise, it may still have a reading: tables count context parallelism among
the data-parallel ranks, or leave experts out of them, and the cells of the batch can tell which number is wrong. A row
that has no such reading is contradictory.
"""

from dataclasses import dataclass, replace
from math import prod

from autoplan.readers.run_models import CannotModel, needed
from autoplan.readers.table import Row

DEGREES = ("dp", "tp", "pp", "cp")
LARGEST_TP = 8  # devices of one host


@dataclass(frozen=True, slots=True, kw_only=True)
class Degrees:
    """The ranks of a run along each axis; `dp` counts all data-parallel ranks, sharded or not."""

    dp: int
    tp: int
    pp: int
    cp: int

    @property
    def num_gpus(self) -> int:
        """The ranks of all axes together."""
        return self.dp * self.tp * self.pp * self.cp


def read_degrees(row: Row, assumptions: list[str]) -> Degrees:
    """Return the degrees of a row; raises CannotModel when they contradict each other or are unknown.

    What was assumed is added to `assumptions`.
    """
    given = {name: count for name in DEGREES if (count := row.count(name))}
    num_gpus = _num_gpus(row, given, assumptions)
    rest, over = divmod(num_gpus, prod(given.values()))
    if len(given) == len(DEGREES) and (over or rest > 1):
        return _contradictory(row, Degrees(**given), num_gpus, assumptions)
    if over:
        product = " x ".join(f"{name} {count}" for name, count in given.items())
        raise CannotModel(f"{product} does not divide n_gpus {num_gpus}")
    taking = _taking_the_rest(row, given, rest)
    degrees = {name: rest if name == taking else 1 for name in DEGREES} | given
    assumptions += [f"{name} {degrees[name]}" for name in ("tp", "pp", "cp") if _is_noted(name, given, degrees)]
    return Degrees(**degrees)


def _is_noted(name: str, given: dict[str, int], degrees: dict[str, int]) -> bool:
    """Return whether a blank cell is worth a word: older tables have no context parallelism."""
    return name not in given and (name != "cp" or degrees[name] > 1)


def _num_gpus(row: Row, given: dict[str, int], assumptions: list[str]) -> int:
    if not row.count("n_gpus") and "dp" in given:
        num_gpus = prod(given.values())
        assumptions.append(f"n_gpus {num_gpus}")
        return num_gpus
    return needed(row, "n_gpus")


def _taking_the_rest(row: Row, given: dict[str, int], rest: int) -> str:
    """Return the blank degree that has the ranks which the others leave: dp before tp within a host, pp and cp."""
    host = row.count("gpus_per_node") or LARGEST_TP
    blank = [name for name in DEGREES if name not in given and (name != "tp" or rest <= host)]
    return blank[0] if blank else "tp"


def _contradictory(row: Row, stated: Degrees, num_gpus: int, assumptions: list[str]) -> Degrees:
    """Return the reading of degrees whose product is not n_gpus."""
    dp, over = divmod(num_gpus, stated.tp * stated.pp * stated.cp)
    if not over and _counts_otherwise(row, stated, dp):
        assumptions.append(f"dp {dp} instead of {stated.dp}, to have {num_gpus} ranks")
        return replace(stated, dp=dp)
    if _batch_ranks(row) == stated.dp:
        assumptions.append(f"n_gpus {stated.num_gpus} instead of {num_gpus}, as the degrees and the batch have it")
        return stated
    product = " x ".join(f"{name} {getattr(stated, name)}" for name in DEGREES)
    raise CannotModel(f"{product} = {stated.num_gpus} ranks, n_gpus is {num_gpus}")


def _counts_otherwise(row: Row, stated: Degrees, dp: int) -> bool:
    """Return whether `dp` is what the row states with cp, or without ep or a shard group, or what its batch says."""
    experts, group = row.count("ep") or 1, row.count("dp_shard") or 1
    with_cp = stated.dp == dp * stated.cp
    without = any(part > 1 and stated.dp * part == dp for part in (experts, group))
    return with_cp or without or _batch_ranks(row) == dp


def _batch_ranks(row: Row) -> float | None:
    """Return how many data-parallel ranks the three cells of the batch make, None unless all are known."""
    micro_batch, count, global_batch = (row.count(c) for c in ("micro_batch", "num_microbatches", "global_batch"))
    return global_batch / (micro_batch * count) if micro_batch and count and global_batch else None
