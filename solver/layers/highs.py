"""HiGHS behind PuLP: in this process, on one thread, so that equal input gives equal output."""

from importlib.metadata import version
from math import inf
from threading import Event
from typing import Any

import highspy
import pulp

from autoplan.errors import RunError
from solver.layers.interrupts import Stop, run_stoppable
from solver.layers.outcome import ABSOLUTE_GAP, GAP, MOST_NODES, Model, Outcome

_KINDS = highspy.cb.HighsCallbackType
_INFEASIBLE = {"kInfeasible", "kUnboundedOrInfeasible"}
_STOPPED = {"kInterrupt", "kHighsInterrupt", "kSolutionLimit", "kUnknown"}


class HighsBackend:
    """The HiGHS that highspy brings along."""

    def __init__(self) -> None:
        _write_header_unseen()
        self.name = f"HiGHS {version('highspy')}"

    def solve(self, model: Model, *, relaxed: bool, stop: Stop, most_nodes: int = MOST_NODES) -> Outcome:
        """Solve a model; it is interrupted from within its own callbacks."""
        cancelled = Event()

        def interrupt(_kind: Any, _message: str, _state: Any, given: Any, _user: Any) -> None:
            given.user_interrupt = cancelled.is_set()

        solver = pulp.HiGHS(
            mip=not relaxed,
            msg=False,
            threads=1,
            gapRel=GAP,
            gapAbs=ABSOLUTE_GAP,
            mip_max_nodes=most_nodes,
            callbackTuple=(interrupt, None),
            callbacksToActivate=[_KINDS.kCallbackMipInterrupt, _KINDS.kCallbackSimplexInterrupt],
        )
        run_stoppable(lambda: model.solve(solver), cancel=cancelled.set, stop=stop)
        return _outcome(model.solverModel, relaxed=relaxed)


def _outcome(highs: Any, *, relaxed: bool) -> Outcome:
    info, status = highs.getInfo(), highs.getModelStatus().name
    found = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
    if status in _INFEASIBLE:
        return Outcome(kind="infeasible", found=False, bound=inf)
    if status == "kOptimal":
        bound = info.objective_function_value if relaxed else info.mip_dual_bound
        return Outcome(kind="optimal", found=found, bound=bound)
    if status not in _STOPPED:
        raise RunError(f"HiGHS ended with the status {status}")
    return Outcome(kind="stopped", found=found and not relaxed, bound=-inf if relaxed else info.mip_dual_bound)


def _write_header_unseen() -> None:
    """Let HiGHS write its header, once in a process, before a solver of its Python class writes it at its making."""
    core: Any = highspy.Highs.__mro__[1]()
    core.setOptionValue("log_to_console", False)
    core.setOptionValue("threads", 1)
    core.run()
