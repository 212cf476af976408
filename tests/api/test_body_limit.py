import pytest

pytestmark = pytest.mark.anyio

JSON = {"content-type": "application/json"}
LIMIT = 2**20


async def chunks(size, of=2**16):
    for start in range(0, size, of):
        yield b" " * min(of, size - start)


async def test_a_larger_body_is_a_problem(client, is_problem):
    problem = is_problem(await client.post("/plan", content=b" " * (LIMIT + 1), headers=JSON), 413)
    assert str(LIMIT) in problem["detail"]


async def test_a_larger_body_of_unknown_length_is_a_problem(client, is_problem):
    is_problem(await client.post("/plan", content=chunks(LIMIT + 1), headers=JSON), 413)


async def test_the_limit_counts_on_every_path(client, is_problem):
    is_problem(await client.post("/nothing", content=b" " * (LIMIT + 1)), 413)


async def test_a_body_of_the_limit_is_read(client, is_problem):
    is_problem(await client.post("/plan", content=chunks(LIMIT), headers=JSON), 400)
