"""Progress over parts that take different shares of the time."""

from collections.abc import Callable
from dataclasses import dataclass

OnProgress = Callable[[str, float], None]


@dataclass(frozen=True, slots=True)
class Phase:
    """One part of the whole: it begins at fraction `start` and takes `share` of the time."""

    on_progress: OnProgress
    start: float
    share: float

    def report(self, fraction: float, text: str) -> None:
        """Tell that `fraction` (0..1) of this part is done and that `text` comes now."""
        self.on_progress(text, min(self.start + self.share * fraction, 1.0))


def split_phases(on_progress: OnProgress, seconds: dict[str, float]) -> dict[str, Phase]:
    """Return a phase for each named part, one after the other, with shares as the expected `seconds`."""
    total = sum(seconds.values())
    phases: dict[str, Phase] = {}
    before = 0.0
    for name, expected in seconds.items():
        phases[name] = Phase(on_progress, before / total, expected / total)
        before += expected
    return phases
