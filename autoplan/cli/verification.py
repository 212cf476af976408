"""`autoplan plan --verify`: what brute force says of a search, in one line, or loudly."""

from typing import TYPE_CHECKING

from autoplan.errors import ConfigurationError, RunError

if TYPE_CHECKING:
    from autoplan.spec import Plan, Problem
    from solver.options import SearchOptions

FLAG = "--verify"


def require_small(problem: "Problem", options: "SearchOptions") -> None:
    """Raise ConfigurationError where there are more candidates than brute force is for, before anything is searched."""
    from solver.proof.verify import MOST_CANDIDATES, TooLarge, count_space, render

    size = count_space(problem, options)
    if size > MOST_CANDIDATES:
        refused = render(TooLarge(candidates=size, most=MOST_CANDIDATES))
        raise ConfigurationError(f"{refused}; pin something with --fix", where=FLAG)


def verify_plan(problem: "Problem", options: "SearchOptions", plan: "Plan | None") -> str:
    """Return one line that says what was verified of a searched plan; None: the search found that nothing fits.

    Raises RunError with the plans of both where brute force refutes the search, which is an error of ours.
    """
    from solver.proof.verify import TooLarge, render, result_of, verify

    outcome = verify(problem, options, None if plan is None else result_of(plan))
    said = render(outcome)
    if isinstance(outcome, TooLarge):
        raise ConfigurationError(said, where=FLAG)
    if not outcome.holds:
        raise RunError(f"the search is wrong, please report this. {said}")
    return said
