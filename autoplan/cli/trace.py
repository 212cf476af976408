"""`autoplan trace`: a plan's predicted timeline in the Chrome trace format, which Perfetto opens."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autoplan.cli.options import CoefficientsOption, JsonOption, PlanArgument, ProfileOption
from autoplan.cli.output import print_json, say, write_text

if TYPE_CHECKING:
    from autoplan.spec import Plan, Profile
    from costmodels.coefficients import Coefficients
    from costmodels.pipeline import Event

EXAMPLE = "autoplan trace plan.json --out timeline.json"
MICROSECONDS = 1e6


def command(
    plan: PlanArgument,
    *,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="Where the trace goes.")] = Path("trace.json"),
    profile: ProfileOption = None,
    coefficients: CoefficientsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write the predicted timeline of one step: every micro-batch on every pipeline stage."""
    import json

    from autoplan.readers import load_plan, load_profile
    from costmodels.coefficients_file import load_coefficients

    read = load_plan(plan)
    trace = chrome_trace(
        read,
        profile=None if profile is None else load_profile(profile),
        coefficients=None if coefficients is None else load_coefficients(coefficients),
    )
    write_text(out, json.dumps(trace) + "\n")
    say(f"trace written to {out}")
    if as_json:
        print_json({"plan": read.id, "out": str(out), "events": len(trace["traceEvents"])})


def chrome_trace(
    plan: "Plan", *, profile: "Profile | None" = None, coefficients: "Coefficients | None" = None
) -> dict[str, Any]:
    """Return the predicted timeline of one step as a Chrome trace object, times in microseconds.

    A thread of the trace is a pipeline stage. Raises ProfileError or CoefficientsError unless `profile` and
    `coefficients` are what the plan was made with, None for a plan that was made without them.
    """
    from costmodels.estimate import timeline
    from solver.assemble import plan_cuts, plan_layers
    from solver.reasons.explain import problem_of

    problem = problem_of(plan, profile=profile, coefficients=coefficients)
    events = timeline(problem, plan.configuration, plan_cuts(plan), layers=plan_layers(plan))
    return {
        "displayTimeUnit": "ms",
        "otherData": {"plan": plan.id, "predicted_step_seconds": plan.estimate.step_seconds},
        "traceEvents": [
            *(_name_of_stage(stage) for stage in range(plan.configuration.pp)),
            *(_slice(event) for event in events),
        ],
    }


def _name_of_stage(stage: int) -> dict[str, Any]:
    return {"ph": "M", "name": "thread_name", "pid": 0, "tid": stage, "args": {"name": f"stage {stage}"}}


def _slice(event: "Event") -> dict[str, Any]:
    return {
        "ph": "X",
        "name": f"{event.kind} {event.microbatch}",
        "cat": event.kind,
        "pid": 0,
        "tid": event.stage,
        "ts": event.start_seconds * MICROSECONDS,
        "dur": event.duration_seconds * MICROSECONDS,
        "args": {"chunk": event.chunk, "microbatch": event.microbatch},
    }
