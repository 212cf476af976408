"""Brute force: everything that a small problem's space has is costed, and compared with what a search says of it.

`verify` lists the space on its own (`solver.proof.candidates`) and costs all of it with `costmodels.estimate.evaluate`,
block by block. The certificate of a search holds when

- its best plan is in the space, fits, and costs what `evaluate` and the event simulation say;
- its lower bound is not above the best that fits;
- where it says `optimal`, nothing that fits is better, and the runners-up are the best of the next best kinds
  (`solver.result.kind_of`);
- where it found nothing, nothing fits.

Better means by more than rounding: sums are taken in other orders in the search than here.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

import numpy as np

from autoplan.spec import Configuration, Plan, Problem
from autoplan.spec.arrangement import arrangements
from autoplan.spec.value import value
from costmodels.arrays import combine
from costmodels.batch import Batch, Bools
from costmodels.estimate import estimate
from solver.assemble import plan_cuts, plan_layers
from solver.objectives import Goal, goal_of
from solver.options import SearchOptions
from solver.proof.candidates import count_product, every_configuration
from solver.proof.exhaustive import Leaders, best_of, cost_all, cost_one
from solver.proof.splits import EverySplit, Shape
from solver.result import Found, SearchResult, kind_of
from solver.stages.limits import ROUNDING

MOST_CANDIDATES = 2_000_000
MOST_PRODUCT = 1 << 24
"""How large a product of all fields is filtered."""


@value
class TooLarge:
    """There are more candidates than brute force is for: at most so many as `candidates`, and more than `most`."""

    candidates: int
    most: int


@value
class Verification:
    """What brute force says of a search.

    `candidates` were costed, of `configurations` configurations, and `fitting` of them fit; `best` is the best of these
    (None where there are none), `claimed` what the search found. `complaints` is empty where the certificate holds.
    """

    candidates: int
    configurations: int
    fitting: int
    best: Found | None
    claimed: Found | None
    complaints: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """Whether the certificate of the search holds."""
        return not self.complaints


def count_space(problem: Problem, options: SearchOptions) -> int:
    """Return how many candidates there are: configurations, each with all of its cuts and modes of layers.

    Where the product of all fields is too large to be filtered, it is the size of that.
    """
    size = count_product(problem, options)
    return size if size > MOST_PRODUCT else sum(space.size for space in _Space.of_every_order(problem, options))


def verify(
    problem: Problem, options: SearchOptions, result: SearchResult | None, *, most: int = MOST_CANDIDATES
) -> Verification | TooLarge:
    """Return what brute force says of a search's result, or that there is too much to cost.

    The result is None when the search proved that nothing fits.
    """
    size = count_product(problem, options)
    if size > MOST_PRODUCT:
        return TooLarge(candidates=size, most=most)
    spaces = _Space.of_every_order(problem, options)
    size = sum(space.size for space in spaces)
    if size > most:
        return TooLarge(candidates=size, most=most)
    goal = goal_of(problem, options.objective)
    leaders = [
        cost_all(space.problem, options, goal, shape, batch)
        for space in spaces
        for shape, batch in space.by_shape.items()
    ]
    best = best_of(leaders)
    return Verification(
        candidates=size,
        configurations=sum(len(each.batch) for each in leaders),
        fitting=sum(each.fitting for each in leaders),
        best=best,
        claimed=None if result is None else result.best,
        complaints=tuple(_complaints(spaces, goal, leaders, best, result)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Space:
    """The configurations of a problem with its nodes in one order, by their shapes, and the number of candidates."""

    problem: Problem
    options: SearchOptions
    by_shape: dict[Shape, Batch]
    size: int

    @classmethod
    def of_every_order(cls, problem: Problem, options: SearchOptions) -> tuple["_Space", ...]:
        """List all configurations with every order of a mixed cluster's nodes."""
        return tuple(cls.of(arranged, options) for arranged in arrangements(problem))

    @classmethod
    def of(cls, problem: Problem, options: SearchOptions) -> "_Space":
        """List all configurations with the order that the nodes have."""
        parts: dict[Shape, list[Batch]] = {}
        for block in every_configuration(problem, options):
            for shape, rows in Shape.all_of(block).items():
                parts.setdefault(shape, []).append(block.take(rows))
        by_shape: dict[Shape, Batch] = {shape: combine(some, np.concatenate) for shape, some in sorted(parts.items())}
        every = EverySplit(problem, options)
        size = sum(every.count(shape, batch) for shape, batch in by_shape.items())
        return cls(problem=problem, options=options, by_shape=by_shape, size=size)

    def has(self, found: Found) -> bool:
        """Return whether a plan is in the space."""
        if self.problem.node_order != found.node_order:
            return False
        row = Batch.of([found.configuration], np.asarray([[0]]))
        (shape,) = Shape.all_of(row)
        batch = self.by_shape.get(shape)
        if batch is None or not _same(batch, found.configuration).any():
            return False
        return EverySplit(self.problem, self.options).has(shape, found.configuration, found.cuts, found.layers)


def _same(batch: Batch, configuration: Configuration) -> Bools:
    names = [each.name for each in fields(Configuration)]
    same: Bools = np.all([getattr(batch, name) == getattr(configuration, name) for name in names], axis=0)
    return same


