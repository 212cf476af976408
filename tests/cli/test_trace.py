import json
from itertools import pairwise

import pytest

from autoplan.cli.trace import chrome_trace
from autoplan.spec import Configuration
from costmodels.batch import RECOMPUTES
from costmodels.estimate import estimate
from solver.assemble import assemble
from tests.solver.problems import make_problem


@pytest.fixture
def trace(plan_file, autoplan):
    out = plan_file.with_name("trace.json")
    answer = autoplan("trace", plan_file, "--out", out, "--json")
    assert answer.status == 0
    read = json.loads(out.read_text())
    assert answer.json["events"] == len(read["traceEvents"])
    return read


def test_every_micro_batch_is_on_every_stage_forward_and_backward(trace, plan_file):
    plan = json.loads(plan_file.read_text())
    slices = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    for stage in range(2):
        for kind in ("forward", "backward"):
            seen = {e["args"]["microbatch"] for e in slices if e["tid"] == stage and e["cat"] == kind}
            assert seen == set(range(plan["schedule"]["num_microbatches"]))


def test_slices_of_a_stage_do_not_overlap_and_end_within_the_step(trace):
    slices = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    for stage in range(2):
        own = sorted(
            (e["ts"], e["ts"] + e["dur"]) for e in slices if e["tid"] == stage and e["cat"] in {"forward", "backward"}
        )
        assert all(end <= start + 1e-3 for (_, end), (start, _) in pairwise(own))
    assert max(e["ts"] + e["dur"] for e in slices) <= trace["otherData"]["predicted_step_seconds"] * 1e6 * (1 + 1e-9)


def test_stages_have_names(trace):
    names = [event["args"]["name"] for event in trace["traceEvents"] if event["ph"] == "M"]
    assert names == ["stage 0", "stage 1"]


def test_a_profile_that_the_plan_was_not_made_with_is_refused(plan_file, autoplan, tmp_path):
    answer = autoplan("trace", plan_file, "--profile", tmp_path / "none.json")
    assert answer.status == 2
    assert "none.json" in answer.err


def test_layers_that_repeat_more_take_longer():
    """The timeline is of the plan's layers, not of a plan whose layers are all alike."""
    problem = make_problem()
    configuration = Configuration(pp=2, dp_replicate=2, recompute="full")

    def busy(layers):
        costs = estimate(problem, configuration, (0, 2, 4), layers=layers)
        names = tuple(RECOMPUTES[mode] for mode in layers)
        plan = assemble(problem, configuration, (0, 2, 4), recompute=names, estimate=costs)
        events = chrome_trace(plan)["traceEvents"]
        return [sum(event["dur"] for event in events if event["ph"] == "X" and event["tid"] == tid) for tid in (0, 1)]

    some, every = busy((0, 0, 2, 2)), busy((2, 2, 2, 2))
    assert some[0] < every[0]
    assert some[1] == pytest.approx(every[1])
