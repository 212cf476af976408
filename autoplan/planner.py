"""The public functions: from what a user has at hand to a `Plan`, an `Estimate` or a `Front` of plans.

Models and clusters are given as values, as JSON objects, or as the text that a command line takes (a path, a
preset name, a shorthand). Everything is checked here once, before the search starts. `plan` and `estimate` take all of
it; `plan_best` and `front` take problems that `make_problem` made.
"""

from collections.abc import Callable, Sequence
from math import inf
from pathlib import Path
from typing import Any, Required, TypedDict, Unpack, get_args

from autoplan.errors import (
    ClusterError,
    CoefficientsError,
    NoPlanError,
    ProfileError,
    WorkloadError,
)
from autoplan.readers import load_cluster, load_model, load_profile, parse_cluster, parse_model
from autoplan.readers.stacks import load_stack
from autoplan.spec import (
    AUTOPLAN,
    Cluster,
    Configuration,
    Estimate,
    ModelSpec,
    OptimizerKind,
    Plan,
    PrecisionKind,
    Problem,
    Profile,
    Stack,
    Workload,
)
from autoplan.spec.arrangement import in_order
from autoplan.spec.plan import OptimizerPlan
from autoplan.spec.rules import require_valid
from autoplan.spec.value import LARGEST_SIZE
from costmodels.calibrated import with_coefficients
from costmodels.coefficients import Coefficients
from costmodels.coefficients_file import load_coefficients
from costmodels.estimate import estimate as estimate_configuration
from solver.assemble import assemble
from solver.options import SearchOptions
from solver.pins import LayerPins, require_pins
from solver.reasons.infeasible import more_time
from solver.result import Progress
from solver.search.best_first import search
from solver.sweeps.choice import Choice, choose, choose_fewest
from solver.sweeps.front import Axis, Front
from solver.sweeps.pareto import MOST_POINTS, OnPoint, cost_front, memory_front

__all__ = ["estimate", "front", "load_cluster", "load_model", "make_problem", "plan", "plan_best"]

ModelArgument = ModelSpec | dict[str, Any] | str | Path
ClusterArgument = Cluster | dict[str, Any] | str | Path
ProfileArgument = Profile | str | Path
CoefficientsArgument = Coefficients | str | Path
StackArgument = Stack | str


class Asked(TypedDict, total=False):
    """What is planned or estimated beside the model: the keyword arguments of `make_problem`."""

    cluster: Required[ClusterArgument | None]
    global_batch: Required[int]
    seq_len: Required[int]
    optimizer: OptimizerKind
    precision: PrecisionKind
    profile: ProfileArgument | None
    coefficients: CoefficientsArgument | None
    stack: StackArgument


def plan(
    model: ModelArgument,
    *,
    options: SearchOptions | None = None,
    optimizer_plan: OptimizerPlan | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    **asked: Unpack[Asked],
) -> Plan:
    """Return the plan that fits and has least of the options' objective, by default the fastest.

    `cluster` may be None when a profile is given: it is then the measured one. `optimizer_plan` sets learning
    rate, warm-up and clipping (`solver.assemble.default_optimizer` makes one). `stack` is the software whose speed is
    predicted, a value or the name of a preset; a plan for another than ours is not runnable here. `coefficients` are
    what `autoplan calibrate` fitted to runs of the user's, in place of the package's. Raises InputError for arguments
    that make no sense and NoPlanError, with remedies, when nothing fits.
    """
    problem = make_problem(model, **asked)
    return plan_best([problem], options=options, optimizer_plan=optimizer_plan, on_progress=on_progress)


