"""`autoplan plan`: search for the fastest configuration that fits."""

from typing import TYPE_CHECKING, Annotated

import typer

from autoplan.cli.options import (
    ClusterOption,
    CoefficientsOption,
    GlobalBatchOption,
    JsonOption,
    ModelArgument,
    OptimizerOption,
    OutOption,
    PrecisionOption,
    ProfileOption,
    SeqLenOption,
    StackOption,
)
from autoplan.cli.output import check_writable, console, say, search_progress, write_text
from autoplan.spec import OptimizerKind

if TYPE_CHECKING:
    from autoplan.spec.plan import OptimizerPlan

EXAMPLE = "autoplan plan llama-3-8b --cluster h100-80g-sxm:2x8 --global-batch 128 --seq-len 8192 --out plan.json"


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
    fix: Annotated[
        list[str] | None,
        typer.Option("--fix", metavar="NAME=VALUE", help="Only configurations with this value; may be repeated."),
    ] = None,
    forbid: Annotated[
        list[str] | None,
        typer.Option("--forbid", metavar="CONDITION", help="No configuration such as 'tp>4'; may be repeated."),
    ] = None,
    runnable_only: Annotated[
        bool, typer.Option("--runnable-only", help="Only plans that `autoplan run` can run.")
    ] = False,
    top: Annotated[int, typer.Option("--top", min=0, help="Runners-up to list.")] = 3,
    time_limit: Annotated[
        float | None,
        typer.Option("--time-limit", min=0.0, metavar="SECONDS", help="Stop the search then and state the gap."),
    ] = None,
    lr: Annotated[float | None, typer.Option("--lr", min=1e-12, max=1e3, help="Learning rate after warm-up.")] = None,
    warmup_steps: Annotated[
        int | None,
        typer.Option("--warmup-steps", min=0, max=2**31 - 1, help="Steps of rising learning rate."),
    ] = None,
    out: OutOption = None,
    as_json: JsonOption = False,
) -> None:
    """Search for the fastest plan that fits, and say what it would cost.

    Ctrl-C ends the search: with a plan in hand that plan is given and its gap stated.
    """
    from autoplan import planner
    from autoplan.cli.render import render_plan
    from autoplan.spec.codec import to_json
    from solver.options import SearchOptions, parse_fix

    options = SearchOptions(
        fix=parse_fix(fix or []),
        forbid=tuple(forbid or ()),
        top=top,
        time_limit_seconds=time_limit,
        runnable_only=runnable_only,
    )
    if out is not None:
        check_writable(out)
    with search_progress() as show:
        found = planner.plan(
            model,
            cluster=cluster,
            global_batch=global_batch,
            seq_len=seq_len,
            optimizer=optimizer,
            precision=precision,
            profile=profile,
            coefficients=coefficients,
            stack=stack,
            options=options,
            optimizer_plan=_optimizer_plan(optimizer, lr, warmup_steps),
            on_progress=show,
        )
    text = to_json(found)
    if out is not None:
        write_text(out, text + "\n")
        say(f"plan {found.id[:12]} written to {out}")
    if as_json:
        typer.echo(text)
    else:
        render_plan(found, console())


def _optimizer_plan(optimizer: OptimizerKind, lr: float | None, warmup_steps: int | None) -> "OptimizerPlan":
    from dataclasses import replace

    from solver.assemble import default_optimizer

    usual = default_optimizer(optimizer)
    return replace(
        usual,
        learning_rate=usual.learning_rate if lr is None else lr,
        warmup_steps=usual.warmup_steps if warmup_steps is None else warmup_steps,
    )
