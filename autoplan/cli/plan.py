"""`autoplan plan`: search for the configuration that fits and is best."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from autoplan.cli.options import (
    ClustersOption,
    CoefficientsOption,
    DerateOption,
    ExcludeNodeOption,
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
from autoplan.cli.output import check_writable, console, say, search_progress, working_on, write_text
from autoplan.spec import OptimizerKind
from autoplan.spec.plan import Objective

if TYPE_CHECKING:
    from autoplan.spec import Problem
    from autoplan.spec.plan import OptimizerPlan
    from solver.options import SearchOptions

EXAMPLE = "autoplan plan llama-3-8b --cluster h100-80g-sxm:2x8 --global-batch 128 --seq-len 8192 --out plan.json"
FixOption = Annotated[
    list[str] | None,
    typer.Option(
        "--fix",
        metavar="NAME=VALUE",
        help="Only plans with this: tp=8, cuts=0,16,32, stages[0].layers=10 or layers[0:4].recompute=full; "
        "may be repeated.",
    ),
]


def command(
    model: ModelArgument,
    *,
    cluster: ClustersOption = None,
    exclude_node: ExcludeNodeOption = None,
    derate: DerateOption = None,
    global_batch: GlobalBatchOption,
    seq_len: SeqLenOption,
    profile: ProfileOption = None,
    coefficients: CoefficientsOption = None,
    optimizer: OptimizerOption = "adamw",
    precision: PrecisionOption = "bf16",
    stack: StackOption = "autoplan",
    objective: Annotated[
        Objective, typer.Option("--objective", help="What the best plan has least of (throughput: time).")
    ] = "throughput",
    fix: FixOption = None,
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
    pareto: Annotated[
        Literal["memory", "cost"] | None,
        typer.Option("--pareto", help="A table of plans instead: step time against memory, or cost over node counts."),
    ] = None,
    points: Annotated[int, typer.Option("--points", min=1, max=1000, help="About how many --pareto memory has.")] = 12,
    target: Annotated[
        float | None,
        typer.Option(
            "--target-tokens-per-second", min=0.0, metavar="RATE", help="The fewest nodes of the cluster for this."
        ),
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Check a small problem's plan by brute force over all candidates.")
    ] = False,
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
    Several --cluster are compared; --pareto prints a table of plans, of which none is better than another in both.
    """
    from solver.options import SearchOptions, parse_fix, pins_of_fields, pins_of_layers

    pins = parse_fix(fix or [])
    options = SearchOptions(
        fix=pins_of_fields(pins),
        pins=pins_of_layers(pins),
        forbid=tuple(forbid or ()),
        top=top,
        time_limit_seconds=time_limit,
        runnable_only=runnable_only,
        objective=objective,
    )
    if out is not None:
        check_writable(out)
    problems = _make_problems(
        model,
        cluster or [None],
        global_batch=global_batch,
        seq_len=seq_len,
        optimizer=optimizer,
        precision=precision,
        profile=profile,
        coefficients=coefficients,
        stack=stack,
    )
    problems = _change_nodes(problems, exclude_node or [], derate or [])
    if verify:
        _check_verifiable(problems, options, alone=pareto is None and target is None)
    if pareto is not None:
        _answer_front(problems, pareto, options, points=points, target=target, out=out, as_json=as_json)
        return
    settings = _optimizer_plan(optimizer, lr, warmup_steps)
    _answer_plan(problems, options, settings, target=target, verify=verify, out=out, as_json=as_json)


def _make_problems(model: str, clusters: Sequence[str | None], **asked: Any) -> "list[Problem]":
    from autoplan.planner import load_model, make_problem

    spec = load_model(model)
    return [make_problem(spec, cluster=cluster, **asked) for cluster in clusters]


def _change_nodes(problems: "list[Problem]", exclude: Sequence[int], derate: Sequence[str]) -> "list[Problem]":
    """Return the problems without dead nodes and with slow ones; raises ClusterError that names the flag."""
    from autoplan.errors import ClusterError
    from autoplan.readers.nodes import change_nodes

    if not exclude and not derate:
        return problems
    if len(problems) > 1:
        raise ClusterError("nodes are numbered in one cluster", where="--exclude-node" if exclude else "--derate")
    cluster = change_nodes(problems[0].cluster, exclude=exclude, derate=derate)
    return [replace(problems[0], cluster=cluster)]


def _check_verifiable(problems: "Sequence[Problem]", options: "SearchOptions", *, alone: bool) -> None:
    from autoplan.cli.verification import FLAG, require_small
    from autoplan.errors import ConfigurationError

    if len(problems) > 1 or not alone:
        raise ConfigurationError("checks the plan of one search on one cluster", where=FLAG)
    require_small(problems[0], options)


def _answer_plan(
    problems: "Sequence[Problem]",
    options: "SearchOptions",
    settings: "OptimizerPlan",
    *,
    target: float | None,
    verify: bool,
    out: Path | None,
    as_json: bool,
) -> None:
    from autoplan.cli.render import render_plan
    from autoplan.cli.verification import verify_plan
    from autoplan.errors import NoPlanError
    from autoplan.planner import plan_best
    from autoplan.spec.codec import to_json

    try:
        with search_progress() as show:
            found = plan_best(
                problems, options=options, tokens_per_second=target, optimizer_plan=settings, on_progress=show
            )
    except NoPlanError:
        if verify and options.time_limit_seconds is None:
            say(verify_plan(problems[0], options, None))
        raise
    if verify:
        say(verify_plan(problems[0], options, found))
    text = to_json(found)
    if out is not None:
        write_text(out, text + "\n")
        say(f"plan {found.id[:12]} written to {out}")
    if as_json:
        typer.echo(text)
    else:
        render_plan(found, console())


def _answer_front(
    problems: "Sequence[Problem]",
    axis: Literal["memory", "cost"],
    options: "SearchOptions",
    *,
    points: int,
    target: float | None,
    out: Path | None,
    as_json: bool,
) -> None:
    from autoplan.cli.fronts import describe_point, render_front
    from autoplan.errors import ConfigurationError
    from autoplan.planner import front
    from autoplan.spec.codec import to_json

    if target is not None:
        raise ConfigurationError("asks for one plan: leave --pareto out", where="--target-tokens-per-second")
    if options.objective != "throughput":
        raise ConfigurationError("--pareto weighs step time: leave it out", where=f"--objective {options.objective}")
    with working_on("searching") as show:
        found = front(
            problems,
            axis=axis,
            options=options,
            most_points=points,
            on_point=lambda point: show(describe_point(point)),
        )
    text = to_json(found)
    if out is not None:
        write_text(out, text + "\n")
        say(f"{len(found.points)} plans written to {out}")
    if as_json:
        typer.echo(text)
    else:
        render_front(found, console())


def _optimizer_plan(optimizer: OptimizerKind, lr: float | None, warmup_steps: int | None) -> "OptimizerPlan":
    from solver.assemble import default_optimizer

    usual = default_optimizer(optimizer)
    return replace(
        usual,
        learning_rate=usual.learning_rate if lr is None else lr,
        warmup_steps=usual.warmup_steps if warmup_steps is None else warmup_steps,
    )