def _complaints(
    spaces: Sequence[_Space], goal: Goal, leaders: Sequence[Leaders], best: Found | None, result: SearchResult | None
) -> Iterator[str]:
    """Yield what contradicts the search, one sentence each."""
    least = np.sort(np.concatenate([np.zeros(0), *(each.least for each in leaders)]))
    if result is None:
        if best is not None:
            yield f"nothing was found, but this fits: {describe(best)}"
        return
    yield from _false_claims(spaces, result.best)
    if best is None:
        yield "nothing fits, but a plan was found"
        return
    bound, claimed = result.search.lower_bound, float(goal.value(cost_one(spaces[0].problem, result.best))[0])
    if not np.isclose(result.search.value, claimed, rtol=ROUNDING, atol=0.0):
        yield f"the objective of the plan is {claimed!r}, not {result.search.value!r}"
    if bound > least[0] * (1 + ROUNDING):
        yield f"the lower bound {bound!r} is above the least, {float(least[0])!r}: {describe(best)}"
    if result.search.status != "optimal":
        return
    if claimed > least[0] * (1 + ROUNDING):
        yield f"called optimal with {claimed!r}, but this has {float(least[0])!r}: {describe(best)}"
    if goal.minimises == "time" and not goal.per_busy_second:
        meant = [value / goal.per_second for value in _best_kinds(leaders, spaces[0].options.top + 1)]
        yield from _missed_alternatives(meant, result)


def _false_claims(spaces: Sequence[_Space], found: Found) -> Iterator[str]:
    """Yield what is wrong with a plan by itself."""
    space = next((each for each in spaces if each.has(found)), None)
    if space is None:
        yield "the plan is not in the space"
        return
    costs = cost_one(space.problem, found)
    if not costs.fits[0]:
        yield f"the plan does not fit: {costs.peak_memory_bytes[0]:.0f} bytes of {np.min(costs.memory_limit_bytes)}"
    simulated = estimate(space.problem, found.configuration, found.cuts, layers=found.layers)
    for name, said, by in (
        ("step", found.step_seconds, float(costs.step_seconds[0])),
        ("step, simulated,", found.step_seconds, simulated.step_seconds),
        ("peak", float(found.peak_memory_bytes), float(round(costs.peak_memory_bytes[0]))),
    ):
        if not np.isclose(said, by, rtol=ROUNDING, atol=0.0):
            yield f"the {name} of the plan is {by!r}, not {said!r}"


def _best_kinds(leaders: Sequence[Leaders], most: int) -> list[float]:
    """Return the least values of up to `most` kinds of plans that fit, ascending."""
    places = [
        (each.least[i], k, i) for k, each in enumerate(leaders) for i in np.flatnonzero(each.least < np.inf).tolist()
    ]
    kinds: dict[tuple[int | str, ...], float] = {}
    for least, k, i in sorted(places):
        kinds.setdefault(kind_of(leaders[k].found(i)), float(least))
        if len(kinds) == most:
            break
    return list(kinds.values())


def _missed_alternatives(meant: Sequence[float], result: SearchResult) -> Iterator[str]:
    """Yield where the plan and its runners-up do not take the seconds that the best kinds are `meant` to take."""
    listed = [result.best.step_seconds, *(each.step_seconds for each in result.alternatives)]
    if len(listed) != len(meant):
        yield f"{len(listed) - 1} runners-up are listed, {len(meant) - 1} are wanted"
    for place, (said, by) in enumerate(zip(listed, meant, strict=False)):
        if not np.isclose(said, by, rtol=2 * ROUNDING, atol=0.0):
            yield f"runner-up {place} takes {said!r} seconds, the kind in that place {by!r}"
            return


def result_of(plan: Plan) -> SearchResult:
    """Return what a plan says of the search that found it."""
    assert plan.search is not None, "the plan of one configuration was not searched for"
    return SearchResult(
        best=Found(
            configuration=plan.configuration,
            cuts=plan_cuts(plan),
            layers=plan_layers(plan),
            node_order=plan.mesh.node_order,
            step_seconds=plan.estimate.step_seconds,
            peak_memory_bytes=plan.estimate.peak_memory_bytes,
        ),
        search=plan.search,
        alternatives=plan.alternatives,
    )


def describe(found: Found) -> str:
    """Return one line that says what a plan is and what it costs."""
    plain = Configuration()
    names = [each.name for each in fields(Configuration)]
    chosen = {name: getattr(found.configuration, name) for name in names}
    settings = ", ".join(f"{name}={choice}" for name, choice in chosen.items() if choice != getattr(plain, name))
    return (
        f"{found.step_seconds!r} s, {found.peak_memory_bytes} bytes: {settings or 'the plainest configuration'}; "
        f"cuts {found.cuts}; layers {''.join(map(str, found.layers))}"
        + (f"; nodes in the order {found.node_order}" if found.node_order else "")
    )


def render(outcome: Verification | TooLarge) -> str:
    """Return what is said of a verification: one line where the certificate holds."""
    if isinstance(outcome, TooLarge):
        return f"not verified: {outcome.candidates:,} candidates are more than the {outcome.most:,} of brute force"
    if outcome.holds:
        found = "none better" if outcome.best is not None else "none fits"
        return f"verified: {outcome.candidates:,} candidates, {found}"
    lines = [f"REFUTED by brute force over {outcome.candidates:,} candidates:"]
    lines += [f"  {complaint}" for complaint in outcome.complaints]
    lines += [
        f"  {who}: {describe(plan)}" for who, plan in (("found", outcome.claimed), ("best", outcome.best)) if plan
    ]
    return "\n".join(lines)
