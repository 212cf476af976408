import pytest

pytestmark = pytest.mark.anyio


@pytest.fixture
def body(request_body):
    return {**request_body, "configuration": {"dp_shard": 2, "zero_stage": 3, "micro_batch": 8}}


async def test_an_estimate_is_the_one_that_a_plan_carries(client, request_body):
    plan = (await client.post("/plan", json={**request_body, "options": {"fix": {"pp": 1}}})).json()
    estimate = await client.post("/estimate", json={**request_body, "configuration": plan["configuration"]})
    assert estimate.status_code == 200, estimate.text
    assert estimate.json() == plan["estimate"]


async def test_the_software_is_an_option(client, body, is_problem):
    ours = (await client.post("/estimate", json=body)).json()
    other = await client.post("/estimate", json={**body, "options": {"stack": "megatron-classic"}})
    assert other.status_code == 200, other.text
    assert other.json()["memory"] != ours["memory"]
    problem = is_problem(await client.post("/estimate", json={**body, "options": {"stack": "megatrom"}}), 422)
    assert problem["where"] == "options.stack"
    assert "megatron" in problem["detail"]


async def test_the_software_is_never_a_file(client, body, is_problem, tmp_path):
    file = tmp_path / "stack.json"
    file.write_text('{"name": "mine"}')
    problem = is_problem(await client.post("/estimate", json={**body, "options": {"stack": str(file)}}), 422)
    assert "unknown preset" in problem["detail"]


async def test_every_degree_is_taken(client, body):
    degrees = {"pp": 2, "schedule": "interleaved", "virtual_stages": 3, "recompute": "full", "recompute_layers": 4}
    response = await client.post("/estimate", json={**body, "configuration": degrees})
    assert response.status_code == 200, response.text
    assert len(response.json()["memory"]) == 2


async def test_what_was_chosen_is_stated(client, body):
    del body["workload"]
    response = await client.post("/estimate", json=body)
    assert "workload.global_batch=16" in response.headers["autoplan-defaults"]


@pytest.mark.parametrize(
    ("configuration", "words"),
    [
        ({"tp": 4}, "4 ranks, the cluster has 2"),
        ({"tp": "2"}, "tp"),
        ({"nothing": 1}, "nothing"),
        ({"dp_shard": 2}, "zero_stage"),
    ],
)
async def test_a_configuration_that_breaks_a_rule_is_a_422_that_says_which(
    client, body, is_problem, configuration, words
):
    problem = is_problem(await client.post("/estimate", json={**body, "configuration": configuration}), 422)
    assert problem["where"].startswith("configuration")
    assert words in problem["detail"]


@pytest.mark.parametrize("field", ["global_batch", "seq_len"])
@pytest.mark.parametrize("size", [2**31, 2**40, 10**400])
async def test_a_size_beyond_the_specs_bound_is_a_422_that_names_it(client, body, is_problem, field, size):
    problem = is_problem(await client.post("/estimate", json={**body, "workload": {field: size}}), 422)
    assert problem["where"] == f"workload.{field}"


@pytest.mark.parametrize("field", ["tp", "pp", "dp_shard", "micro_batch", "zero_stage"])
async def test_a_degree_beyond_the_specs_bound_is_a_422(client, body, is_problem, field):
    problem = is_problem(await client.post("/estimate", json={**body, "configuration": {field: 10**26}}), 422)
    assert problem["where"] == "configuration"
    assert field in problem["detail"]


async def test_a_missing_configuration_is_named(client, request_body, is_problem):
    assert is_problem(await client.post("/estimate", json=request_body), 422)["where"] == "configuration"
