"""Which sequences a step trains on: a pure function of the seed and of how many sequences came before.

The corpus is cut into windows of seq_len + 1 tokens that start every seq_len tokens, so that each token but the
first is predicted once. An epoch visits every window once in an order chosen by (seed, epoch); sequence i of the
run is window i of that endless row. A global batch is a run of consecutive sequences whatever the layout, and a
data rank takes its own slice of it: nothing has to be saved to resume, and any number of ranks sees the same data.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from autoplan.errors import DataError
from autoplan.executor.data.corpus import Corpus, TokenType, open_corpus
from autoplan.executor.data.shuffle import permute
from autoplan.spec.plan import Plan


@dataclass(frozen=True, slots=True)
class Windows:
    """Shuffled windows of a corpus."""

    corpus: Corpus
    seq_len: int
    seed: int

    @property
    def num_windows(self) -> int:
        """Windows of one epoch."""
        return (self.corpus.num_tokens - 1) // self.seq_len

    def sequences(self, first: int, count: int) -> NDArray[np.int64]:
        """Return sequences `first` to `first + count` of the run, shape (count, seq_len + 1)."""
        windows = [self._window(number) for number in range(first, first + count)]
        return np.stack([self.corpus.read(window * self.seq_len, self.seq_len + 1) for window in windows])

    def describe(self) -> dict[str, int | str]:
        """Return what `run.json` records: path, type, sizes, and a fingerprint that changes when the content does."""
        corpus = self.corpus
        return {
            "path": str(corpus.root),
            "type": corpus.dtype,
            "num_files": len(corpus.files),
            "num_bytes": corpus.num_bytes,
            "num_tokens": corpus.num_tokens,
            "fingerprint": corpus.fingerprint(),
        }

    def _window(self, sequence: int) -> int:
        epoch, place = divmod(sequence, self.num_windows)
        index = np.array([place], dtype=np.uint64)
        return int(permute(index, size=self.num_windows, seed=self.seed, epoch=epoch)[0])


def open_data(path: Path, plan: Plan, *, seed: int, dtype: TokenType | None = None) -> Windows:
    """Open the data of a run.

    Raises DataError when the data cannot be read (see `open_corpus`) or is shorter than one global batch.
    """
    workload = plan.workload
    corpus = open_corpus(path, vocab_size=plan.model.vocab_size, dtype=dtype)
    needed = workload.tokens + 1
    if corpus.num_tokens < needed:
        raise DataError(
            f"one global batch of {workload.global_batch} sequences of {workload.seq_len} tokens needs {needed} tokens,"
            f" there are {corpus.num_tokens}",
            where=str(path),
        )
    return Windows(corpus, workload.seq_len, seed)


def read_batch(data: Windows, first: int, *, global_batch: int, rank: int, ranks: int) -> NDArray[np.int64]:
    """Return the sequences of data rank `rank` of `ranks` in the global batch that starts at sequence `first`."""
    share = global_batch // ranks
    return data.sequences(first + rank * share, share)
