import json

import pytest

from autoplan.errors import PlanError, ProfileError
from autoplan.readers import load_plan, load_profile
from autoplan.spec import Profile
from autoplan.spec.codec import to_json, to_jsonable
from autoplan.spec.profile import Provenance
from tests.spec.values import small_cluster, small_plan


def profile():
    provenance = Provenance(
        device_name="made-up", num_ranks=2, num_threads=1, date="2026-01-01", versions={"torch": "2.13.0"}, quick=True
    )
    return Profile(
        cluster=small_cluster(),
        provenance=provenance,
        matmuls=(),
        layers=(),
        collectives=(),
        fits=(),
        contention=None,
        optimizer_bytes_per_second=None,
    )


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def test_plans_and_profiles_come_back(tmp_path):
    assert load_plan(write(tmp_path / "plan.json", to_json(small_plan()))) == small_plan()
    assert load_profile(str(write(tmp_path / "profile.json", to_json(profile())))) == profile()


def test_an_altered_plan_is_refused(tmp_path):
    data = to_jsonable(small_plan())
    data["workload"]["seq_len"] = 64
    path = write(tmp_path / "plan.json", json.dumps(data))
    with pytest.raises(PlanError, match=r"plan\.json: id .* does not match the content"):
        load_plan(path)


@pytest.mark.parametrize(("load", "error"), [(load_plan, PlanError), (load_profile, ProfileError)])
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a":\n}', r"malformed JSON at line 2, column 1"),
        ("[]", "must be a JSON object"),
        ('{"schema": "autoplan.model/1"}', "schema is 'autoplan.model/1', expected 'autoplan"),
        ("{}", "Field required|missing"),
    ],
)
def test_what_is_none_is_refused(tmp_path, load, error, text, message):
    with pytest.raises(error, match=rf"saved\.json: .*({message})"):
        load(write(tmp_path / "saved.json", text))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(PlanError, match=r"none\.json: no such file"):
        load_plan(tmp_path / "none.json")
    with pytest.raises(ProfileError):
        load_profile(tmp_path)
