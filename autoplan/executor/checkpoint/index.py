"""The checkpoints of a folder: which are complete, which is the newest, and what each belongs to.

A checkpoint is a folder `step-XXXXXXXX` with the files of torch.distributed.checkpoint and `checkpoint.json`,
which is written last: a folder without it was being saved or deleted when its process ended, and is passed over.
"""

import shutil
from pathlib import Path
from typing import Literal

from autoplan.errors import CheckpointError
from autoplan.spec.codec import content_hash, from_json, to_jsonable
from autoplan.spec.model import ModelSpec
from autoplan.spec.plan import Plan
from autoplan.spec.value import NonNegative, value

INFO = "checkpoint.json"


@value
class CheckpointInfo:
    """`checkpoint.json`: where training stood, what it trained, and the SHA-256 of every file.

    `sequences` is how many sequences of the data were used before it, which is the position in the data.
    """

    schema: Literal["autoplan.checkpoint/1"] = "autoplan.checkpoint/1"
    step: NonNegative
    sequences: NonNegative
    plan_id: str
    model: str
    seq_len: int
    seed: int
    dtype: str | None
    data_fingerprint: str
    files: dict[str, str]


def checkpoint_path(folder: Path, step: int) -> Path:
    """Return where the checkpoint after `step` steps is."""
    return folder / f"step-{step:08d}"


def model_hash(model: ModelSpec) -> str:
    """Return the hash by which checkpoints know their model: everything but its name."""
    return content_hash({key: item for key, item in to_jsonable(model).items() if key != "name"})


def list_complete(folder: Path) -> list[Path]:
    """Return the complete checkpoints of a folder, oldest first."""
    return sorted(path.parent for path in folder.glob(f"step-*/{INFO}"))


def find_latest(folder: Path) -> Path:
    """Return the newest complete checkpoint; raises CheckpointError when there is none."""
    complete = list_complete(folder)
    if not complete:
        raise CheckpointError("holds no complete checkpoint to resume from", where=str(folder))
    return complete[-1]


def read_info(path: Path) -> CheckpointInfo:
    """Read a checkpoint's `checkpoint.json`; raises CheckpointError, with the way out, when it is damaged."""
    where = str(path / INFO)
    try:
        return from_json(CheckpointInfo, (path / INFO).read_bytes(), where=where, error=CheckpointError)
    except OSError as problem:
        raise CheckpointError(f"cannot be read: {problem.strerror}", where=where) from None
    except CheckpointError as problem:
        raise CheckpointError(f"is damaged: {problem.message}; {way_out(path)}", where=problem.where) from None


def way_out(path: Path) -> str:
    """Return what to do about a damaged checkpoint."""
    return f"remove {path} to resume from an older checkpoint"


def require_same_run(
    info: CheckpointInfo, plan: Plan, *, seed: int, dtype: str | None, data_fingerprint: str, where: Path
) -> None:
    """Raise CheckpointError when going on would not continue the run that saved the checkpoint.

    The plan may differ: the same model is laid out anew over other ranks.
    """
    if info.model != model_hash(plan.model):
        raise CheckpointError(f"is of another model than {plan.model.name}", where=str(where))
    for name, saved, now in (
        ("sequence length", info.seq_len, plan.workload.seq_len),
        ("seed", info.seed, seed),
        ("dtype", info.dtype, dtype),
    ):
        if saved != now:
            raise CheckpointError(f"was trained with {name} {saved}, the run has {now}", where=str(where))
    if info.data_fingerprint != data_fingerprint:
        raise CheckpointError("was trained on other data: the content of the data has changed since", where=str(where))


def sweep(folder: Path) -> None:
    """Delete what is left of checkpoints that were being saved when their run was killed; no run may be on."""
    for partial in folder.glob(".step-*.partial"):
        shutil.rmtree(partial, ignore_errors=True)


def prune(folder: Path, *, keep: int) -> None:
    """Delete all complete checkpoints but the newest `keep`; a deletion cut short leaves none that looks complete."""
    for path in list_complete(folder)[:-keep]:
        (path / INFO).unlink()
        shutil.rmtree(path)
