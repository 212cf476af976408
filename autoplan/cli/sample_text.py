"""Text that is on every machine: the source of Python's standard library, what `run` trains on without data."""

import sysconfig
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NOT_THE_LIBRARY = {"site-packages", "dist-packages", "test"}


def standard_library_text() -> str:
    """Return the source of the standard library's modules and packages, in the order of their paths."""
    root = Path(sysconfig.get_path("stdlib"))
    sources = sorted([*root.glob("*.py"), *root.glob("[a-z]*/*.py")])
    kept = [source for source in sources if source.parent.name not in NOT_THE_LIBRARY]
    return "\n".join(source.read_text(encoding="utf-8", errors="replace") for source in kept)


@contextmanager
def training_data(given: Path | None) -> Iterator[Path]:
    """Provide `given`, or, without it, a file with the standard library's text that goes after the block."""
    if given is not None:
        yield given
        return
    with tempfile.TemporaryDirectory(prefix="autoplan-text-") as folder:
        path = Path(folder, "standard-library.txt")
        path.write_text(standard_library_text(), encoding="utf-8")
        yield path
