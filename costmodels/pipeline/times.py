"""The times of the chunks of k configurations that have the same chunks."""

from dataclasses import dataclass

import numpy as np

from costmodels.batch import Bools, Floats, Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkTimes:
    """Seconds by chunk and configuration, (chunks, k), of what keeps a rank busy: sends too where they block.

    `beside` is a whole backward as the second part of a pair. `forward_travel` and `backward_travel` are how long an
    activation or a gradient then takes to the next chunk.
    """

    forward: Floats
    backward: Floats
    weight: Floats
    whole: Floats
    beside: Floats
    forward_travel: Floats
    backward_travel: Floats

    def parts(self) -> tuple[Floats, Floats]:
        """Return what a program runs with: seconds and travel by part, each (6·chunks, k).

        What a paired forward puts out leaves after the backward on the other chunk of its rank, as far from the last
        chunk as its own is from the first.
        """
        nothing, paired = np.zeros_like(self.weight), self.beside[::-1] + self.forward_travel
        back = self.backward_travel
        travel = [self.forward_travel, back, nothing, back, paired, back]
        return part_seconds(self.forward, self.backward, self.weight, self.whole, self.beside), np.concatenate(travel)


def chunk_times(
    ranks: Ints,
    *,
    forward: Floats,
    backward: Floats,
    weight: Floats,
    saved: Floats,
    send_seconds: Floats,
    send_blocks: Bools,
) -> ChunkTimes:
    """Return the times of k configurations from those without sends.

    `ranks` (chunks,) says which rank holds each chunk; the times have shape (chunks, k), those of sends (k,). `saved`,
    by the chunk of the forward, is what pairs save.
    """
    crosses = (ranks[1:] != ranks[:-1])[:, None]
    none = np.zeros((1, len(send_seconds)))
    on = np.concatenate([crosses * send_seconds, none])
    back = np.concatenate([none, crosses * send_seconds])
    whole = backward + weight + back * send_blocks
    return ChunkTimes(
        forward=forward + on * send_blocks,
        backward=backward + back * send_blocks,
        weight=weight,
        whole=whole,
        beside=whole - saved[::-1],
        forward_travel=on * ~send_blocks,
        backward_travel=back * ~send_blocks,
    )


def part_seconds(forward: Floats, backward: Floats, weight: Floats, whole: Floats, beside: Floats) -> Floats:
    """Return the seconds of all parts of a program from those by chunk, along the first axis."""
    return np.concatenate([forward, backward, weight, whole, forward, beside])
