import subprocess
import sys

import pytest

pytestmark = pytest.mark.anyio


def test_the_service_and_its_search_process_start_without_torch():
    program = "import api.serve, api.jobs.worker, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-P", "-c", program]).returncode == 0


async def test_an_unknown_path_is_a_problem(client, is_problem):
    assert "/nothing" in is_problem(await client.get("/nothing"), 404)["detail"]


@pytest.mark.parametrize("path", ["/", "/nothing", "/plan/"])
async def test_an_unknown_path_says_where_the_known_ones_are(client, is_problem, path):
    assert "/openapi.json" in is_problem(await client.get(path), 404)["detail"]
    assert (await client.get("/openapi.json")).status_code == 200


async def test_a_trailing_slash_is_no_redirect(client, is_problem):
    is_problem(await client.get("/plans/"), 404)


async def test_a_wrong_method_is_a_problem_that_says_which_are_right(client, is_problem):
    response = await client.put("/plan", json={})
    is_problem(response, 405)
    assert response.headers["allow"] == "POST"


async def test_a_fault_of_ours_is_a_problem_that_says_nothing_of_the_inside(fresh, is_problem):
    def fault():
        raise RuntimeError("secret")

    fresh.app.add_api_route("/fault", fault)
    response = await fresh.get("/fault")
    is_problem(response, 500)
    assert "secret" not in response.text
