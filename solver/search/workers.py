"""Bounds of many nodes at once, by as many processes as there are cores.

Nodes are bounded in parts, and the parts do not depend on how many processes there are: sums may differ in their last
digits with the size of arrays, and so would the order of nodes. Processes are started once a search has proved long.
Without one that died, or where none can be had, this process does their part itself.
"""

import os
import signal
import sys
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from multiprocessing import current_process, get_context

import numpy as np

from costmodels.batch import Batch, Floats
from solver.search.bounds import Bounds

PART = 4096
"""Nodes that are bounded together."""
LONG = 20_000
"""Nodes after which a search has proved long enough for other processes to be worth their start."""
MOST = 8
"""Processes at most: what is left over takes longer than the bounds then."""


def usual_processes() -> int:
    """Return how many processes a search uses: one a core, and one alone where others cannot be started from."""
    if sys.platform != "linux" or current_process().daemon:
        return 1
    return min(len(os.sched_getaffinity(0)), MOST)


@dataclass(slots=True, kw_only=True)
class Workers:
    """Bounds nodes with up to `processes` processes, this one among them; to be closed."""

    processes: int = field(default_factory=usual_processes)
    _bounded: int = 0
    _pool: ProcessPoolExecutor | None = None

    def bound(self, bounds: Bounds, nodes: Batch, level: int) -> Floats:
        """Return the bounds (n,) of nodes whose axes are decided up to and with `level`."""
        parts = [nodes.take(slice(start, start + PART)) for start in range(0, len(nodes), PART)]
        if len(parts) < 2:
            return bounds.of(nodes, level)
        self._bounded += len(nodes)
        shares = self._send(bounds, parts, level)
        found = [bounds.of(part, level) if share is None else share for part, share in zip(parts, shares, strict=True)]
        return np.concatenate([self._receive(each, bounds, parts[i], level) for i, each in enumerate(found)])

    def close(self) -> None:
        """End the other processes once they have done what they are doing."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None

    def _send(self, bounds: Bounds, parts: Sequence[Batch], level: int) -> list[Future[Floats] | None]:
        """Give every other process its share of the parts; None stands for those that are left."""
        try:
            pool = self._find_pool()
            if pool is not None:
                return [
                    pool.submit(bounds.of, part, level) if i % self.processes else None for i, part in enumerate(parts)
                ]
        except (BrokenProcessPool, OSError):  # one was killed, or there is no room for another
            self._give_up()
        return [None] * len(parts)

    def _find_pool(self) -> ProcessPoolExecutor | None:
        """Return the other processes, started where the search has proved long."""
        if self._pool is None and self.processes > 1 and self._bounded > LONG:
            context = get_context("fork")
            self._pool = ProcessPoolExecutor(self.processes - 1, mp_context=context, initializer=_ignore_interrupts)
        return self._pool

    def _receive(self, found: Floats | Future[Floats], bounds: Bounds, part: Batch, level: int) -> Floats:
        if not isinstance(found, Future):
            return found
        try:
            return found.result()
        except BrokenProcessPool:
            self._give_up()
            return bounds.of(part, level)

    def _give_up(self) -> None:
        self.close()
        self.processes = 1


def _ignore_interrupts() -> None:
    """Leave Ctrl-C, which every process of a terminal gets, to the process that searches."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
