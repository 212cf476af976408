"""Which MILP solver works here.

HiGHS comes first, as it works inside this process and needs no files, then the CBC that PuLP brings along, then one on
the path. The first that solves a tiny problem correctly is taken: a library may not load, a binary may be missing, not
executable, or made for other processors.
"""

import shutil
from collections.abc import Callable, Iterator
from functools import lru_cache

from autoplan.errors import AutoplanError, ConfigurationError
from solver.layers.outcome import Backend

REMEDY = "`pip install highspy` brings one; --solver dp and --solver cp-sat need none"


@lru_cache(maxsize=1)
def milp_backend() -> Backend:
    """Return the first MILP solver that works, which is looked for once in a process.

    Raises ConfigurationError that says what is wrong with each, and what helps.
    """
    wrong = []
    for name, make in _candidates():
        try:
            backend = make()
            _check(backend)
        except (ImportError, OSError, AttributeError, AutoplanError) as error:
            wrong.append(f"{name}: {error}")
        else:
            return backend
    raise ConfigurationError(f"no MILP solver works here ({'; '.join(wrong)}); {REMEDY}", where="--solver milp")


def _candidates() -> Iterator[tuple[str, Callable[[], Backend]]]:
    yield "HiGHS", _highs
    yield "the CBC of PuLP", _bundled_cbc
    on_path = shutil.which("cbc")
    if on_path is not None:
        yield "the CBC on the path", lambda: _cbc(on_path)


def _highs() -> Backend:
    from solver.layers.highs import HighsBackend

    return HighsBackend()


def _bundled_cbc() -> Backend:
    import pulp

    return _cbc(str(pulp.PULP_CBC_CMD.pulp_cbc_path))


def _cbc(path: str) -> Backend:
    from solver.layers.cbc import CbcBackend

    return CbcBackend(path)


def _check(backend: Backend) -> None:
    """Have a problem of two variables solved; raises ConfigurationError where the answer is wrong."""
    import pulp

    model = pulp.LpProblem("check", pulp.LpMinimize)
    x, y = (model.add_variable(name, 0, 10, pulp.LpInteger) for name in ("x", "y"))
    model.setObjective(3 * x + 2 * y)
    model += 2 * x + 2 * y >= 7
    model += x - y >= 0.5
    outcome = backend.solve(model, relaxed=False, stop=lambda: False)
    if outcome.kind != "optimal" or (round(x.value()), round(y.value())) != (3, 1):
        raise ConfigurationError(f"{backend.name} does not solve a problem of two variables", where="--solver milp")
