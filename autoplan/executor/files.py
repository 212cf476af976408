"""Writing files so that a reader sees the old content or the new one, never half of it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from autoplan.errors import RunError


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an OSError of the block, such as that of a full disk, into a RunError that names `path`."""
    try:
        yield
    except OSError as problem:
        raise RunError(f"{path} cannot be written: {problem.strerror or problem}") from None


def write_atomically(path: Path, text: str) -> None:
    """Write `text` to a temporary name beside `path`, force it to disk, and rename it.

    Raises RunError when it cannot be written; the old content stays then, and no temporary file.
    """
    temporary = path.with_name(f".{path.name}.partial")
    with writing(path):
        try:
            with temporary.open("w", encoding="utf-8") as stream:
                stream.write(text)
                stream.flush()
                os.fsync(stream.fileno())
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
