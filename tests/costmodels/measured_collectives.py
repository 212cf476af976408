"""Published timings of collectives (seconds), by table, and the links that the model is given for each.

Links inside nodes are those of the device presets; between nodes the rate is that of the table's own largest
send_recv, or its largest all_reduce.
"""

from dataclasses import dataclass

from costmodels.collective import Fabric

MIB = 2**20
PYTORCH_SECONDS = 25e-6
"""What a collective takes longer when it is called and timed from PyTorch rather than by nccl-tests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    op: str
    ranks: int
    nodes: int
    num_bytes: float
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """`factor` is how far off any row may be, either way; `extra` is added to what is predicted."""

    name: str
    fabric: Fabric
    rows: tuple[Row, ...]
    factor: float
    extra: float = 0.0


def fabric(intra, inter=(14e-6, 45e9), **changes):
    return Fabric(
        intra_latency=intra[0], intra_bandwidth=intra[1], inter_latency=inter[0], inter_bandwidth=inter[1], **changes
    )


A100, H100, B200 = (4e-6, 235e9), (2e-6, 365e9), (1.6e-6, 682e9)


def sizes(op, ranks, nodes, microseconds, mebibytes=(1, 8, 64)):
    return tuple(
        Row(op=op, ranks=ranks, nodes=nodes, num_bytes=size * MIB, seconds=time * 1e-6)
        for size, time in zip(mebibytes, microseconds, strict=True)
    )


def bus(op, ranks, nodes, mebibytes, gigabytes_per_second):
    """Return a row whose bus bandwidth is stated: of a ring that carries (n−1)/n of the bytes, or twice that."""
    num_bytes = mebibytes * MIB
    carried = (2 if op == "all_reduce" else 1) * (ranks - 1) / ranks * num_bytes
    return Row(op=op, ranks=ranks, nodes=nodes, num_bytes=num_bytes, seconds=carried / (gigabytes_per_second * 1e9))


TABLES = (
    Table(
        name="8 A100 (microsoft/vidur a100_dgx)",
        fabric=fabric(A100),
        rows=(
            *sizes("all_reduce", 2, 1, (47, 95, 430)),
            *sizes("all_reduce", 4, 1, (64, 123, 603)),
            *sizes("all_reduce", 8, 1, (64, 155, 675)),
        ),
        factor=1.35,
        extra=PYTORCH_SECONDS,
    ),
    # 16 ranks on two of these nodes are no faster than 8: they share adapters, and how is not stated
    Table(
        name="two nodes of A100 (microsoft/vidur a100_dgx)",
        fabric=fabric(A100, (14e-6, 7.82e9)),
        rows=(
            *sizes("all_reduce", 2, 2, (253, 1473, 11439)),
            *sizes("all_reduce", 4, 2, (291, 1228, 8490)),
            *sizes("all_reduce", 8, 2, (308, 900, 5239)),
        ),
        factor=2.25,
        extra=PYTORCH_SECONDS,
    ),
    Table(
        name="pairs of A100 (microsoft/vidur a100_dgx)",
        fabric=fabric(A100, (14e-6, 7.82e9)),
        rows=(*sizes("send_recv", 2, 1, (17, 36, 294)), *sizes("send_recv", 2, 2, (166, 1117, 8586))),
        factor=1.4,
    ),
    Table(
        name="8 H100 (microsoft/vidur h100_dgx)",
        fabric=fabric(H100, in_switch=0.84),
        rows=(
            *sizes("all_reduce", 2, 1, (43, 46, 245)),
            *sizes("all_reduce", 4, 1, (41, 62, 318)),
            *sizes("all_reduce", 8, 1, (34, 74, 322)),
        ),
        factor=1.6,
        extra=PYTORCH_SECONDS,
    ),
    Table(
        name="pairs of H100, 400 Gbit/s (microsoft/vidur h100_dgx)",
        fabric=fabric(H100),
        rows=(*sizes("send_recv", 2, 1, (10, 30, 193)), *sizes("send_recv", 2, 2, (54, 246, 1871))),
        factor=1.3,
    ),
    Table(
        name="8 A100 by size (PKU-DAIR/Hetu-Galvatron)",
        fabric=fabric(A100),
        rows=sizes(
            "all_reduce",
            8,
            1,
            (78.95, 109.4, 133.3, 182.7, 294.1, 415.7, 651.9, 1282.6, 2358.4, 4676.8, 8140.9),
            tuple(2**i for i in range(11)),
        ),
        factor=1.45,
        extra=PYTORCH_SECONDS,
    ),
    Table(
        name="two nodes of A100, all groups at once (PKU-DAIR/Hetu-Galvatron; taken as 256 MiB)",
        fabric=fabric(A100, (14e-6, 8.13e9)),
        rows=(
            bus("all_reduce", 2, 2, 256, 8.13007),
            bus("all_reduce", 4, 2, 256, 16.22),
            bus("all_reduce", 8, 2, 256, 20.7724),
            bus("all_reduce", 16, 2, 256, 44.682),
        ),
        factor=1.6,
    ),
    Table(
        name="H200 in one node, 8 and 16 GiB (stas00/ml-engineering)",
        fabric=fabric(H100, in_switch=0.84),
        rows=(
            bus("all_reduce", 4, 1, 8192, 363.3),
            bus("all_reduce", 5, 1, 8192, 414.2),
            bus("all_reduce", 6, 1, 8192, 435.6),
            bus("all_reduce", 7, 1, 8192, 460.0),
            bus("all_reduce", 8, 1, 8192, 473.1),
            bus("all_gather", 8, 1, 16384, 361.4),
            bus("reduce_scatter", 8, 1, 16384, 362.9),
        ),
        factor=1.02,
    ),
    Table(
        name="H200 in one node, nothing in the switch (stas00/ml-engineering)",
        fabric=fabric(H100),
        rows=tuple(
            bus("all_reduce", ranks, 1, 8192, rate)
            for ranks, rate in ((4, 363.3), (5, 364.4), (6, 365.1), (7, 365.7), (8, 365.6))
        ),
        factor=1.01,
    ),
    Table(
        name="B200 in one node, 8 GiB (stas00/ml-engineering)",
        fabric=fabric(B200, in_switch=0.79),
        rows=tuple(
            bus("all_reduce", ranks, 1, 8192, rate)
            for ranks, rate in ((4, 673.2), (5, 677.8), (6, 778.2), (7, 811.2), (8, 838.0))
        ),
        factor=1.06,
    ),
    Table(
        name="8 B200, a fit of large messages (MooreThreads/SimuMax b200_bf16_ceperm.json)",
        fabric=fabric(B200, in_switch=0.79),
        rows=tuple(
            bus(op, 8, 1, 8192, share * 900)
            for op, share in (
                ("all_reduce", 0.7424),
                ("all_gather", 0.6735),
                ("reduce_scatter", 0.6731),
                ("all_to_all", 0.5968),
            )
        ),
        factor=1.26,
    ),
    Table(
        name="MI300X in one node, 4 GiB (stas00/ml-engineering)",
        fabric=fabric((2e-6, 312.9e9), mesh=7),
        rows=(bus("all_reduce", 2, 1, 4096, 47.671), bus("all_reduce", 8, 1, 4096, 312.912)),
        factor=1.07,
    ),
    Table(
        name="four nodes of 8, links taken as A100 and 100 Gbit/s (stas00/ml-engineering network/benchmarks)",
        fabric=fabric(A100, (14e-6, 12.5e9)),
        rows=tuple(
            Row(op="all_reduce", ranks=32, nodes=4, num_bytes=2**i, seconds=2**i / (rate * 1e9))
            for i, rate in enumerate(
                (
                    *(0.48, 0.83, 1.58, 2.67, 4.73, 8.84, 12.28, 20.8, 35.42, 48.48, 50.76, 43.82, 45.54, 46.97),
                    *(47.98, 48.59, 47.83, 47.53, 47.38, 47.32),
                ),
                start=15,
            )
        ),
        factor=1.5,
        extra=PYTORCH_SECONDS,
    ),
)
