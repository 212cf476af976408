"""From the body of a request to a planning problem: reads what was sent, fills in what was left open."""

import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from api import defaults
from api.db.profiles import get_newest_profile, get_profile
from api.wire import BareModel, EstimateRequest, OptionsIn, PlanRequest, WorkloadIn
from autoplan import __version__
from autoplan.errors import ConfigurationError, InputError, ModelError
from autoplan.planner import make_problem
from autoplan.readers import parse_cluster, parse_model
from autoplan.readers.documents import near
from autoplan.readers.notices import ReaderWarning
from autoplan.readers.stacks import load_stack, stack_presets
from autoplan.spec import Cluster, Configuration, ModelSpec, Problem, Profile, Stack
from autoplan.spec.codec import content_hash, from_jsonable, to_jsonable
from solver.options import SearchOptions, pins_of_fields, pins_of_layers
from solver.pins import LayerPins, require_pins
from solver.sweeps.front import Axis

MOST_CLUSTERS = 16
_READING = threading.Lock()


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A problem, what the service chose for it (`defaults`), and what it passed over in the model (`notices`)."""

    problem: Problem
    defaults: dict[str, Any]
    notices: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """What is searched: `asked` on its cluster, or the best of several `problems` on clusters of their own.

    With `axis` the answer is a front of about `points` plans, with `tokens_per_second` a plan for the fewest nodes.
    `hash` is equal for equal requests to one version of autoplan; requests that leave other fields open are not
    equal, since their answers state it.
    """

    asked: Asked
    problems: tuple[Problem, ...]
    options: SearchOptions
    axis: Axis | None
    points: int
    tokens_per_second: float | None
    hash: str


def read_search(session: Session, body: PlanRequest | BareModel, *, longest_seconds: float) -> Search:
    """Return the search that a body asks for; raises InputError that names the field.

    A search that asks for no time limit, or for more than `longest_seconds`, gets that one.
    """
    request = PlanRequest(model=body.root) if isinstance(body, BareModel) else body
    given = request.options
    asked, problems = _read_all(session, request)
    options = _options(given, longest_seconds)
    require_pins(LayerPins.parse(options.pins), asked.problem.model.num_layers)
    parts = {
        "asked": [to_jsonable(problem) for problem in problems],
        "defaults": asked.defaults,
        "options": to_jsonable(options),
        "front": None if given.pareto is None else [given.pareto, given.points],
        "tokens_per_second": given.target_tokens_per_second,
        "version": __version__,
    }
    return Search(
        asked=asked,
        problems=problems,
        options=options,
        axis=given.pareto,
        points=given.points,
        tokens_per_second=given.target_tokens_per_second,
        hash=content_hash(parts),
    )


def read_estimate(session: Session, body: EstimateRequest) -> tuple[Asked, Configuration]:
    """Return the problem and the configuration that a body asks about; raises InputError that names the field."""
    asked = _read(session, body.model, body.cluster, body.workload, stack=body.options.stack)
    configuration = from_jsonable(Configuration, body.configuration, where="configuration", error=ConfigurationError)
    return asked, configuration


def _read_all(session: Session, request: PlanRequest) -> tuple[Asked, tuple[Problem, ...]]:
    """Return what is asked on the first cluster, and the problem on every cluster.

    What the workload leaves open is chosen for the first. Raises InputError for a front or a target that does not go
    with the other options.
    """
    clusters = request.cluster if isinstance(request.cluster, list) else [request.cluster]
    if not 1 <= len(clusters) <= MOST_CLUSTERS:
        raise InputError(f"{len(clusters)} clusters: 1 to {MOST_CLUSTERS}", where="cluster")
    _check_options(request.options)
    asked = _read(session, request.model, clusters[0], request.workload, stack=request.options.stack)
    workload = WorkloadIn.model_validate(to_jsonable(asked.problem.workload))
    others = [
        _read(session, request.model, cluster, workload, stack=request.options.stack).problem
        for cluster in clusters[1:]
    ]
    return asked, (asked.problem, *others)


def _check_options(given: OptionsIn) -> None:
    if given.pareto is None:
        return
    if given.target_tokens_per_second is not None:
        raise InputError("asks for one plan: leave pareto out", where="options.target_tokens_per_second")
    if given.objective != "throughput":
        raise InputError("a front weighs step time: leave it out", where="options.objective")


def _read(session: Session, model: Any, cluster: Any, workload: WorkloadIn, *, stack: str) -> Asked:
    with _notices() as notices:
        spec = _model(model)
        chosen: dict[str, Any] = {}
        described, profile = _cluster(session, cluster, chosen)
        sizes = _workload(workload, spec, described, chosen)
        problem = make_problem(spec, cluster=described, profile=profile, stack=_stack(stack), **sizes)
    return Asked(problem=problem, defaults=chosen, notices=tuple(notices))


def _model(given: Any) -> ModelSpec:
    try:
        return parse_model(given, where="model")
    except OverflowError as error:
        raise ModelError(str(error), where="model") from None


def _stack(name: str) -> Stack:
    """Return the preset; unlike a command's argument, a request's cannot name a file."""
    if name not in stack_presets():
        raise InputError(f"unknown preset {name!r}. {near(name, stack_presets())}", where="options.stack")
    return load_stack(name)


def _cluster(session: Session, given: Any, chosen: dict[str, Any]) -> tuple[Cluster, Profile | None]:
    if given is None:
        newest = get_newest_profile(session)
        chosen["cluster"] = defaults.machine() if newest is None else newest[0]
        if newest is not None:
            return newest[1].cluster, newest[1]
        given = chosen["cluster"]
    profile = get_profile(session, given) if isinstance(given, str) else None
    return (parse_cluster(given, where="cluster"), None) if profile is None else (profile.cluster, profile)


def _workload(given: WorkloadIn, model: ModelSpec, cluster: Cluster, chosen: dict[str, Any]) -> dict[str, Any]:
    asked = given.model_dump(exclude_none=True)
    fallback = {
        "global_batch": defaults.global_batch(cluster),
        "seq_len": defaults.seq_len(model, cluster),
        "optimizer": "adamw",
        "precision": defaults.precision(cluster),
    }
    left_open = {name: value for name, value in fallback.items() if name not in asked}
    if left_open:
        chosen["workload"] = left_open
    return asked | left_open


def _options(given: OptionsIn, longest_seconds: float) -> SearchOptions:
    return SearchOptions(
        fix=pins_of_fields(given.fix),
        pins=pins_of_layers(given.fix),
        objective=given.objective,
        solver=given.solver,
        forbid=tuple(given.forbid),
        top=given.top,
        time_limit_seconds=min(given.time_limit_seconds or longest_seconds, longest_seconds),
        runnable_only=given.runnable_only,
    )


@contextmanager
def _notices() -> Iterator[list[str]]:
    """Collect the readers' warnings, one reader at a time: Python keeps its warning filters per process."""
    notices: list[str] = []
    with _READING, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ReaderWarning)
        yield notices
        notices += [str(item.message) for item in caught if issubclass(item.category, ReaderWarning)]
