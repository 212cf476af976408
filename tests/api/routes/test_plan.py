import json

import pytest

from autoplan.spec import read_plan
from autoplan.spec.codec import to_jsonable

pytestmark = pytest.mark.anyio

NO_WAIT = {"prefer": "wait=0"}


def job_of(response):
    """The job that a plan's answer links to."""
    return response.headers["link"].split(";")[0].strip("<>")


async def test_a_request_gets_its_plan(client, request_body):
    response = await client.post("/plan", json=request_body)
    assert response.status_code == 200, response.text
    plan = read_plan(response.content, where="answer")
    assert plan.model.name == "gpt2"
    assert to_jsonable(plan.workload) == request_body["workload"]
    assert plan.cluster.name == "a100-80g-sxm:1x2"
    assert plan.search.status == "optimal"
    assert response.headers["content-location"].startswith(f"/plans/{plan.id}?job=")
    assert "autoplan-defaults" not in response.headers


async def test_a_bare_config_json_is_planned_for_this_machine_and_says_so(fresh):
    config = {
        "model_type": "llama",
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_attention_heads": 4,
        "num_hidden_layers": 4,
        "vocab_size": 256,
        "max_position_embeddings": 128,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
    }
    response = await fresh.post("/plan", json=config)
    assert response.status_code == 200, response.text
    plan = read_plan(response.content, where="answer")
    stated = dict(part.split("=") for part in response.headers["autoplan-defaults"].split(", "))
    assert stated["cluster"] == f'"{plan.cluster.name}"'
    assert stated["workload.global_batch"] == str(plan.workload.global_batch)
    assert stated["workload.seq_len"] == str(plan.workload.seq_len) == "128"
    assert plan.cluster.device_kind == "cpu"
    job = (await fresh.get(job_of(response))).json()
    assert job["defaults"]["workload"] == to_jsonable(plan.workload)


async def test_a_model_object_of_autoplan_is_planned(client, request_body):
    model = (await client.post("/plan", json=request_body)).json()["model"]
    response = await client.post("/plan", json={**request_body, "model": model})
    assert response.json()["model"] == model
    assert (await client.post("/plan", json=model, headers=NO_WAIT)).status_code in {200, 202}


async def test_what_is_left_open_alone_is_stated(client, request_body):
    del request_body["workload"]["precision"]
    response = await client.post("/plan", json=request_body)
    assert response.headers["autoplan-defaults"] == 'workload.precision="bf16"'


async def test_options_reach_the_search(client, request_body):
    options = {"fix": {"tp": 2}, "forbid": ["recompute==full"], "top": 2, "runnable_only": True}
    plan = (await client.post("/plan", json={**request_body, "options": options})).json()
    assert plan["configuration"]["tp"] == 2
    assert len(plan["alternatives"]) == 2
    assert all(other["configuration"]["tp"] == 2 for other in plan["alternatives"])


async def test_the_software_is_an_option(client, request_body):
    ours = await client.post("/plan", json=request_body)
    other = await client.post("/plan", json={**request_body, "options": {"stack": "megatron"}})
    assert other.json()["stack"]["name"] == "megatron"
    assert not other.json()["runnable"]
    assert job_of(other) != job_of(ours)


async def test_an_equal_request_is_answered_from_the_store_byte_for_byte(client, request_body):
    first = await client.post("/plan", json=request_body)
    reordered = dict(reversed(request_body.items()))
    again = await client.post("/plan", json=reordered, headers=NO_WAIT)
    assert again.status_code == 200
    assert again.content == first.content
    assert job_of(again) == job_of(first)


async def test_a_request_that_is_not_ready_in_time_gets_its_job(fresh, request_body, freeze):
    process = freeze()
    response = await fresh.post("/plan", json=request_body, headers=NO_WAIT)
    assert response.status_code == 202
    assert int(response.headers["retry-after"]) > 0
    job = response.json()
    assert response.headers["location"] == job["links"]["self"]
    assert job["state"] in {"queued", "running"}
    process.resume()
    done = await fresh.post("/plan", json=request_body, headers={"prefer": "wait=60"})
    assert done.status_code == 200
    assert job_of(done) == job["links"]["self"]


