"""The run loop: read a batch, take a step, write a line, save a checkpoint now and then.

Every rank runs `train`; rank 0 alone writes metrics and progress. After each step the ranks agree on what no one
of them knows alone: the slowest rank's time, the heaviest rank's memory, and whether to stop.
"""

import math
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import torch
import torch.distributed as dist

from autoplan.errors import DataError, RunError
from autoplan.executor.checkpoint import store
from autoplan.executor.checkpoint.index import (
    CheckpointInfo,
    find_latest,
    list_complete,
    model_hash,
    read_info,
    require_same_run,
)
from autoplan.executor.data.batches import Windows, open_data, read_batch
from autoplan.executor.options import RunOptions, RunSummary, choose_run_dir
from autoplan.executor.telemetry.memory import PeakMemory
from autoplan.executor.telemetry.metrics import RunLog, RunRecord, StepRecord, new_record
from autoplan.executor.together import on_first_rank, together
from autoplan.executor.training import StepResult, Training
from autoplan.spec.plan import Plan
from autoplan.units import format_seconds


@dataclass(frozen=True, slots=True)
class Position:
    """How far training is: optimizer steps, and sequences of the data used."""

    step: int
    sequences: int


@dataclass(frozen=True, slots=True)
class Run:
    """What a started run is made of."""

    plan: Plan
    options: RunOptions
    device: torch.device
    data: Windows
    fingerprint: str
    training: Training
    memory: PeakMemory
    log: RunLog
    record: RunRecord

    @property
    def first_rank(self) -> bool:
        """Whether this rank writes."""
        return dist.get_rank() == 0


@dataclass(frozen=True, slots=True)
class Agreed:
    """What the ranks agreed on after a step."""

    step_seconds: float
    peak_memory_bytes: int
    stop: bool


def train(
    plan: Plan,
    options: RunOptions,
    *,
    device: torch.device,
    restarted: bool = False,
    stop_requested: Callable[[], bool] = lambda: False,
) -> RunSummary:
    """Train to step `options.steps` within the process group; every rank returns the same summary.

    A run that is `restarted` goes on from its newest checkpoint, or from the beginning where there is none yet.
    When `stop_requested` on any rank, the step under way is finished and saved. Raises DataError and
    CheckpointError on every rank alike, and RunError when the loss or the gradient norm is not finite.
    """
    run, position = _start(plan, options, device=device, restarted=restarted)
    try:
        records, stopped, saved = _loop(run, position, stop_requested)
    except Exception:
        if run.first_rank:
            with suppress(RunError):  # a full disk must not hide what ended the run
                run.log.end(run.record, "failed")
        raise
    status: Literal["finished", "stopped"] = "stopped" if stopped else "finished"
    if run.first_rank:
        run.log.end(run.record, status)
    return _summarize(run, position, records, status, saved)


def _start(plan: Plan, options: RunOptions, *, device: torch.device, restarted: bool) -> tuple[Run, Position]:
    dist.all_reduce(torch.zeros(1, device=device))  # NCCL takes its buffers, which are the runtime's, only now
    memory = PeakMemory.start(device)
    run_dir = on_first_rank(lambda: choose_run_dir(plan, options))
    data, described = _open_same_data(plan, options)
    if options.data_name is not None:
        described = {**described, "path": options.data_name}
    training = Training.build(plan, seed=options.seed, dtype=options.dtype)
    fingerprint = str(described["fingerprint"])
    position = _resume(plan, options, training, fingerprint, restarted=restarted)
    dtype = options.dtype or plan.precision.compute
    record = new_record(plan, seed=options.seed, dtype=dtype, steps=options.steps, data=described, memory=memory.kind)
    log = RunLog(run_dir)
    record = on_first_rank(lambda: log.begin(record, first_step=position.step + 1))
    return Run(plan, options, device, data, fingerprint, training, memory, log, record), position


def _open_same_data(plan: Plan, options: RunOptions) -> tuple[Windows, dict[str, int | str]]:
    data = open_data(options.data, plan, seed=options.seed, dtype=options.data_dtype)
    described = together(data.describe)
    for rank, other in enumerate(described):
        if other["fingerprint"] != described[0]["fingerprint"]:
            raise DataError(f"rank {rank} sees other data than rank 0", where=str(options.data))
    return data, described[0]


def _resume(plan: Plan, options: RunOptions, training: Training, fingerprint: str, *, restarted: bool) -> Position:
    folder = options.checkpoint_dir
    if folder is None or not (options.resume or restarted):
        return Position(0, 0)
    if restarted and not on_first_rank(lambda: bool(list_complete(folder))):
        return Position(0, 0)
    path = on_first_rank(lambda: find_latest(folder))
    info = on_first_rank(lambda: read_info(path))
    require_same_run(info, plan, seed=options.seed, dtype=options.dtype, data_fingerprint=fingerprint, where=path)
    state = training.state_dict()
    store.load(path, state)
    training.load_state_dict(state)
    return Position(info.step, info.sequences)


