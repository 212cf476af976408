"""Layer boundaries of a pipeline whose own are not known: what a framework does that is told no more than the depth."""

import numpy as np

from autoplan.spec import ModelSpec
from costmodels.batch import Batch, Floats, Ints, even_cuts


def usual_cuts(model: ModelSpec, batch: Batch, turn_seconds: Floats) -> Ints:
    """Return the cuts (n, max_chunks + 1) of configurations whose units cost `turn_seconds` (n, u).

    The same number of layers in every chunk where the depth allows it; else chunks of nearly the same time, the
    embedding counted to the first and the head to the last.
    """
    cuts = even_cuts(model.num_layers, batch.chunks)
    for i in np.flatnonzero(model.num_layers % batch.chunks).tolist():
        chunks = int(batch.chunks[i])
        layers = turn_seconds[i][np.asarray(model.layer_blocks)]
        cuts[i, : chunks + 1] = timed_cuts(layers, first=turn_seconds[i, -3], last=turn_seconds[i, -2], chunks=chunks)
    return cuts


def timed_cuts(layers: Floats, *, first: float, last: float, chunks: int) -> Ints:
    """Return boundaries (chunks + 1,) nearest to equal shares of the time; a chunk may be left without a layer.

    `layers` (l,) are the seconds of each layer, `first` and `last` what the first and the last chunk have besides.
    """
    done = first + np.concatenate([[0.0], np.cumsum(layers)])
    shares = (done[-1] + last) * np.arange(1, chunks) / chunks
    inner = np.abs(done[:, None] - shares).argmin(axis=0)
    return np.array([0, *inner.tolist(), len(layers)])
