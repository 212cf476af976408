"""How much is measured: the grids, sizes and time budgets of a quick and of a full profile, as data."""

from dataclasses import dataclass
from typing import Literal

from autoplan.units import KIB, MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long one measurement goes on: about `seconds`, within `min_repeats` and `max_repeats`.

    What takes less than `window_seconds` is run several times for one reading of the clock; what takes more than
    `long_seconds` is run as seldom as can be.
    """

    min_repeats: int
    max_repeats: int
    seconds: float
    long_seconds: float
    window_seconds: float = 0.002


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """Grids and budgets of a profile.

    `*_seconds` is the wall time after which a part starts no further point; every point of a grid is tried
    from the smallest, so a slow device loses the largest points first. `matmul_rows` are values of m,
    `matmul_widths` pairs (k, n); `message_bytes` are sizes S of collectives.
    """

    patience: Patience
    matmul_rows: tuple[int, ...]
    matmul_widths: tuple[tuple[int, int], ...]
    matmul_seconds: float
    micro_batches: tuple[int, ...]
    seq_lens: tuple[int, ...]
    layer_seconds: float
    message_bytes: tuple[int, ...]
    collective_seconds: float
    contention_seconds: float
    optimizer_parameters: int
    copy_bytes: int


_SMALL_WIDTHS = ((64, 64), (256, 256), (256, 1024), (1024, 256), (1024, 1024))
_LARGE_WIDTHS = ((1024, 4096), (4096, 1024), (1024, 32000), (4096, 4096))
_DEVICE_WIDTHS = ((4096, 14336), (14336, 4096), (8192, 8192), (8192, 28672), (4096, 128256))

_QUICK_CPU = Effort(
    patience=Patience(min_repeats=3, max_repeats=10, seconds=0.1, long_seconds=0.5),
    matmul_rows=(16, 128, 512, 2048),
    matmul_widths=_SMALL_WIDTHS,
    matmul_seconds=7.0,
    micro_batches=(1, 4),
    seq_lens=(128, 512),
    layer_seconds=16.0,
    message_bytes=(KIB, 16 * KIB, 256 * KIB, 2 * MIB, 16 * MIB),
    collective_seconds=8.0,
    contention_seconds=0.6,
    optimizer_parameters=4_000_000,
    copy_bytes=128 * MIB,
)

_FULL_CPU = Effort(
    patience=Patience(min_repeats=5, max_repeats=30, seconds=0.5, long_seconds=2.0),
    matmul_rows=(16, 64, 256, 1024, 4096),
    matmul_widths=_SMALL_WIDTHS + _LARGE_WIDTHS,
    matmul_seconds=45.0,
    micro_batches=(1, 2, 4, 8),
    seq_lens=(128, 256, 512, 1024, 2048),
    layer_seconds=90.0,
    message_bytes=tuple(KIB * 4**step for step in range(9)),
    collective_seconds=45.0,
    contention_seconds=3.0,
    optimizer_parameters=16_000_000,
    copy_bytes=256 * MIB,
)

_QUICK_CUDA = Effort(
    patience=Patience(min_repeats=3, max_repeats=20, seconds=0.1, long_seconds=0.5),
    matmul_rows=(128, 1024, 8192),
    matmul_widths=_SMALL_WIDTHS + _LARGE_WIDTHS,
    matmul_seconds=7.0,
    micro_batches=(1, 4),
    seq_lens=(512, 2048),
    layer_seconds=16.0,
    message_bytes=(KIB, 16 * KIB, 256 * KIB, 4 * MIB, 64 * MIB),
    collective_seconds=8.0,
    contention_seconds=0.5,
    optimizer_parameters=64_000_000,
    copy_bytes=1024 * MIB,
)

_FULL_CUDA = Effort(
    patience=Patience(min_repeats=5, max_repeats=50, seconds=0.5, long_seconds=2.0),
    matmul_rows=(16, 128, 1024, 4096, 16384),
    matmul_widths=_SMALL_WIDTHS + _LARGE_WIDTHS + _DEVICE_WIDTHS,
    matmul_seconds=45.0,
    micro_batches=(1, 2, 4, 8),
    seq_lens=(512, 1024, 2048, 4096, 8192),
    layer_seconds=90.0,
    message_bytes=tuple(KIB * 4**step for step in range(9)),
    collective_seconds=45.0,
    contention_seconds=2.0,
    optimizer_parameters=256_000_000,
    copy_bytes=2048 * MIB,
)


def choose_effort(kind: Literal["cpu", "cuda"], *, quick: bool) -> Effort:
    """Return the grids and budgets for devices of `kind`."""
    if kind == "cuda":
        return _QUICK_CUDA if quick else _FULL_CUDA
    return _QUICK_CPU if quick else _FULL_CPU
