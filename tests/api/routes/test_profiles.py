import pytest

pytestmark = pytest.mark.anyio


async def test_a_profile_is_stored_listed_and_given_out(fresh, profile):
    created = await fresh.post("/profiles", json=profile)
    assert created.status_code == 201, created.text
    assert (await fresh.post("/profiles", json=profile)).status_code == 200
    assert (await fresh.get("/profiles")).json() == {"profiles": [created.json()], "next": None}
    assert (await fresh.get(created.headers["location"])).json() == profile


async def test_the_newest_profile_is_the_default_cluster_and_its_id_a_cluster(fresh, profile):
    profile_id = (await fresh.post("/profiles", json=profile)).json()["id"]
    assert (await fresh.get("/clusters")).json()["default"] == profile_id
    default = await fresh.post("/plan", json={"model": "llama-15m"})
    assert default.status_code == 200, default.text
    assert f'cluster="{profile_id}"' in default.headers["autoplan-defaults"]
    named = await fresh.post("/plan", json={"model": "llama-15m", "cluster": profile_id})
    assert named.json()["inputs"] == default.json()["inputs"]
    assert named.json()["inputs"]["profile"] is not None
    assert "cluster=" not in named.headers["autoplan-defaults"]


async def test_a_profile_that_is_none_is_a_422_that_names_the_field(client, profile, is_problem):
    problem = is_problem(await client.post("/profiles", json={**profile, "contention": 3}), 422)
    assert "contention" in problem["detail"]
    is_problem(await client.post("/profiles", json=[]), 422)


async def test_a_profile_that_is_not_there_is_a_404(client, is_problem):
    is_problem(await client.get("/profiles/nothing"), 404)