async def test_a_key_has_one_job_whatever_became_of_it(fresh, request_body, freeze, is_problem):
    freeze()
    key = {"idempotency-key": "k"}
    job = (await fresh.post("/plan", json=request_body, headers={**NO_WAIT, **key})).json()
    await fresh.delete(job["links"]["self"])
    is_problem(await fresh.post("/plan", json=request_body, headers=key), 409)
    other = is_problem(await fresh.post("/plan", json={**request_body, "model": "llama-15m"}, headers=key), 422)
    assert other["where"] == "header Idempotency-Key"
    assert (await fresh.post("/plan", json=request_body)).status_code == 200


async def test_nothing_fits_is_a_problem_with_remedies(client, is_problem):
    body = {
        "model": "llama-3.1-405b",
        "cluster": "a100-80g-sxm:1x1",
        "workload": {"global_batch": 1, "seq_len": 8192},
    }
    problem = is_problem(await client.post("/plan", json=body, headers={"prefer": "wait=60"}), 422)
    assert problem["type"].endswith("no-plan")
    assert problem["remedies"]
    assert all(remedy["action"] and remedy["effect"] for remedy in problem["remedies"])
    job = (await client.get(problem["instance"])).json()
    assert job["state"] == "failed"
    assert job["problem"]["remedies"] == problem["remedies"]


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"model": "gpt9"}, "model"),
        ({"model": {"model_type": "resnet"}}, "model"),
        ({"model": 5}, "model"),
        ({"model": None}, "model"),
        ({"cluster": "h100-80g-sxm:0x8"}, "cluster"),
        ({"cluster": "nothing:1x8"}, "cluster"),
        ({"cluster": {"groups": []}}, "cluster"),
        ({"cluster": "cpu:999999937x999999929", "options": {"time_limit_seconds": 2}}, "cluster"),
        ({"cluster": "cpu:1048577x1", "options": {"time_limit_seconds": 2}}, "cluster"),
        ({"cluster": 3}, "cluster"),
        ({"cluster": "f" * 64}, "cluster"),
        ({"workload": {"global_batch": 0}}, "workload.global_batch"),
        ({"workload": {"global_batch": "16"}}, "workload.global_batch"),
        ({"workload": {"global_batch": 10**30}}, "workload.global_batch"),
        ({"workload": {"global_batch": 2**40}}, "workload.global_batch"),
        ({"workload": {"global_batch": 2**31}}, "workload.global_batch"),
        ({"workload": {"seq_len": 2**40}}, "workload.seq_len"),
        ({"workload": {"seq_len": 2048}}, "workload.seq_len"),
        ({"workload": {"optimizer": "adam"}}, "workload.optimizer"),
        ({"workload": {"batch": 1}}, "workload.batch"),
        ({"options": {"top": -1}}, "options.top"),
        ({"options": {"fix": {"tp": 0}}}, "options.fix tp=0"),
        ({"options": {"fix": {"tp": [1]}}}, "options.fix"),
        ({"options": {"fix": {"tp": 2**31}}}, "options.fix.tp"),
        ({"options": {"fix": {"micro_batch": 10**26}}}, "options.fix.micro_batch"),
        ({"options": {"fix": {"tp": -(10**26)}}}, "options.fix"),
        ({"options": {"forbid": [f"tp>{10**26}"]}}, "options.forbid.0"),
        ({"options": {"forbid": ["tp>" + "9" * 5000]}}, "options.forbid.0"),
        ({"options": {"fix": {"nothing": 1}}}, "options.fix nothing=1"),
        ({"options": {"forbid": ["__import__('os')"]}}, "options.forbid"),
        ({"options": {"time_limit_seconds": 0}}, "options.time_limit_seconds"),
        ({"options": {"objective": "speed"}}, "options.objective"),
        ({"options": {"solver": "milp", "objective": "memory"}}, "options.solver"),
        ({"clusters": "cpu:1x2"}, "clusters"),
    ],
)
async def test_a_mistake_is_a_422_that_names_the_field(client, request_body, is_problem, change, where):
    problem = is_problem(await client.post("/plan", json={**request_body, **change}), 422)
    assert problem["where"].startswith(where)


async def test_every_unknown_key_is_named(client, request_body, is_problem):
    body = {**request_body, "one": 1, "options": {"two": 2}}
    problem = is_problem(await client.post("/plan", json=body), 422)
    assert {error["where"] for error in problem["errors"]} == {"one", "options.two"}


