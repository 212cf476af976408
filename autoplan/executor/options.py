"""What a run is asked to do, and what it says when it is over."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from autoplan.errors import InputError
from autoplan.executor.data.corpus import TokenType
from autoplan.spec.plan import Dtype, Plan
from autoplan.spec.value import Count, NonNegative, Positive, value


@value
class RunOptions:
    """Options of `run`; everything else is in the plan.

    `steps` is the step at which the run ends, counted from the very first, so that a resumed run ends where an
    uninterrupted one does. Without `run_dir` the checkpoint folder is used, else a new folder in `runs/`. With a
    `checkpoint_dir` and no `checkpoint_every` one checkpoint is saved at the end. `dtype` replaces the plan's element
    types, for comparisons. `restarts` is how often the group is started again from its newest checkpoint after a rank
    was lost. `data_name` is what `run.json` calls data whose path will be gone. `timeout_seconds` is how long a rank
    waits for its peers before it gives up.
    """

    data: Path
    data_name: str | None = None
    data_dtype: TokenType | None = None
    steps: Count = 100
    seed: NonNegative = 0
    dtype: Dtype | None = None
    run_dir: Path | None = None
    checkpoint_dir: Path | None = None
    checkpoint_every: Count | None = None
    keep_checkpoints: Count = 2
    resume: bool = False
    restarts: NonNegative = 0
    timeout_seconds: Positive = 300.0

    def __post_init__(self) -> None:
        if self.checkpoint_dir is None:
            for flag, given in (
                ("--resume", self.resume),
                ("--checkpoint-every", self.checkpoint_every is not None),
                ("--restarts", self.restarts > 0),
            ):
                if given:
                    raise InputError("needs --checkpoint-dir", where=flag)


@value
class RunSummary:
    """How a run went; figures are those of the steps of this start, None when there was none left to do.

    `status` is stopped when it was asked to stop (Ctrl-C, SIGTERM) and saved what it had; times are medians.
    """

    plan_id: str
    run_dir: Path
    status: Literal["finished", "stopped"]
    ranks: int
    first_step: int
    last_step: int
    first_loss: float | None
    last_loss: float | None
    step_seconds: float | None
    predicted_step_seconds: float
    tokens_per_second: float | None
    mfu: float | None
    peak_memory_bytes: int | None
    predicted_peak_memory_bytes: int
    checkpoint: Path | None


def choose_run_dir(plan: Plan, options: RunOptions) -> Path:
    """Return the run directory: the given one, else the checkpoint folder, else a new one in `runs/`."""
    now = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    return (options.run_dir or options.checkpoint_dir or Path("runs", f"{plan.id[:12]}-{now}")).absolute()
