"""The times of the chunks of k configurations that have the same chunks."""

from dataclasses import dataclass

import numpy as np

from costmodels.batch import Bools, Floats
from costmodels.pipeline.grouping import Group
from costmodels.pipeline.jobs import chunk_rank


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkTimes:
    """Seconds by chunk and configuration, (chunks, k), of what keeps a rank busy: sends too where they block.

    `forward_travel` and `backward_travel` are how long an activation or a gradient then takes to the next chunk.
    """

    forward: Floats
    backward: Floats
    weight: Floats
    whole: Floats
    forward_travel: Floats
    backward_travel: Floats

    def parts(self) -> tuple[Floats, Floats]:
        """Return what a program runs with: seconds and travel by part, each (4·chunks, k)."""
        seconds = np.concatenate([self.forward, self.backward, self.weight, self.whole])
        nothing = np.zeros_like(self.weight)
        return seconds, np.concatenate([self.forward_travel, self.backward_travel, nothing, self.backward_travel])


def take_times(
    group: Group, forward: Floats, backward: Floats, weight: Floats, send_seconds: Floats, send_blocks: Bools
) -> ChunkTimes:
    """Return the times of a group's rows; the columns past its chunks are left out."""
    rows, chunks = group.rows, group.chunks
    f, b, w = (np.ascontiguousarray(times[rows, :chunks].T) for times in (forward, backward, weight))
    ranks = chunk_rank(group.schedule, pp=group.pp, virtual_stages=group.virtual_stages)
    crosses = (ranks[1:] != ranks[:-1])[:, None]
    none = np.zeros((1, len(rows)))
    on = np.concatenate([crosses * send_seconds[rows], none])
    back = np.concatenate([none, crosses * send_seconds[rows]])
    blocks = send_blocks[rows]
    return ChunkTimes(
        forward=f + on * blocks,
        backward=b + back * blocks,
        weight=w,
        whole=b + w + back * blocks,
        forward_travel=on * ~blocks,
        backward_travel=back * ~blocks,
    )
