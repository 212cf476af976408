"""Disks that are full."""

import errno
from pathlib import Path


def fill(folder: Path, *, leave: int) -> None:
    """Write `filling` until nothing goes onto the disk any more, then give `leave` bytes back."""
    path = folder / "filling"
    with path.open("wb", buffering=0) as stream:
        try:
            while True:
                stream.write(bytes(4096))
        except OSError as problem:
            assert problem.errno == errno.ENOSPC  # noqa: PT017 -- how a full disk says so
        stream.truncate(stream.tell() - leave)
