import json

import pytest

from api.problems import from_error, from_status
from autoplan.errors import (
    AutoplanError,
    ClusterError,
    ConfigurationError,
    InputError,
    ModelError,
    NoPlanError,
    ProfileError,
    Remedy,
    RunError,
    WorkloadError,
)


@pytest.mark.parametrize(
    ("cls", "kind"),
    [
        (ModelError, "model"),
        (ClusterError, "cluster"),
        (WorkloadError, "workload"),
        (ConfigurationError, "configuration"),
        (ProfileError, "profile"),
        (InputError, "input"),
    ],
)
def test_an_input_error_is_a_422_of_its_kind_that_names_the_field(cls, kind):
    problem = from_error(cls("is zero", where="groups.0"))
    assert (problem.status, problem.type) == (422, f"urn:autoplan:problem:{kind}")
    assert (problem.detail, problem.where) == ("is zero", "groups.0")


@pytest.mark.parametrize(
    ("flag", "field"),
    [
        ("--seq-len", "workload.seq_len"),
        ("--fix tp=3", "options.fix tp=3"),
        ("--time-limit", "options.time_limit_seconds"),
        ("model", "model"),
    ],
)
def test_a_flag_becomes_the_field_of_the_request(flag, field):
    assert from_error(InputError("wrong", where=flag)).where == field


def test_no_plan_keeps_its_remedies_in_order():
    remedies = (Remedy(action="recompute=full", effect="71 GiB"), Remedy(action="2x nodes", effect="fits"))
    problem = from_error(NoPlanError("needs 96 GiB, has 80", remedies=remedies))
    assert problem.status == 422
    assert json.loads(problem.to_json())["remedies"] == [
        {"action": "recompute=full", "effect": "71 GiB"},
        {"action": "2x nodes", "effect": "fits"},
    ]


@pytest.mark.parametrize("error", [AutoplanError("/secret/path"), RunError("/secret/path")])
def test_other_errors_are_ours_and_say_nothing_of_the_inside(error):
    problem = from_error(error)
    assert problem.status == 500
    assert "secret" not in problem.to_json().decode()


def test_members_without_a_value_are_left_out():
    assert set(json.loads(from_status(404, "there is no plan x").to_json())) == {
        "type",
        "title",
        "status",
        "detail",
        "remedies",
    }
