"""`autoplan estimate`: one configuration's time and memory by term, or why it cannot run."""

from typing import Annotated

import typer

from autoplan.cli.options import (
    ClusterOption,
    CoefficientsOption,
    GlobalBatchOption,
    JsonOption,
    ModelArgument,
    OptimizerOption,
    PrecisionOption,
    ProfileOption,
    SeqLenOption,
    StackOption,
)
from autoplan.cli.output import console
from autoplan.spec import Configuration, CpMethod, Recompute, Schedule

EXAMPLE = (
    "autoplan estimate llama-3-8b --cluster h100-80g-sxm:2x8 --global-batch 128 --seq-len 8192 "
    "--tp 2 --sequence-parallel --dp-shard 8 --zero-stage 3 --recompute selective"
)


def command(
    model: ModelArgument,
    *,
    cluster: ClusterOption = None,
    global_batch: GlobalBatchOption,
    seq_len: SeqLenOption,
    profile: ProfileOption = None,
    coefficients: CoefficientsOption = None,
    optimizer: OptimizerOption = "adamw",
    precision: PrecisionOption = "bf16",
    stack: StackOption = "autoplan",
    dp_replicate: Annotated[int, typer.Option(min=1, help="Replicas of the whole shard group.")] = 1,
    dp_shard: Annotated[int, typer.Option(min=1, help="Ranks that shard states between them.")] = 1,
    cp: Annotated[int, typer.Option(min=1, help="Context-parallel degree.")] = 1,
    cp_method: Annotated[CpMethod, typer.Option(help="How context-parallel ranks exchange.")] = "allgather",
    tp: Annotated[int, typer.Option(min=1, help="Tensor-parallel degree.")] = 1,
    pp: Annotated[int, typer.Option(min=1, help="Pipeline stages.")] = 1,
    ep: Annotated[int, typer.Option(min=1, help="Expert-parallel degree.")] = 1,
    etp: Annotated[int, typer.Option(min=1, help="Tensor-parallel degree within experts.")] = 1,
    sequence_parallel: Annotated[
        bool, typer.Option("--sequence-parallel", help="Cut activations along the sequence between TP regions.")
    ] = False,
    zero_stage: Annotated[
        int, typer.Option(min=0, max=3, help="What dp_shard shards: 1 optimizer, 2 also gradients, 3 also weights.")
    ] = 0,
    micro_batch: Annotated[int, typer.Option(min=1, help="Sequences per micro-batch and rank.")] = 1,
    schedule: Annotated[Schedule, typer.Option(help="Order of micro-batches in the pipeline.")] = "1f1b",
    virtual_stages: Annotated[int, typer.Option(min=1, help="Chunks per pipeline rank.")] = 1,
    recompute: Annotated[Recompute, typer.Option(help="What the backward pass computes again.")] = "none",
    recompute_layers: Annotated[
        int, typer.Option(min=0, help="Layers that compute it again, spread evenly; 0 means all.")
    ] = 0,
    uneven_shares: Annotated[
        bool,
        typer.Option(
            "--uneven-shares", help="Replicas on unlike nodes take micro-batches by the speed of their nodes."
        ),
    ] = False,
    cuts: Annotated[
        str | None,
        typer.Option("--cuts", metavar="0,…,LAYERS", help="Layer boundaries of all chunks; even ones when absent."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Predict time and memory of one configuration by term, or say why it cannot run.

    Exit status 0 means that the configuration was estimated, not that it fits:
    `fits` says that, as does the line below the memory table.
    A configuration that breaks a rule has exit status 2.
    """
    from autoplan import planner
    from autoplan.cli.render import describe_configuration, render_estimate
    from autoplan.errors import ConfigurationError
    from autoplan.spec.codec import from_jsonable, to_json

    chosen = {
        "dp_replicate": dp_replicate,
        "dp_shard": dp_shard,
        "cp": cp,
        "cp_method": cp_method,
        "tp": tp,
        "pp": pp,
        "ep": ep,
        "etp": etp,
        "sequence_parallel": sequence_parallel,
        "zero_stage": zero_stage,
        "micro_batch": micro_batch,
        "schedule": schedule,
        "virtual_stages": virtual_stages,
        "recompute": recompute,
        "recompute_layers": recompute_layers,
        "uneven_shares": uneven_shares,
    }
    configuration = from_jsonable(Configuration, chosen, where="options", error=ConfigurationError)
    estimate = planner.estimate(
        model,
        cluster=cluster,
        global_batch=global_batch,
        seq_len=seq_len,
        configuration=configuration,
        cuts=None if cuts is None else _read_cuts(cuts),
        optimizer=optimizer,
        precision=precision,
        profile=profile,
        coefficients=coefficients,
        stack=stack,
    )
    if as_json:
        typer.echo(to_json(estimate))
        return
    answer = console()
    answer.print(f"[bold]{describe_configuration(configuration)}[/bold]")
    render_estimate(estimate, answer)


def _read_cuts(text: str) -> tuple[int, ...]:
    from autoplan.errors import ConfigurationError

    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ConfigurationError(f"{text!r} is not a list of layer numbers, such as 0,16,32", where="--cuts") from None
