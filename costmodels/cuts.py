"""Layer boundaries of a pipeline whose own are not known: what a framework does that is told no more than the depth."""

from dataclasses import replace

import numpy as np

from autoplan.spec import ModelSpec, Problem
from costmodels.batch import Batch, Cuts, Floats, Ints, even_cuts
from costmodels.coefficients import Coefficients
from costmodels.resolved import resolve
from costmodels.unit_seconds import unit_seconds


def with_usual_cuts(problem: Problem, batch: Batch, coefficients: Coefficients) -> Batch:
    """Return the batch with the cuts that a framework takes which is told no more than the depth of its pipeline."""
    seconds = unit_seconds(resolve(problem, batch, coefficients))
    return replace(batch, cuts=usual_cuts(problem.model, batch, seconds.all_forward + seconds.all_backward))


def usual_cuts(model: ModelSpec, batch: Batch, turn_seconds: Floats) -> Cuts:
    """Return the cuts (n, max_chunks + 1) of configurations whose units cost `turn_seconds` (n, u).

    The same number of layers in every chunk where the depth allows it; where it lacks two of that, as in Llama 3 405B
    (arXiv 2407.21783 section 3.3.2), the embedding and the head take the place of a layer each, which is Megatron's
    account_for_embedding_in_pipeline_split; else chunks of nearly the same time, the embedding counted to the first
    and the head to the last.
    """
    cuts = even_cuts(model.num_layers, batch.chunks)
    for i in np.flatnonzero(model.num_layers % batch.chunks).tolist():
        chunks = int(batch.chunks[i])
        if (model.num_layers + 2) % chunks == 0:
            places = np.arange(chunks + 1) * ((model.num_layers + 2) // chunks)
            cuts[i, : chunks + 1] = np.clip(places - 1, 0, model.num_layers)
            continue
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
