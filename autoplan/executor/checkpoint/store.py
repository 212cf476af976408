"""Saving and loading checkpoints with torch.distributed.checkpoint: every rank writes and reads its own part.

The state has global names and global shapes (DTensors), so that a checkpoint can be loaded under any plan of the
same model. All functions are collective. The folder must be one that all ranks see.
"""

import hashlib
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver
from torch.distributed.checkpoint.api import CheckpointException

from autoplan.errors import CheckpointError, RunError
from autoplan.executor.checkpoint.index import INFO, CheckpointInfo, checkpoint_path, prune, read_info, way_out
from autoplan.executor.files import write_atomically
from autoplan.executor.together import on_first_rank, together
from autoplan.spec.codec import to_json

State = dict[str, Any]


def save(folder: Path, state: State, info: CheckpointInfo, *, keep: int) -> Path:
    """Save `state` as the checkpoint after `info.step` steps and delete all but the newest `keep`.

    It is written under another name and renamed when all of it is on disk. Raises RunError when a rank cannot write;
    earlier checkpoints stay then, and nothing of this one.
    """
    path = checkpoint_path(folder, info.step)
    partial = path.with_name(f".{path.name}.partial")
    on_first_rank(_writing(lambda: _start_empty(partial)))
    try:
        files = _write(partial, state, path)
        on_first_rank(_writing(lambda: _complete(partial, path, replace(info, files=files), keep)))
    except RunError:  # raised on all ranks alike: none writes any more
        if dist.get_rank() == 0:
            shutil.rmtree(partial, ignore_errors=True)
        raise
    return path


def load(path: Path, state: State) -> None:
    """Fill `state` from a checkpoint in place.

    Raises CheckpointError when a file is missing or damaged, or when the checkpoint lacks a part of `state`.
    """
    together(lambda: _verify_share(path, read_info(path)))
    try:
        state_dict_loader.load(state, checkpoint_id=path)
    except (CheckpointException, RuntimeError, ValueError, KeyError) as error:
        if isinstance(error, dist.DistError):
            raise
        raise CheckpointError(f"does not fit the plan: {_first_cause(error)}", where=str(path)) from error


def _write(partial: Path, state: State, path: Path) -> dict[str, str]:
    """Write all ranks' parts into `partial`; returns the hash of each file."""
    try:
        state_dict_saver.save(state, checkpoint_id=partial)
    except CheckpointException as error:
        raise RunError(f"checkpoint {path} cannot be written: {_first_cause(error)}") from None
    hashes = together(_writing(lambda: _hash_own_files(partial)))
    return {name: digest for part in hashes for name, digest in part.items()}


def _start_empty(partial: Path) -> None:
    if partial.exists():
        shutil.rmtree(partial)
    partial.mkdir(parents=True)


def _complete(partial: Path, path: Path, info: CheckpointInfo, keep: int) -> None:
    write_atomically(partial / INFO, to_json(info))
    if path.exists():
        (path / INFO).unlink(missing_ok=True)
        shutil.rmtree(path)
    partial.rename(path)
    prune(path.parent, keep=keep)


def _hash_own_files(partial: Path) -> dict[str, str]:
    """Hash the files that this rank wrote: `__RANK_NUMBER.distcp`, and on rank 0 the metadata."""
    rank = dist.get_rank()
    own = list(partial.glob(f"__{rank}_*")) + ([partial / ".metadata"] if rank == 0 else [])
    return {path.name: _hash(path) for path in own}


def _verify_share(path: Path, info: CheckpointInfo) -> None:
    """Check every n-th file, so that n ranks check each file once."""
    for name in sorted(info.files)[dist.get_rank() :: dist.get_world_size()]:
        file = path / name
        try:
            damaged = _hash(file) != info.files[name]
        except OSError as problem:
            raise CheckpointError(f"cannot be read: {problem.strerror}", where=str(file)) from None
        if damaged:
            raise CheckpointError(f"is damaged: its content is not what was saved; {way_out(path)}", where=str(file))


def _hash(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _writing(action: Callable[[], Any]) -> Callable[[], Any]:
    def attempt() -> Any:
        try:
            return action()
        except OSError as problem:
            raise RunError(f"checkpoint cannot be written: {problem}", rank=dist.get_rank()) from None

    return attempt


def _first_cause(error: BaseException) -> str:
    if isinstance(error, CheckpointException) and error.failures:
        rank, (cause, _trace) = min(error.failures.items(), key=lambda item: item[0])
        return f"rank {rank}: {cause}"
    return str(error)
