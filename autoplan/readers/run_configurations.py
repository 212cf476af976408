"""The configurations that one row of the table of published runs may mean: one, or several where settings are blank."""

from dataclasses import dataclass
from itertools import product
from math import gcd

from autoplan.readers.run_degrees import Degrees
from autoplan.readers.run_models import CannotModel, read_arch
from autoplan.readers.table import Row
from autoplan.spec import Configuration, CpMethod, Recompute, Schedule, Stack
from autoplan.spec.value import LARGEST_SIZE

MICRO_BATCHES = (1, 2, 4, 8)
SCHEDULES: dict[str, Schedule] = {
    "": "1f1b",
    "none": "1f1b",
    "1f1b": "1f1b",
    "gpipe": "gpipe",
    "interleaved": "interleaved",
    "zb": "zb-h1",
    "zb-h1": "zb-h1",
    "zb-1p": "zb-1p",
    "zb-2p": "zb-2p",
    "zb-v": "zb-v",
    "v-half": "zb-v",
    "v-min": "zb-v",
    "dualpipe": "dualpipe-v",
    "dualpipe-v": "dualpipe-v",
}
TWO_CHUNKS = ("zb-v", "dualpipe-v")
CP_METHODS: dict[str, CpMethod] = {"a2a": "ulysses", "p2p": "ring", "all_gather": "allgather"}
# Frameworks whose tensor parallelism always came with sequence parallelism, and what each shards when nothing is said.
SEQUENCE_PARALLEL = ("megatron", "nemo", "torchtitan", "autoplan")
ZERO_STAGES = {"megatron-classic": (0, 1), "fsdp": (3,), "torchtitan": (3,), "torchtune": (0,)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """What a row may have run, likeliest first; `open` names the blank cells that these differ in."""

    configurations: tuple[Configuration, ...]
    open: tuple[str, ...]
    global_batch: int


def read_configurations(
    row: Row, degrees: Degrees, *, framework: Stack, num_layers: int, devices_per_node: int, assumptions: list[str]
) -> Choices:
    """Return the candidates of a row; raises CannotModel when its batch cannot be told.

    `framework` and `devices_per_node` fill in blank cells; what was assumed is added to `assumptions`.
    """
    divided = degrees.pp if framework.name == "torchtitan" else 0
    micro_batches, global_batch = _read_batch(row, dp=degrees.dp, divided=divided, assumptions=assumptions)
    shardings = _read_shardings(row, degrees, framework, assumptions)
    recomputes = _read_recomputes(row, num_layers, assumptions)
    schedules = _read_schedules(row, pp=degrees.pp, num_layers=num_layers, assumptions=assumptions)
    ep, etp = _read_experts(row, degrees, devices_per_node, assumptions)
    sequence_parallel = _read_sequence_parallel(row, degrees.tp, framework, assumptions)
    cp_method = _read_cp_method(row, degrees.cp, framework, assumptions)
    configurations = tuple(
        Configuration(
            dp_replicate=degrees.dp // dp_shard,
            dp_shard=dp_shard,
            cp=degrees.cp,
            cp_method=cp_method,
            tp=degrees.tp,
            pp=degrees.pp,
            ep=ep,
            etp=etp,
            sequence_parallel=sequence_parallel,
            zero_stage=zero_stage,  # type: ignore[arg-type]
            micro_batch=micro_batch,
            schedule=schedule,
            virtual_stages=virtual_stages,
            recompute=recompute,
            recompute_layers=recompute_layers,
        )
        for (schedule, virtual_stages), (zero_stage, dp_shard), (recompute, recompute_layers), micro_batch in product(
            schedules, shardings, recomputes, micro_batches
        )
    )
    blank = {
        "schedule": len({schedule for schedule, _ in schedules}),
        "virtual_stages": len({chunks for _, chunks in schedules}),
        "zero_stage": len(shardings),
        "recompute": len(recomputes),
        "micro_batch": len(micro_batches),
    }
    return Choices(
        configurations=configurations,
        open=tuple(name for name, candidates in blank.items() if candidates > 1),
        global_batch=global_batch,
    )


def _read_batch(row: Row, *, dp: int, divided: int, assumptions: list[str]) -> tuple[tuple[int, ...], int]:
    """Return micro-batch sizes and the global batch; where the three cells disagree, the number gives way, or else it.

    `divided` is into how many micro-batches the framework splits a rank's sequences when it is not told, 0 for none
    (torchtitan's pipeline_parallel_microbatches).
    """
    micro_batch, count, global_batch = (row.count(c) or 0 for c in ("micro_batch", "num_microbatches", "global_batch"))
    if not global_batch and not (micro_batch and count):
        raise CannotModel("global_batch is unknown")
    if global_batch and micro_batch and count and global_batch % (dp * micro_batch) == 0:
        meant = global_batch // (dp * micro_batch)
        if meant != count:
            assumptions.append(f"num_microbatches {meant} instead of {count}, to have global_batch {global_batch}")
        count = meant
    per_rank = max(1, round(global_batch / dp))
    if not micro_batch and not count:
        sizes = tuple(size for size in MICRO_BATCHES if per_rank % size == 0)
        if divided > 1 and per_rank % divided == 0:
            sizes = (per_rank // divided,)
        assumptions.append(f"micro_batch one of {', '.join(map(str, sizes))}")
    else:
        micro_batch = micro_batch or max(1, round(per_rank / count))
        per_rank = micro_batch * (count or max(1, round(per_rank / micro_batch)))
        sizes = (micro_batch,)
    if dp * per_rank > LARGEST_SIZE:
        raise CannotModel(f"global_batch {dp * per_rank} is more than {LARGEST_SIZE}")
    if global_batch and global_batch != dp * per_rank:
        assumptions.append(f"global_batch {dp * per_rank} instead of {global_batch}, to be whole micro-batches")
    return sizes, dp * per_rank


def _read_shardings(
    row: Row, degrees: Degrees, framework: Stack, assumptions: list[str]
) -> tuple[tuple[int, int], ...]:
    """Return (zero_stage, dp_shard) candidates; nothing is sharded over one rank.

    The table counts ranks of a shard group, context parallelism included.
    """
    stage, group = row.count("zero_stage"), row.count("dp_shard")
    if stage not in (None, 0, 1, 2, 3):
        raise row.problem("zero_stage", f"{stage} is not 0, 1, 2 or 3")
    dp_shard = max(1, group // degrees.cp) if group else degrees.dp
    if degrees.dp % dp_shard:
        assumptions.append(f"dp_shard {gcd(degrees.dp, dp_shard)} instead of {dp_shard}, to divide dp {degrees.dp}")
        dp_shard = gcd(degrees.dp, dp_shard)
    if dp_shard * degrees.cp == 1:
        return ((0, 1),)
    if stage == 3 and degrees.pp > 1 and framework.name == "torchtitan":
        assumptions.append("zero_stage 1: with a pipeline weights stay gathered and gradients wait for the last pass")
        stage = 1
    usual = ZERO_STAGES.get(framework.name, (1, 3) if degrees.pp == 1 else (1,))
    stages = (stage,) if stage is not None else usual
    if stage is None:
        assumptions.append("zero_stage " + " or ".join(map(str, stages)))
    return tuple((each, dp_shard if each else 1) for each in stages)


def _read_recomputes(row: Row, num_layers: int, assumptions: list[str]) -> tuple[tuple[Recompute, int], ...]:
    """Return (recompute, layers) candidates; 0 layers means all."""
    recompute = row.choice("recompute", ("none", "selective", "full"))
    detail, layers = row.text("recompute_detail"), row.count("recompute_layers") or 0
    layers = layers if layers < num_layers else 0
    if not recompute:
        assumptions.append("recompute none, selective or full")
        return (("none", 0), ("selective", 0), ("full", 0))
    if detail in ("block-fraction", "every-kth-block"):  # whole blocks, of which the table does not say how many
        return _read_blocks(detail, layers, num_layers, assumptions)
    return ((recompute, layers if recompute != "none" else 0),)  # type: ignore[return-value]


def _read_blocks(
    detail: str, layers: int, num_layers: int, assumptions: list[str]
) -> tuple[tuple[Recompute, int], ...]:
    """Return how many blocks are redone: every second one where it is every k-th, else half or another part."""
    counts = [num_layers // 2, num_layers // 3, 2 * num_layers // 3, 0]
    counts = [layers] if layers else counts[: 1 if detail == "every-kth-block" else len(counts)]
    if not layers:
        shown = " or ".join(str(count or num_layers) for count in counts)
        assumptions.append(f"full recompute of {shown} of {num_layers} layers")
    return tuple(("full", count) for count in dict.fromkeys(counts))


def _read_schedules(row: Row, *, pp: int, num_layers: int, assumptions: list[str]) -> tuple[tuple[Schedule, int], ...]:
    """Return (schedule, virtual_stages) candidates."""
    word, chunks = row.text("schedule"), row.count("vpp")
    if pp == 1:
        return (("1f1b", 1),)
    schedule = SCHEDULES.get(word, "1f1b")
    if word not in SCHEDULES or word.startswith("v-") or word in ("", "zb", "dualpipe"):
        assumptions.append(f"schedule {schedule}" + (f" for {word}" if word else ""))
    if schedule in TWO_CHUNKS:
        return ((schedule, 2),)
    if schedule == "1f1b" and chunks and chunks > 1:
        return (("interleaved", chunks),)
    if schedule == "interleaved" and chunks != 1:
        stated = ((schedule, chunks),) if chunks else ()
        return stated or _interleavings(pp, num_layers, assumptions) or (("1f1b", 1),)
    if not word and not chunks:
        return (("1f1b", 1), *_interleavings(pp, num_layers, assumptions))
    return (("1f1b" if schedule == "interleaved" else schedule, 1),)


def _interleavings(pp: int, num_layers: int, assumptions: list[str]) -> tuple[tuple[Schedule, int], ...]:
    """Return interleaved schedules whose chunks have equal numbers of a stage's layers, the fewest chunks first."""
    layers = -(-num_layers // pp)
    chunks = [size for size in range(2, layers + 1) if layers % size == 0]
    if chunks:
        assumptions.append(f"virtual_stages one of {', '.join(map(str, chunks))}")
    return tuple(("interleaved", size) for size in chunks)


def _read_experts(row: Row, degrees: Degrees, devices_per_node: int, assumptions: list[str]) -> tuple[int, int]:
    """Return (ep, etp) within the dp·cp·tp ranks of a stage; a blank ep spreads experts over a node at most."""
    num_experts = row.count("n_experts") or 0
    ranks = degrees.dp * degrees.cp * degrees.tp
    if not num_experts:
        return 1, 1
    etp = gcd(row.count("etp") or 1, ranks)
    ep = row.count("ep")
    if not ep:
        ep = gcd(num_experts, gcd(ranks // etp, max(1, devices_per_node // etp)))
        assumptions.append(f"ep {ep}")
    if (ranks // etp) % ep:
        assumptions.append(f"ep {gcd(ranks // etp, ep)} instead of {ep}, to divide {ranks // etp} ranks")
        ep = gcd(ranks // etp, ep)
    if degrees.tp > 1 and not row.count("etp"):
        assumptions.append("etp 1")
    return ep, etp


def _read_sequence_parallel(row: Row, tp: int, framework: Stack, assumptions: list[str]) -> bool:
    if tp == 1:
        return False
    flag = row.flag("sequence_parallel")
    if flag is None:
        gpt = framework.name == "megatron" and read_arch(row) == "gpt"  # Megatron-LM's examples leave it off
        flag = framework.name in SEQUENCE_PARALLEL and not gpt
        assumptions.append(f"sequence_parallel {str(flag).lower()}")
    return flag


def _read_cp_method(row: Row, cp: int, framework: Stack, assumptions: list[str]) -> CpMethod:
    """Return how context parallelism talks: a ring where Transformer Engine does it, else gathers."""
    if cp == 1:
        return "allgather"
    method = CP_METHODS.get(row.text("cp_comm"))
    if method is None:
        method = "ring" if framework.name in ("megatron", "nemo") else "allgather"
        assumptions.append(f"cp_method {method}")
    return method
