"""Arguments and options that several verbs share, each written once."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from autoplan.spec import OptimizerKind, PrecisionKind

ModelArgument = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="A Hugging Face config.json or its folder, an autoplan model file, or a preset name.",
        show_default=False,
    ),
]
PlanArgument = Annotated[Path, typer.Argument(metavar="PLAN", help="A plan file.", show_default=False)]
ClusterOption = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="CLUSTER",
        help="A cluster file, or DEVICE:NODESxPER_NODE such as h100-80g-sxm:2x8. Default: the profile's.",
        show_default=False,
    ),
]
ProfileOption = Annotated[
    Path | None,
    typer.Option("--profile", metavar="FILE", help="A profile of the cluster's devices.", show_default=False),
]
CoefficientsOption = Annotated[
    Path | None,
    typer.Option(
        "--coefficients",
        metavar="FILE",
        help="Coefficients that `autoplan calibrate --out` wrote, in place of the package's.",
        show_default=False,
    ),
]
OutOption = Annotated[
    Path | None, typer.Option("--out", metavar="FILE", help="Also write the result here.", show_default=False)
]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedOptions:
    """What is planned or estimated beside the model and its cluster; the fields are arguments of `make_problem`."""

    global_batch: Annotated[int, typer.Option("--global-batch", min=1, help="Sequences per optimizer step.")]
    seq_len: Annotated[int, typer.Option("--seq-len", min=1, help="Tokens per sequence.")]
    profile: ProfileOption = None
    coefficients: CoefficientsOption = None
    optimizer: Annotated[OptimizerKind, typer.Option("--optimizer", help="The optimizer.")] = "adamw"
    precision: Annotated[PrecisionKind, typer.Option("--precision", help="Element type of the matrix products.")] = (
        "bf16"
    )
    stack: Annotated[
        str,
        typer.Option(
            "--stack",
            metavar="STACK",
            help="The software whose speed is predicted: ours, a preset such as megatron, or a file.",
        ),
    ] = "autoplan"
