"""`autoplan estimate`: one configuration's time and memory by term, or why it cannot run."""

from dataclasses import asdict
from typing import Annotated

import typer

from autoplan.cli.configuration_options import ConfigurationOptions
from autoplan.cli.options import AskedOptions, ClusterOption, JsonOption, ModelArgument
from autoplan.cli.output import console

EXAMPLE = (
    "autoplan estimate llama-3-8b --cluster h100-80g-sxm:2x8 --global-batch 128 --seq-len 8192 "
    "--tp 2 --sequence-parallel --dp-shard 8 --zero-stage 3 --recompute selective"
)


def command(
    model: ModelArgument,
    *,
    cluster: ClusterOption = None,
    asked: AskedOptions,
    chosen: ConfigurationOptions,
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
    from autoplan.spec.codec import to_json

    configuration = chosen.read()
    boundaries = None if cuts is None else _read_cuts(cuts)
    estimate = planner.estimate(model, cluster=cluster, configuration=configuration, cuts=boundaries, **asdict(asked))
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
