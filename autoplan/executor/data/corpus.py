"""Training data on disk as one long row of tokens: text as bytes, or `.bin` files of token ids.

* A file of any other name is text: each byte is a token, 0 to 255.
* `NAME.u16.bin` and `NAME.u32.bin` hold little-endian unsigned ids of that width. A plain `NAME.bin` holds
  16-bit ids when the vocabulary has at most 65,536 entries and 32-bit ids else, as nanoGPT and Megatron-LM write
  them. `dtype` overrides the name.
* A folder stands for all its files in the order of their paths: hidden files, and files with a NUL byte in
  their first 8,000 bytes (git's rule for "binary"), are left out; with `.bin` files there must be no others.

Nothing is kept in memory: a window is read when it is asked for, so that the corpus is held once, in the
page cache, and not by every rank.
"""

import hashlib
import os
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from autoplan.errors import DataError

TokenType = Literal["bytes", "uint16", "uint32"]

_NUMPY_TYPES: dict[TokenType, np.dtype[Any]] = {
    "bytes": np.dtype("u1"),
    "uint16": np.dtype("<u2"),
    "uint32": np.dtype("<u4"),
}
_NUL_SEARCHED_BYTES = 8000
_SAMPLES, _SAMPLE_TOKENS = 64, 1024
_SCANNED_TOKENS = 2**28  # about a second from the page cache


@dataclass(frozen=True, slots=True)
class TokenFile:
    """One file: its tokens are number `first` to `first + num_tokens` of the corpus."""

    path: Path
    first: int
    num_tokens: int


@dataclass(frozen=True, slots=True)
class Corpus:
    """The files of a corpus in order, all of one token type."""

    root: Path
    dtype: TokenType
    files: tuple[TokenFile, ...]
    vocab_size: int

    @property
    def num_tokens(self) -> int:
        """Tokens of all files together."""
        return self.files[-1].first + self.files[-1].num_tokens

    @property
    def num_bytes(self) -> int:
        """Bytes of all files together."""
        return self.num_tokens * int(_NUMPY_TYPES[self.dtype].itemsize)

    def read(self, first: int, count: int) -> NDArray[np.int64]:
        """Return tokens `first` to `first + count`; raises DataError for an id outside the vocabulary."""
        parts = [self._read_file(file, start, number) for file, start, number in self._pieces(first, count)]
        return np.concatenate(parts).astype(np.int64)

    def scan(self) -> None:
        """Raise DataError for an id outside the vocabulary in the first 2²⁸ tokens; others are checked when read."""
        if self.dtype == "bytes":
            return
        end, step = min(self.num_tokens, _SCANNED_TOKENS), 2**22
        for first in range(0, end, step):
            self.read(first, min(step, end - first))

    def fingerprint(self) -> str:
        """Return a hash of the files' names and sizes and of tokens sampled evenly over the whole corpus."""
        digest = hashlib.sha256(self.dtype.encode())
        for file in self.files:
            digest.update(f"\n{self._name(file)} {file.num_tokens}".encode())
        count = min(_SAMPLE_TOKENS, self.num_tokens)
        for sample in range(_SAMPLES):
            first = (self.num_tokens - count) * sample // (_SAMPLES - 1)
            digest.update(self.read(first, count).astype("<u4").tobytes())
        return digest.hexdigest()

    def _name(self, file: TokenFile) -> str:
        return file.path.relative_to(self.root).as_posix() if file.path != self.root else ""

    def _pieces(self, first: int, count: int) -> Iterator[tuple[TokenFile, int, int]]:
        number = bisect_right(self.files, first, key=lambda file: file.first) - 1
        while count:
            file = self.files[number]
            taken = min(count, file.first + file.num_tokens - first)
            yield file, first - file.first, taken
            first, count, number = first + taken, count - taken, number + 1

    def _read_file(self, file: TokenFile, start: int, count: int) -> NDArray[Any]:
        kind = _NUMPY_TYPES[self.dtype]
        try:
            tokens: NDArray[Any] = np.fromfile(file.path, dtype=kind, count=count, offset=start * kind.itemsize)
        except OSError as problem:
            raise DataError(f"cannot be read: {problem.strerror or problem}", where=str(file.path)) from None
        if len(tokens) < count:
            raise DataError("has become shorter since it was opened", where=str(file.path))
        if tokens.max() >= self.vocab_size:
            at = int((tokens >= self.vocab_size).argmax())
            raise DataError(
                f"token {start + at} is {tokens[at]}, the vocabulary has {self.vocab_size} entries"
                f" (read as {self.dtype}; name it .u16.bin or .u32.bin if that is wrong)",
                where=str(file.path),
            )
        return tokens


