"""Problems that are priced with coefficients of the user's own, which `autoplan calibrate` fitted to their runs."""

from autoplan.spec import Problem
from autoplan.spec.codec import content_hash, to_jsonable
from autoplan.spec.value import value
from costmodels.coefficients import Coefficients, fitted_coefficients


@value
class CalibratedProblem(Problem):
    """A problem with the coefficients to price it with; any other is priced with the package's."""

    coefficients: Coefficients


def own_coefficients(problem: Problem) -> Coefficients | None:
    """Return the coefficients that a problem brings, None for the package's."""
    return problem.coefficients if isinstance(problem, CalibratedProblem) else None


def coefficients_of(problem: Problem) -> Coefficients:
    """Return the coefficients that a problem is priced with."""
    return own_coefficients(problem) or fitted_coefficients()


def hash_coefficients(problem: Problem) -> str | None:
    """Return the content hash of the coefficients that a problem brings, None for the package's."""
    own = own_coefficients(problem)
    return None if own is None else content_hash(to_jsonable(own))


def with_coefficients(problem: Problem, coefficients: Coefficients | None) -> Problem:
    """Return the problem priced with `coefficients`, with the package's when None."""
    given = {name: getattr(problem, name) for name in Problem.__dataclass_fields__}
    return Problem(**given) if coefficients is None else CalibratedProblem(**given, coefficients=coefficients)
