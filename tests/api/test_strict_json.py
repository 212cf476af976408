import pytest

pytestmark = pytest.mark.anyio

JSON = {"content-type": "application/json"}


@pytest.mark.parametrize("path", ["/plan", "/estimate", "/profiles"])
@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "line 1"),
        (b'{"model": "gpt2",\n}', "line 2, column 1"),
        (b'{"model": "gpt2", "model": "gpt2"}', "given twice"),
        (b'{"model": NaN}', "NaN"),
        (b'{"model": "\xff"}', "UTF-8"),
        (b"[" * 100_000, "too deeply"),
        (b"1" * 5000, "malformed"),
        (b'{"model": "gpt2", "cluster": "\\ud800"}', "\\ud800 is half"),
        (b'{"model": "gpt2", "options": {"fix": {"\\uDFFF": 1}}}', "\\udfff is half"),
        (b'{"\\ud800": 1, "\\ud800": 2}', "given twice"),
        (b'["\\ude00\\ud83d"]', "\\ude00 is half"),
    ],
)
async def test_a_body_that_is_not_json_is_a_400_that_says_where(client, is_problem, path, body, words):
    problem = is_problem(await client.post(path, content=body, headers=JSON), 400)
    assert words in problem["detail"]
    assert problem["where"] == "body"


@pytest.mark.parametrize("headers", [{}, {"content-type": "application/x-www-form-urlencoded"}])
async def test_a_body_of_another_type_is_a_415_that_says_what_to_send(client, is_problem, headers):
    problem = is_problem(await client.post("/plan", content=b'{"model": "gpt2"}', headers=headers), 415)
    assert "application/json" in problem["detail"]


@pytest.mark.parametrize("body", ["[]", '"gpt2"', "3", "null"])
async def test_a_body_that_is_no_object_is_a_422(client, is_problem, body):
    is_problem(await client.post("/plan", content=body, headers=JSON), 422)


async def test_a_whole_surrogate_pair_is_a_character(client, is_problem):
    body = b'{"model": "\\ud83d\\ude00", "cluster": "cpu:1x2"}'
    assert "\U0001f600" in is_problem(await client.post("/plan", content=body, headers=JSON), 422)["detail"]


async def test_a_media_type_with_a_charset_is_json(client, is_problem):
    headers = {"content-type": "Application/JSON; charset=utf-8"}
    is_problem(await client.post("/plan", content=b"{}", headers=headers), 422)
