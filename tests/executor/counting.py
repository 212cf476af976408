"""Counts operators by name while it is active."""

from collections import Counter

from torch.utils._python_dispatch import TorchDispatchMode


class CountOperators(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.counts = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.counts[str(func)] += 1
        return func(*args, **(kwargs or {}))

    def collectives(self):
        """Return the counts of collectives only."""
        names = ("c10d.", "_c10d_functional.")
        return {op: n for op, n in self.counts.items() if op.startswith(names) and "wait" not in op}