def open_corpus(path: Path, *, vocab_size: int, dtype: TokenType | None = None) -> Corpus:
    """Open a file or folder of training data.

    Raises DataError when it is missing, empty or unreadable, mixes text and `.bin`, has a broken token at the
    end, or cannot hold bytes because the vocabulary has fewer than 256 entries.
    """
    paths = _list_files(path)
    kind = dtype or _type_of(paths, root=path, vocab_size=vocab_size)
    if kind == "bytes" and vocab_size < 256:
        raise DataError(f"text needs a vocabulary of 256 bytes, the model has {vocab_size} entries", where=str(path))
    corpus = Corpus(root=path, dtype=kind, files=tuple(_measure(paths, kind)), vocab_size=vocab_size)
    if not corpus.files:
        raise DataError("holds no tokens", where=str(path))
    return corpus


def _list_files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise DataError("no such file or folder", where=str(path))
    found: list[Path] = []
    for folder, folders, names in os.walk(path):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [Path(folder, name) for name in names if not name.startswith(".")]
    files = sorted((file for file in found if file.is_file()), key=lambda file: file.relative_to(path).parts)
    kept = [file for file in files if file.suffix == ".bin" or not _is_binary(file)]
    if not kept:
        raise DataError("holds no text and no .bin file", where=str(path))
    return kept


def _is_binary(path: Path) -> bool:
    try:
        with path.open("rb") as stream:
            return b"\0" in stream.read(_NUL_SEARCHED_BYTES)
    except OSError as problem:
        raise DataError(f"cannot be read: {problem.strerror or problem}", where=str(path)) from None


def _type_of(paths: list[Path], *, root: Path, vocab_size: int) -> TokenType:
    kinds = {_type_of_file(path, vocab_size): path for path in paths}
    if len(kinds) > 1:
        listed = ", ".join(f"{path.name} ({kind})" for kind, path in sorted(kinds.items()))
        raise DataError(f"mixes files of several kinds: {listed}", where=str(root))
    return next(iter(kinds))


def _type_of_file(path: Path, vocab_size: int) -> TokenType:
    if path.suffix != ".bin":
        return "bytes"
    if path.suffixes[-2:-1] == [".u32"]:
        return "uint32"
    if path.suffixes[-2:-1] == [".u16"]:
        return "uint16"
    if vocab_size > 2**16:
        return "uint32"
    _refuse_wider_ids(path)
    return "uint16"


def _refuse_wider_ids(path: Path) -> None:
    """Raise DataError when ids taken for 16-bit ones look like 32-bit ones: every second is 0 then."""
    start = np.fromfile(path, dtype="<u2", count=4096)
    if len(start) >= 16 and not start[1::2].any() and start[::2].any():
        raise DataError(
            "every second 16-bit token is 0, as if the ids had 32 bits: name the file .u32.bin, or .u16.bin if they"
            " have not",
            where=str(path),
        )


def _measure(paths: list[Path], kind: TokenType) -> Iterator[TokenFile]:
    width, first = _NUMPY_TYPES[kind].itemsize, 0
    for path in paths:
        num_bytes = path.stat().st_size
        if num_bytes % width:
            raise DataError(f"has {num_bytes} bytes, which is not a multiple of {width} ({kind})", where=str(path))
        if num_bytes:
            yield TokenFile(path, first, num_bytes // width)
            first += num_bytes // width