def _loop(
    run: Run, position: Position, stop_requested: Callable[[], bool]
) -> tuple[list[StepRecord], bool, Path | None]:
    records: list[StepRecord] = []
    stopped, saved = False, None
    while position.step < run.options.steps and not stopped:
        record, stopped = _step(run, position, stop_requested)
        records.append(record)
        position = Position(record.step, position.sequences + run.plan.workload.global_batch)
        if _save_is_due(run.options, position.step) or (stopped and run.options.checkpoint_dir is not None):
            saved = _save(run, position)
    return records, stopped and position.step < run.options.steps, saved


def _step(run: Run, position: Position, stop_requested: Callable[[], bool]) -> tuple[StepRecord, bool]:
    step, training = position.step + 1, run.training
    begin = time.perf_counter()
    batch = read_batch(
        run.data,
        position.sequences,
        global_batch=run.plan.workload.global_batch,
        rank=training.data_rank,
        ranks=training.data_ranks,
    )
    result = training.step(torch.from_numpy(batch).to(run.device))
    if run.device.type == "cuda":
        torch.cuda.synchronize(run.device)
    _require_finite(run, result, step)
    agreed = _agree(run, time.perf_counter() - begin, stop=stop_requested())
    record = _record(run, result, step, agreed)
    if run.first_rank:
        run.log.append(record)
        _show(record, run.options.steps)
    return record, agreed.stop


def _agree(run: Run, seconds: float, *, stop: bool) -> Agreed:
    values = torch.tensor([seconds, run.memory.peak_bytes(), stop], dtype=torch.float64, device=run.device)
    dist.all_reduce(values, op=dist.ReduceOp.MAX)
    slowest, heaviest, any_stop = values.tolist()
    return Agreed(slowest, int(heaviest), bool(any_stop))


def _record(run: Run, result: StepResult, step: int, agreed: Agreed) -> StepRecord:
    estimate = run.plan.estimate
    return StepRecord(
        step=step,
        loss=result.loss,
        grad_norm=result.grad_norm,
        learning_rate=result.learning_rate,
        step_seconds=agreed.step_seconds,
        predicted_step_seconds=estimate.step_seconds,
        tokens_per_second=run.plan.workload.tokens / agreed.step_seconds,
        # MFU is model FLOPs over time and peak: the same FLOPs and peak as predicted, in the measured time
        mfu=estimate.mfu * estimate.step_seconds / agreed.step_seconds,
        peak_memory_bytes=agreed.peak_memory_bytes,
        predicted_peak_memory_bytes=estimate.peak_memory_bytes,
    )


def _save_is_due(options: RunOptions, step: int) -> bool:
    if options.checkpoint_dir is None:
        return False
    every = options.checkpoint_every
    return step == options.steps or (every is not None and step % every == 0)


def _save(run: Run, position: Position) -> Path:
    folder = run.options.checkpoint_dir
    assert folder is not None
    info = CheckpointInfo(
        step=position.step,
        sequences=position.sequences,
        plan_id=run.plan.id,
        model=model_hash(run.plan.model),
        seq_len=run.plan.workload.seq_len,
        seed=run.options.seed,
        dtype=run.options.dtype,
        data_fingerprint=run.fingerprint,
        files={},
    )
    return store.save(folder, run.training.state_dict(), info, keep=run.options.keep_checkpoints)


def _require_finite(run: Run, result: StepResult, step: int) -> None:
    """Raise RunError, on every rank alike, before weights that are no numbers can be saved."""
    for name, number in (("loss", result.loss), ("gradient norm", result.grad_norm)):
        if not math.isfinite(number):
            complete = list_complete(run.options.checkpoint_dir) if run.options.checkpoint_dir else []
            kept = f"; the newest checkpoint, {complete[-1]}, is from before" if complete else ""
            raise RunError(f"the {name} is {number} at step {step}{kept}")


def _show(record: StepRecord, steps: int) -> None:
    sys.stderr.write(
        f"step {record.step}/{steps}  loss {record.loss:.4f}  {format_seconds(record.step_seconds)}"
        f" (predicted {format_seconds(record.predicted_step_seconds)})  {record.tokens_per_second:.0f} tokens/s\n"
    )
    sys.stderr.flush()


def _summarize(
    run: Run,
    begin: Position,
    records: list[StepRecord],
    status: Literal["finished", "stopped"],
    saved: Path | None,
) -> RunSummary:
    estimate = run.plan.estimate
    summary = RunSummary(
        plan_id=run.plan.id,
        run_dir=run.log.run_dir,
        status=status,
        ranks=dist.get_world_size(),
        first_step=begin.step + 1,
        last_step=begin.step + len(records),
        first_loss=None,
        last_loss=None,
        step_seconds=None,
        predicted_step_seconds=estimate.step_seconds,
        tokens_per_second=None,
        mfu=None,
        peak_memory_bytes=None,
        predicted_peak_memory_bytes=estimate.peak_memory_bytes,
        checkpoint=saved,
    )
    if not records:
        return summary
    return replace(
        summary,
        first_loss=records[0].loss,
        last_loss=records[-1].loss,
        step_seconds=statistics.median(record.step_seconds for record in records),
        tokens_per_second=statistics.median(record.tokens_per_second for record in records),
        mfu=statistics.median(record.mfu for record in records),
        peak_memory_bytes=records[-1].peak_memory_bytes,
    )
