"""`autoplan plan`: search for the configuration that fits and is best."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from autoplan.cli.options import AskedOptions, JsonOption, ModelArgument, OutOption
from autoplan.cli.output import check_writable, give, say, search_progress, working_on
from autoplan.cli.plan_options import AnswerOptions, ClusterOptions, OptimizerSettings, SearchFlags

if TYPE_CHECKING:
    from autoplan.spec import Plan, Problem
    from autoplan.spec.plan import OptimizerPlan
    from solver.options import SearchOptions
    from solver.sweeps.front import Axis, Front

EXAMPLE = "autoplan plan llama-3-8b --cluster h100-80g-sxm:2x8 --global-batch 128 --seq-len 8192 --out plan.json"


def command(
    model: ModelArgument,
    *,
    where: ClusterOptions,
    asked: AskedOptions,
    flags: SearchFlags,
    answer: AnswerOptions,
    settings: OptimizerSettings,
    out: OutOption = None,
    as_json: JsonOption = False,
) -> None:
    """Search for the fastest plan that fits, and say what it would cost.

    Ctrl-C ends the search: with a plan in hand that plan is given and its gap stated.
    Several --cluster are compared; --pareto prints a table of plans, of which none is better than another in both.
    """
    from autoplan.cli.fronts import render_front
    from autoplan.cli.render import render_plan

    options = flags.read()
    if out is not None:
        check_writable(out)
    problems = _make_problems(model, where, asked)
    _check_answer(answer, problems, options)
    if answer.pareto is not None:
        front = _search_front(problems, answer.pareto, options, points=answer.points)
        give(front, render_front, out=out, as_json=as_json, called=f"{len(front.points)} plans")
        return
    plan = _search_plan(problems, options, answer, optimizer_plan=settings.of(asked.optimizer))
    give(plan, render_plan, out=out, as_json=as_json, called=f"plan {plan.id[:12]}")


def _make_problems(model: str, where: ClusterOptions, asked: AskedOptions) -> "list[Problem]":
    from autoplan.planner import load_model, make_problem

    spec = load_model(model)
    clusters: Sequence[str | None] = where.cluster or [None]
    problems = [make_problem(spec, cluster=cluster, **asdict(asked)) for cluster in clusters]
    return _change_nodes(problems, where.exclude_node or [], where.derate or [])


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


def _check_answer(answer: AnswerOptions, problems: "Sequence[Problem]", options: "SearchOptions") -> None:
    """Raise ConfigurationError that names the flag where what is asked for does not go together."""
    from autoplan.cli.verification import FLAG, require_small
    from autoplan.errors import ConfigurationError

    if answer.verify:
        if len(problems) > 1 or answer.pareto is not None or answer.target is not None:
            raise ConfigurationError("checks the plan of one search on one cluster", where=FLAG)
        require_small(problems[0], options)
    if answer.pareto is not None and answer.target is not None:
        raise ConfigurationError("asks for one plan: leave --pareto out", where="--target-tokens-per-second")
    if answer.pareto is not None and options.objective != "throughput":
        raise ConfigurationError("--pareto weighs step time: leave it out", where=f"--objective {options.objective}")


def _search_plan(
    problems: "Sequence[Problem]",
    options: "SearchOptions",
    answer: AnswerOptions,
    *,
    optimizer_plan: "OptimizerPlan",
) -> "Plan":
    from autoplan.cli.verification import verify_plan
    from autoplan.errors import NoPlanError
    from autoplan.planner import plan_best

    try:
        with search_progress() as show:
            found = plan_best(
                problems,
                options=options,
                tokens_per_second=answer.target,
                optimizer_plan=optimizer_plan,
                on_progress=show,
            )
    except NoPlanError:
        if answer.verify and options.time_limit_seconds is None:
            say(verify_plan(problems[0], options, None))
        raise
    if answer.verify:
        try:
            say(verify_plan(problems[0], options, found))
        except KeyboardInterrupt:
            say("not verified: interrupted")
    return found


def _search_front(problems: "Sequence[Problem]", axis: "Axis", options: "SearchOptions", *, points: int) -> "Front":
    from autoplan.cli.fronts import describe_point
    from autoplan.planner import front

    with working_on("searching") as show:
        return front(
            problems,
            axis=axis,
            options=options,
            most_points=points,
            on_point=lambda point: show(describe_point(point)),
        )
