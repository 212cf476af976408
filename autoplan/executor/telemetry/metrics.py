"""What a run writes about itself: `metrics.jsonl`, one line a step, and `run.json`."""

import json
import platform
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Literal

from autoplan.errors import InputError
from autoplan.executor.files import write_atomically, writing
from autoplan.spec.codec import from_json, from_jsonable, to_json
from autoplan.spec.plan import Plan
from autoplan.spec.value import value

METRICS, RUN = "metrics.jsonl", "run.json"


@value
class StepRecord:
    """One line of `metrics.jsonl`; `step` counts from 1 and `grad_norm` is before clipping.

    `step_seconds` is the slowest rank's wall time from asking for the data to the end of the optimizer step;
    `peak_memory_bytes` the heaviest rank's so far (see `memory.PeakMemory` for what that is).
    """

    step: int
    loss: float
    grad_norm: float
    learning_rate: float
    step_seconds: float
    predicted_step_seconds: float
    tokens_per_second: float
    mfu: float
    peak_memory_bytes: int
    predicted_peak_memory_bytes: int


@value
class RunRecord:
    """`run.json`: what ran, on what, from which data; `resumed_at` lists the steps it was resumed from."""

    schema: Literal["autoplan.run/1"] = "autoplan.run/1"
    plan_id: str
    model: str
    ranks: int
    device: str
    peak_memory_kind: str
    seed: int
    dtype: str
    steps: int
    data: dict[str, int | str]
    versions: dict[str, str]
    started_at: str
    resumed_at: tuple[int, ...] = ()
    status: Literal["running", "finished", "stopped", "failed"] = "running"


@dataclass(frozen=True, slots=True)
class RunLog:
    """The two files of a run directory; one rank alone writes them."""

    run_dir: Path

    def begin(self, record: RunRecord, *, first_step: int) -> RunRecord:
        """Write `run.json` and leave only the lines of steps before `first_step` in `metrics.jsonl`.

        A line that was cut short when the run was killed goes too, and steps after the last checkpoint are
        going to be written again. A resumed run keeps the earlier start time and list of resumptions. Raises
        RunError, as every method here, when a file cannot be written.
        """
        with writing(self.run_dir):
            self.run_dir.mkdir(parents=True, exist_ok=True)
        kept = [line for line in read_metrics(self.run_dir) if line.step < first_step]
        if first_step > 1 and (earlier := _read_run(self.run_dir)) is not None:
            resumed_at = (*earlier.resumed_at, first_step - 1)
            record = replace(record, started_at=earlier.started_at, resumed_at=resumed_at)
        self.write(record)
        write_atomically(self.run_dir / METRICS, "".join(_line(line) for line in kept))
        return record

    def append(self, record: StepRecord) -> None:
        """Add one line to `metrics.jsonl`."""
        path = self.run_dir / METRICS
        with writing(path), path.open("a", encoding="utf-8") as stream:
            stream.write(_line(record))

    def write(self, record: RunRecord) -> None:
        """Write `run.json`."""
        write_atomically(self.run_dir / RUN, to_json(record) + "\n")

    def end(self, record: RunRecord, status: Literal["finished", "stopped", "failed"]) -> None:
        """Write `run.json` with how the run ended."""
        self.write(replace(record, status=status))


def read_metrics(run_dir: Path) -> list[StepRecord]:
    """Read `metrics.jsonl` up to the first line that is not whole; none when there is no such file."""
    path = run_dir / METRICS
    if not path.exists():
        return []
    records: list[StepRecord] = []
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True), 1):
        try:
            data = json.loads(line)
        except ValueError:
            break
        if not line.endswith("\n"):
            break
        records.append(from_jsonable(StepRecord, data, where=f"{path}:{number}"))
    return records


def mark_failed(run_dir: Path) -> None:
    """Have `run.json` say that the run failed, when its ranks could not."""
    record = _read_run(run_dir)
    if record is not None and record.status == "running":
        RunLog(run_dir).end(record, "failed")


def new_record(plan: Plan, *, seed: int, dtype: str, steps: int, data: dict[str, int | str], memory: str) -> RunRecord:
    """Return the record of a run of `plan` that starts now."""
    return RunRecord(
        plan_id=plan.id,
        model=plan.model.name,
        ranks=plan.configuration.world_size,
        device=plan.cluster.groups[0].device.slug,
        peak_memory_kind=memory,
        seed=seed,
        dtype=dtype,
        steps=steps,
        data=data,
        versions={
            "autoplan": version("autoplan"),
            "torch": version("torch"),
            "python": platform.python_version(),
        },
        started_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def _line(record: StepRecord) -> str:
    return to_json(record, indent=None) + "\n"


def _read_run(run_dir: Path) -> RunRecord | None:
    path = run_dir / RUN
    try:
        return from_json(RunRecord, path.read_bytes(), where=str(path))
    except (OSError, InputError):
        return None
