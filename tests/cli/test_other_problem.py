"""A plan is for the model, cluster and workload that it was made for, whichever verb takes it."""

import json

import pytest

from autoplan.spec.plan import plan_id

CHANGES = {
    "model": lambda plan: plan["model"].update(vocab_size=plan["model"]["vocab_size"] + 64),
    "cluster": lambda plan: plan["cluster"].update(name="another"),
    "workload": lambda plan: plan["workload"].update(seq_len=plan["workload"]["seq_len"] // 2),
}


@pytest.fixture(params=CHANGES)
def altered(request, plan_file):
    """A plan for another problem than it was made for, sealed again so that its id is right."""
    plan = json.loads(plan_file.read_text())
    CHANGES[request.param](plan)
    path = plan_file.with_name("altered.json")
    path.write_text(json.dumps({**plan, "id": plan_id(plan)}))
    return request.param, path


def refuses(answer, altered):
    what, path = altered
    assert answer.status == 2
    assert f"{path}: the plan was made for the {what} " in answer.err


@pytest.mark.parametrize("verb", ["explain", "trace", "run"])
def test_what_takes_a_plan_refuses_it(verb, altered, autoplan):
    refuses(autoplan(verb, altered[1]), altered)


def test_diff_refuses_it_on_either_side(altered, plan_file, autoplan):
    refuses(autoplan("diff", plan_file, altered[1]), altered)
    refuses(autoplan("diff", altered[1], plan_file), altered)