def plan_best(
    problems: Sequence[Problem],
    *,
    options: SearchOptions | None = None,
    tokens_per_second: float | None = None,
    optimizer_plan: OptimizerPlan | None = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> Plan:
    """Return the best plan of one problem, or of several that differ in their clusters; its search notes the others.

    With `tokens_per_second` there is one problem, and the plan is for the smallest part of its cluster that trains so
    fast. Raises InputError for options that contradict the model, and NoPlanError when there is no plan.
    """
    chosen = options or SearchOptions()
    _check_options(chosen, problems)
    if tokens_per_second is None:
        choice = choose(problems, chosen, on_progress=on_progress)
    else:
        choice = _choose_fewest(problems, chosen, tokens_per_second, on_progress)
    best = choice.result.best
    problem = in_order(choice.problem, best.node_order)
    return assemble(
        problem,
        best.configuration,
        best.cuts,
        recompute=best.recompute,
        estimate=estimate_configuration(problem, best.configuration, best.cuts, layers=best.layers),
        optimizer=optimizer_plan,
        search=choice.result.search,
        alternatives=choice.result.alternatives,
    )


def front(
    problems: Sequence[Problem],
    *,
    axis: Axis,
    options: SearchOptions | None = None,
    most_points: int = MOST_POINTS,
    on_point: OnPoint | None = None,
) -> Front:
    """Return the front of step time against memory, on one cluster, or cost, over several clusters and parts of them.

    The front against memory has about `most_points` points. Raises InputError for options that contradict the model,
    and NoPlanError, with remedies, when no plan fits.
    """
    chosen = options or SearchOptions()
    _check_options(chosen, problems)
    if axis == "memory" and len(problems) > 1:
        raise ClusterError("step time is weighed against memory on one cluster", where="--cluster")
    if axis == "memory":
        found = memory_front(problems[0], chosen, most=most_points, on_point=on_point)
    else:
        found = cost_front(problems, chosen, on_point=on_point)
    if not found.points:
        if found.complete:
            search(problems[0], chosen)  # says why
        raise NoPlanError("no plan found yet: " + "; ".join(found.left_out), remedies=more_time(chosen))
    return found


def estimate(
    model: ModelArgument,
    *,
    configuration: Configuration,
    cuts: tuple[int, ...] | None = None,
    **asked: Unpack[Asked],
) -> Estimate:
    """Return what one configuration costs; ConfigurationError when it breaks a rule.

    `cuts` are the pp·virtual_stages + 1 layer boundaries of the chunks; without them layers are spread evenly.
    """
    problem = make_problem(model, **asked)
    require_valid(problem, configuration)
    return estimate_configuration(problem, configuration, cuts)


def make_problem(
    model: ModelArgument,
    *,
    cluster: ClusterArgument | None,
    global_batch: int,
    seq_len: int,
    optimizer: OptimizerKind = "adamw",
    precision: PrecisionKind = "bf16",
    profile: ProfileArgument | None = None,
    coefficients: CoefficientsArgument | None = None,
    stack: StackArgument = AUTOPLAN,
) -> Problem:
    """Read and check every argument of a planning request; raises InputError that names the wrong one."""
    measured = load_profile(profile) if isinstance(profile, str | Path) else profile
    if cluster is None:
        if measured is None:
            raise ClusterError("give a cluster, or a profile whose cluster is meant", where="--cluster")
        described = measured.cluster
    else:
        described = _read_cluster(cluster)
    if measured is not None:
        _check_profile(measured, described)
    spec = _read_model(model)
    workload = _make_workload(global_batch, seq_len, optimizer, precision)
    _check_workload(workload, spec)
    software = load_stack(stack) if isinstance(stack, str) else stack
    problem = Problem(model=spec, cluster=described, workload=workload, profile=measured, stack=software)
    return with_coefficients(problem, _read_coefficients(coefficients, profile=measured))


def _check_options(options: SearchOptions, problems: Sequence[Problem]) -> None:
    require_pins(LayerPins.parse(options.pins), problems[0].model.num_layers)


def _choose_fewest(
    problems: Sequence[Problem],
    options: SearchOptions,
    tokens_per_second: float,
    on_progress: Callable[[Progress], None] | None,
) -> Choice:
    where = "--target-tokens-per-second"
    if not 0 < tokens_per_second < inf:
        raise WorkloadError(f"{tokens_per_second} tokens a second: must be more than 0", where=where)
    if len(problems) > 1:
        raise ClusterError("the fewest devices are looked for in one cluster", where=where)
    if options.objective != "throughput":
        raise WorkloadError(f"asks for speed: leave --objective {options.objective} out", where=where)
    return choose_fewest(problems[0], options, tokens_per_second=tokens_per_second, on_progress=on_progress)


def _read_model(model: ModelArgument) -> ModelSpec:
    if isinstance(model, ModelSpec):
        return model
    return load_model(model) if isinstance(model, str | Path) else parse_model(model, where="model")


def _read_cluster(cluster: ClusterArgument) -> Cluster:
    if isinstance(cluster, Cluster):
        return cluster
    return load_cluster(cluster) if isinstance(cluster, str | Path) else parse_cluster(cluster, where="cluster")


def _read_coefficients(coefficients: CoefficientsArgument | None, *, profile: Profile | None) -> Coefficients | None:
    if coefficients is not None and profile is not None:
        raise CoefficientsError(
            "a profile's own measurements take their place: give one of both", where="--coefficients"
        )
    return load_coefficients(coefficients) if isinstance(coefficients, str | Path) else coefficients


def _check_profile(profile: Profile, cluster: Cluster) -> None:
    measured = {group.device.slug for group in profile.cluster.groups}
    asked = {group.device.slug for group in cluster.groups}
    if not asked <= measured:
        raise ProfileError(
            f"measured on {', '.join(sorted(measured))}, the cluster has {', '.join(sorted(asked))}",
            where="--profile",
        )


def _make_workload(global_batch: int, seq_len: int, optimizer: OptimizerKind, precision: PrecisionKind) -> Workload:
    for flag, count in (("--global-batch", global_batch), ("--seq-len", seq_len)):
        if type(count) is not int or not 1 <= count <= LARGEST_SIZE:
            raise WorkloadError(f"{count!r}: a whole number from 1 to {LARGEST_SIZE}", where=flag)
    for flag, kind, kinds in (
        ("--optimizer", optimizer, get_args(OptimizerKind)),
        ("--precision", precision, get_args(PrecisionKind)),
    ):
        if kind not in kinds:
            raise WorkloadError(f"{kind!r} is not one of {', '.join(kinds)}", where=flag)
    return Workload(global_batch=global_batch, seq_len=seq_len, optimizer=optimizer, precision=precision)


def _check_workload(workload: Workload, model: ModelSpec) -> None:
    if model.positions == "learned" and workload.seq_len > model.max_positions:
        raise WorkloadError(
            f"{workload.seq_len} is more than the {model.max_positions} learned positions of {model.name}",
            where="--seq-len",
        )
