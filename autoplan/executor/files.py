"""Writing files so that a reader sees the old content or the new one, never half of it."""

import os
from pathlib import Path


def write_atomically(path: Path, text: str) -> None:
    """Write `text` to a temporary name beside `path`, force it to disk, and rename it."""
    temporary = path.with_name(f".{path.name}.partial")
    with temporary.open("w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    temporary.replace(path)
