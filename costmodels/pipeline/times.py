"""The times of chunks: as configurations have them, and of those with the same chunks as they keep ranks busy."""

from dataclasses import dataclass

import numpy as np

from costmodels.batch import Bools, Floats, Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkSeconds:
    """Seconds of a micro-batch on the chunks of n configurations, (n, max_chunks), those of sends (n,).

    `backward` are input gradients with what is recomputed for them, `weight` weight gradients. `saved` is how much
    sooner a pair is done than its forward, whose chunk counts, and its backward one after the other; None where
    nothing is. Where `send_blocks` (n,) is true a rank computes nothing while it sends.
    """

    forward: Floats
    backward: Floats
    weight: Floats
    send_seconds: Floats
    send_blocks: Bools
    saved: Floats | None = None

    def take(self, rows: Ints, chunks: int) -> "ChunkSeconds":
        """Return some rows without the columns past their chunks."""

        def own(seconds: Floats) -> Floats:
            return seconds[rows, :chunks]

        return ChunkSeconds(
            forward=own(self.forward),
            backward=own(self.backward),
            weight=own(self.weight),
            send_seconds=self.send_seconds[rows],
            send_blocks=self.send_blocks[rows],
            saved=None if self.saved is None else own(self.saved),
        )


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


def chunk_times(ranks: Ints, seconds: ChunkSeconds) -> ChunkTimes:
    """Return the times of k configurations of the same chunks; `ranks` (chunks,) says which rank holds each."""
    forward, backward, weight = (
        np.ascontiguousarray(part.T) for part in (seconds.forward, seconds.backward, seconds.weight)
    )
    crosses = (ranks[1:] != ranks[:-1])[:, None]
    none, travel = np.zeros((1, len(seconds.send_seconds))), crosses * seconds.send_seconds
    on, back = np.concatenate([travel, none]), np.concatenate([none, travel])
    if (blocks := seconds.send_blocks).any():
        forward, backward = forward + on * blocks, backward + back * blocks
        on, back = on * ~blocks, back * ~blocks
    whole = backward + weight
    return ChunkTimes(
        forward=forward,
        backward=backward,
        weight=weight,
        whole=whole,
        beside=whole if seconds.saved is None else whole - seconds.saved.T[::-1],
        forward_travel=on,
        backward_travel=back,
    )


def part_seconds(forward: Floats, backward: Floats, weight: Floats, whole: Floats, beside: Floats) -> Floats:
    """Return the seconds of all parts of a program from those by chunk, along the first axis."""
    return np.concatenate([forward, backward, weight, whole, forward, beside])
