"""The warning of the readers: something in a file was left out, and may matter."""

import warnings


class ReaderWarning(UserWarning):
    """A file was read, but a part of it that may matter was left out; the text names file and field."""


def notice(message: str, *, where: str) -> None:
    """Warn that something in `where` was left out."""
    warnings.warn(f"{where}: {message}", ReaderWarning, stacklevel=3)
