"""The groups of options of `autoplan plan`: where, by what rules, what else instead of one plan, how it trains."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from autoplan.spec import OptimizerKind
from autoplan.spec.plan import Objective, Solver

if TYPE_CHECKING:
    from autoplan.spec.plan import OptimizerPlan
    from solver.options import SearchOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOptions:
    """The clusters that are planned for, without dead nodes and with slow ones."""

    cluster: Annotated[
        list[str] | None,
        typer.Option(
            "--cluster",
            metavar="CLUSTER",
            help="A cluster file, or DEVICE:NODESxPER_NODE such as h100-80g-sxm:2x8; of several the best is taken. "
            "Default: the profile's.",
            show_default=False,
        ),
    ] = None
    exclude_node: Annotated[
        list[int] | None,
        typer.Option(
            "--exclude-node",
            min=0,
            metavar="NODE",
            help="Plan without this node of the cluster, counted from 0; may be repeated.",
        ),
    ] = None
    derate: Annotated[
        list[str] | None,
        typer.Option(
            "--derate",
            metavar="NODE=SHARE",
            help="This node computes at a share of its speed: 5=0.8, or 5=compute:0.8,links:0.5; may be repeated.",
        ),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchFlags:
    """What `SearchOptions` are made of."""

    objective: Annotated[
        Objective, typer.Option("--objective", help="What the best plan has least of (throughput: time).")
    ] = "throughput"
    fix: Annotated[
        list[str] | None,
        typer.Option(
            "--fix",
            metavar="NAME=VALUE",
            help="Only plans with this: tp=8, cuts=0,16,32, stages[0].layers=10 or layers[0:4].recompute=full; "
            "may be repeated.",
        ),
    ] = None
    forbid: Annotated[
        list[str] | None,
        typer.Option("--forbid", metavar="CONDITION", help="No configuration such as 'tp>4'; may be repeated."),
    ] = None
    runnable_only: Annotated[bool, typer.Option("--runnable-only", help="Only plans that `autoplan run` can run.")] = (
        False
    )
    top: Annotated[int, typer.Option("--top", min=0, help="Runners-up to list.")] = 3
    time_limit: Annotated[
        float | None,
        typer.Option("--time-limit", min=0.0, metavar="SECONDS", help="Stop the search then and state the gap."),
    ] = None
    solver: Annotated[
        Solver,
        typer.Option("--solver", help="What chooses cuts and modes of layers; each is exact, dp is the fastest."),
    ] = "dp"

    def read(self) -> "SearchOptions":
        """Return the options; raises ConfigurationError that names the flag."""
        from solver.options import SearchOptions, parse_fix, pins_of_fields, pins_of_layers

        pins = parse_fix(self.fix or [])
        return SearchOptions(
            fix=pins_of_fields(pins),
            pins=pins_of_layers(pins),
            forbid=tuple(self.forbid or ()),
            top=self.top,
            time_limit_seconds=self.time_limit,
            runnable_only=self.runnable_only,
            objective=self.objective,
            solver=self.solver,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerOptions:
    """What is answered in place of the best plan, or beside it."""

    pareto: Annotated[
        Literal["memory", "cost"] | None,
        typer.Option("--pareto", help="A table of plans instead: step time against memory, or cost over node counts."),
    ] = None
    points: Annotated[int, typer.Option("--points", min=1, max=1000, help="About how many --pareto memory has.")] = 12
    target: Annotated[
        float | None,
        typer.Option(
            "--target-tokens-per-second", min=0.0, metavar="RATE", help="The fewest nodes of the cluster for this."
        ),
    ] = None
    verify: Annotated[
        bool, typer.Option("--verify", help="Check a small problem's plan by brute force over all candidates.")
    ] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerSettings:
    """How the plan trains; nothing of it changes what is searched."""

    lr: Annotated[float | None, typer.Option("--lr", min=1e-12, max=1e3, help="Learning rate after warm-up.")] = None
    warmup_steps: Annotated[
        int | None,
        typer.Option("--warmup-steps", min=0, max=2**31 - 1, help="Steps of rising learning rate."),
    ] = None

    def of(self, optimizer: OptimizerKind) -> "OptimizerPlan":
        """Return the optimizer's usual settings with these in their place."""
        from solver.assemble import default_optimizer

        usual = default_optimizer(optimizer)
        return replace(
            usual,
            learning_rate=usual.learning_rate if self.lr is None else self.lr,
            warmup_steps=usual.warmup_steps if self.warmup_steps is None else self.warmup_steps,
        )
