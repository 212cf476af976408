import pytest

pytestmark = pytest.mark.anyio


async def test_a_plan_is_given_out_byte_for_byte(client, request_body):
    answer = await client.post("/plan", json=request_body)
    stored = await client.get(answer.headers["content-location"])
    assert (stored.content, stored.headers["content-type"]) == (answer.content, "application/json")


async def test_a_plan_that_is_not_there_is_a_404(client, is_problem):
    is_problem(await client.get("/plans/nothing"), 404)


async def test_the_list_goes_on_over_pages(fresh, request_body):
    for sequences in (8, 16, 32):
        request_body["workload"]["global_batch"] = sequences
        assert (await fresh.post("/plan", json=request_body)).status_code == 200
    first = (await fresh.get("/plans", params={"limit": 2})).json()
    rest = (await fresh.get(first["next"])).json()
    assert [len(first["plans"]), len(rest["plans"]), rest["next"]] == [2, 1, None]
    assert len({plan["id"] for plan in first["plans"] + rest["plans"]}) == 3
    item = rest["plans"][0]
    plan = (await fresh.get(item["links"]["self"])).json()
    assert (item["step_seconds"], item["model"]) == (plan["estimate"]["step_seconds"], "gpt2")


@pytest.mark.parametrize("path", ["/plans", "/profiles"])
@pytest.mark.parametrize(
    ("name", "value"),
    [("limit", "0"), ("limit", "1000"), ("limit", "x"), ("before", "-1"), ("before", str(2**63)), ("before", "9" * 26)],
)
async def test_a_wrong_parameter_is_named(client, is_problem, path, name, value):
    assert is_problem(await client.get(path, params={name: value}), 422)["where"] == f"query {name}"


@pytest.mark.parametrize("path", ["/plans", "/profiles"])
async def test_the_largest_number_of_the_database_is_one_to_list_before(client, path):
    assert (await client.get(path, params={"before": 2**63 - 1})).status_code == 200