@pytest.mark.parametrize("name", ["/etc/passwd", "../../etc/hostname", "pyproject.toml", "."])
async def test_no_file_of_the_server_is_read(client, request_body, is_problem, name):
    for field in ("model", "cluster"):
        problem = is_problem(await client.post("/plan", json={**request_body, field: name}), 422)
        assert problem["where"] == field


@pytest.mark.parametrize("number", ["1e999", "-1e999", "1" + "0" * 400])
async def test_a_number_that_nothing_holds_is_a_422(client, llama_3_8b, is_problem, number):
    text = json.dumps({**llama_3_8b, "rope_theta": "HERE"}).replace('"HERE"', number)
    response = await client.post("/plan", content=text, headers={"content-type": "application/json"})
    is_problem(response, 422)


SMALL = {"fix": {"pp": 1, "cp": 1}}


async def test_a_front_is_an_answer_too_and_no_plan(fresh, request_body, is_problem):
    options = {**SMALL, "pareto": "memory", "points": 3}
    response = await fresh.post("/plan", json={**request_body, "options": options})
    assert response.status_code == 200, response.text
    front = response.json()
    assert (front["schema"], front["axis"]) == ("autoplan.front/1", "memory")
    assert len(front["points"]) > 1
    where = response.headers["content-location"]
    assert where.startswith("/fronts/")
    assert (await fresh.get(where)).content == response.content
    job = (await fresh.get(job_of(response))).json()
    assert (job["kind"], job["links"]["front"]) == ("front", where)
    assert (await fresh.get("/plans")).json()["plans"] == []
    is_problem(await fresh.get(where.replace("/fronts/", "/plans/")), 404)
    is_problem(await fresh.get("/fronts/nothing"), 404)
    other = await fresh.post("/plan", json={**request_body, "options": {**options, "points": 2}})
    assert job_of(other) != job_of(response)


async def test_of_several_clusters_the_best_is_taken(client, request_body):
    clusters = ["a100-80g-sxm:1x2", "h100-80g-sxm:1x2"]
    plan = (await client.post("/plan", json={**request_body, "cluster": clusters, "options": SMALL})).json()
    assert plan["cluster"]["name"] == "h100-80g-sxm:1x2"
    assert plan["search"]["notes"][0].startswith("a100-80g-sxm:1x2: ")
    options = {**SMALL, "pareto": "cost"}
    front = (await client.post("/plan", json={**request_body, "cluster": clusters, "options": options})).json()
    assert {point["cluster"] for point in front["points"]} <= set(clusters)


async def test_the_solver_is_an_option(client, request_body):
    options = {**SMALL, "solver": "cp-sat"}
    plan = (await client.post("/plan", json={**request_body, "options": options})).json()
    assert plan["search"]["solver"].startswith("CP-SAT of OR-Tools ")


async def test_the_objective_and_a_target_are_options(client, request_body):
    plan = (await client.post("/plan", json={**request_body, "options": {**SMALL, "objective": "memory"}})).json()
    assert plan["search"]["objective"] == "memory"
    body = {**request_body, "cluster": "a100-80g-sxm:2x2"}
    plan = (await client.post("/plan", json={**body, "options": {**SMALL, "target_tokens_per_second": 10}})).json()
    assert plan["cluster"]["name"] == "a100-80g-sxm:1x2"


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"options": {"pareto": "memory", "objective": "energy"}}, "options.objective"),
        ({"options": {"pareto": "cost", "target_tokens_per_second": 5}}, "options.target_tokens_per_second"),
        ({"options": {"pareto": "speed"}}, "options.pareto"),
        ({"options": {"fix": {"cuts": "0,4,3"}}}, "options.fix cuts=0,4,3"),
        ({"options": {"fix": {"layers[20].recompute": "full"}}}, "options.fix layers[20].recompute"),
        ({"options": {"target_tokens_per_second": 5, "objective": "memory"}}, "options.target_tokens_per_second"),
        ({"cluster": []}, "cluster"),
        ({"cluster": ["a100-80g-sxm:1x2", "nothing"]}, "cluster"),
    ],
)
async def test_what_does_not_go_together_names_the_field(changes, where, client, request_body, is_problem):
    problem = is_problem(await client.post("/plan", json={**request_body, **changes}), 422)
    assert problem["where"] == where
