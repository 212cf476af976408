"""Holding a run's folders, so that two runs never write into one."""

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from autoplan.errors import InputError
from autoplan.executor.options import RunOptions

LOCK = ".autoplan.lock"

_NO_LOCKS_HERE = {errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK}  # some network file systems have none


@contextmanager
def hold_folders(options: RunOptions) -> Iterator[None]:
    """Make and hold the checkpoint and run directories for the block.

    Linux frees a lock when its process ends, however it ends. Raises InputError that names the flag when another
    run holds a folder, or when the folder cannot be made.
    """
    held: set[Path] = set()
    with ExitStack() as stack:
        for folder, flag in ((options.checkpoint_dir, "--checkpoint-dir"), (options.run_dir, "--run-dir")):
            if folder is not None and folder.resolve() not in held:
                held.add(folder.resolve())
                stack.enter_context(_hold(folder, flag))
        yield


@contextmanager
def _hold(folder: Path, flag: str) -> Iterator[None]:
    path = folder / LOCK
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = _lock(path)
    except BlockingIOError:
        raise InputError(f"{folder} is in use by another run: choose another folder", where=flag) from None
    except OSError as problem:
        raise InputError(f"{folder} cannot be written: {problem.strerror}", where=flag) from None
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)


def _lock(path: Path) -> int:
    """Return a descriptor that holds the lock of `path`; raises BlockingIOError when another one does."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as problem:
            if problem.errno not in _NO_LOCKS_HERE:
                os.close(descriptor)
                raise
            return descriptor
        # a holder removes its file before it lets go: the lock may be that of a file which is gone
        if _is_at(path, descriptor):
            return descriptor
        os.close(descriptor)


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False
