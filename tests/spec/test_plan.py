import json
from dataclasses import replace

import pytest

from autoplan.errors import PlanError
from autoplan.spec import read_plan, seal
from autoplan.spec.codec import to_json, to_jsonable
from autoplan.spec.plan import Alternative, Inputs, Mesh, plan_id
from tests.spec.values import small_cluster, small_plan


def test_a_plan_survives_json():
    plan = small_plan()
    assert read_plan(to_json(plan), where="plan.json") == plan
    assert read_plan(json.dumps(to_jsonable(plan), sort_keys=True, indent=1), where="plan.json") == plan


def test_the_id_stands_for_the_content_but_not_for_how_it_was_found():
    plan = small_plan()
    runner_up = Alternative(configuration=plan.configuration, step_seconds=2.0, peak_memory_bytes=1)
    assert seal(replace(plan, search=None, alternatives=(runner_up,))).id == plan.id
    assert seal(replace(plan, id="anything")).id == plan.id
    assert seal(replace(plan, workload=replace(plan.workload, seq_len=31))).id != plan.id


def test_the_id_is_pinned():
    assert len(small_plan().id) == 64
    assert plan_id({"id": "x", "search": 1, "alternatives": 2}) == plan_id({})
    assert plan_id({"a": 1}) != plan_id({})


@pytest.mark.parametrize(
    "alter",
    [
        lambda data: data["workload"].update(seq_len=31),
        lambda data: data["estimate"].update(step_seconds=0.5),
        lambda data: data["optimizer"].update(learning_rate=1e-3),
        lambda data: data.update(id="0" * 64),
        lambda data: data.update(runnable=False),
    ],
)
def test_an_altered_plan_is_refused(alter):
    data = to_jsonable(small_plan())
    alter(data)
    with pytest.raises(PlanError, match=r"^plan\.json: id .* does not match the content, .* the plan was altered"):
        read_plan(json.dumps(data), where="plan.json")


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"mesh": Mesh(axes=("pp", "dp_replicate", "dp_shard", "cp", "tp"), sizes=(2, 1, 2, 1, 4))}, "mesh.sizes"),
        ({"mesh": Mesh(axes=("pp", "dp_shard", "cp", "tp"), sizes=(2, 2, 1, 2))}, "mesh.axes"),
        ({"mesh": Mesh(axes=("pp", "dp_replicate", "dp_shard", "cp", "tp"), sizes=(2, 1, 2, 1))}, "mesh.sizes"),
    ],
)
def test_a_mesh_has_the_degrees_of_the_configuration(changes, field):
    with pytest.raises(PlanError, match=rf"^{field} is "):
        replace(small_plan(), **changes)


def test_a_plan_that_says_two_things_is_refused():
    plan = small_plan()
    stages = plan.stages
    late = replace(stages[1], chunks=(replace(stages[1].chunks[0], first_layer=3),))
    short = replace(stages[1], chunks=(replace(stages[1].chunks[0], num_layers=1),))
    for changes, field in (
        ({"layers": plan.layers[1:]}, "number of layers is 3"),
        ({"stages": stages[:1]}, "number of stages is 1"),
        ({"stages": (stages[0], late)}, "first layers of the stages"),
        ({"stages": (stages[0], short)}, "number of layers in the stages is 3"),
        ({"schedule": replace(plan.schedule, name="gpipe")}, "schedule.name is gpipe"),
        ({"schedule": replace(plan.schedule, micro_batch=4)}, "schedule.micro_batch is 4"),
        ({"sharding": replace(plan.sharding, ranks=4)}, "sharding.ranks is 4"),
        ({"sharding": replace(plan.sharding, zero_stage=3)}, "sharding.zero_stage is 3"),
    ):
        with pytest.raises(PlanError, match=f"^{field}"):
            replace(plan, **changes)


def test_a_file_that_says_two_things_is_refused_with_its_name():
    data = to_jsonable(small_plan())
    data["stages"].pop()
    data["id"] = plan_id(data)
    with pytest.raises(PlanError, match=r"^plan\.json: number of stages is 1, the rest of the plan says 2"):
        read_plan(json.dumps(data), where="plan.json")


def test_a_plan_for_another_batch_or_cluster_than_it_runs_is_refused():
    plan = small_plan()
    for changes, field in (
        ({"workload": replace(plan.workload, global_batch=64)}, "workload.global_batch is 64"),
        ({"schedule": replace(plan.schedule, num_microbatches=5)}, "workload.global_batch is 16"),
        ({"cluster": small_cluster(16)}, "number of devices in the cluster is 16"),
    ):
        with pytest.raises(PlanError, match=f"^{field}"):
            replace(plan, **changes)


def test_a_plan_with_another_problem_than_it_was_made_for_is_refused():
    """However well it was sealed again."""
    plan = small_plan()
    for name, changes in (
        ("model", {"model": replace(plan.model, vocab_size=plan.model.vocab_size + 8)}),
        ("cluster", {"cluster": replace(plan.cluster, name="another")}),
        ("workload", {"workload": replace(plan.workload, seq_len=plan.workload.seq_len * 2)}),
    ):
        other = seal(replace(plan, **changes))
        with pytest.raises(
            PlanError, match=rf"^plan\.json: the plan was made for the {name} {getattr(plan.inputs, name)[:12]}"
        ):
            read_plan(to_json(other), where="plan.json")
    renamed = seal(replace(plan, model=replace(plan.model, name="another")))
    assert read_plan(to_json(renamed), where="plan.json") == renamed


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"schema": "autoplan.plan/1"}', "\x00"])
def test_what_is_no_plan_is_refused(text):
    with pytest.raises(PlanError, match=r"^plan\.json: "):
        read_plan(text, where="plan.json")


@pytest.mark.parametrize("field", ["model", "mesh", "stages", "estimate", "runnable", "id"])
def test_a_missing_field_is_named(field):
    data = to_jsonable(small_plan())
    del data[field]
    with pytest.raises(PlanError, match=rf"^plan\.json: {field}: "):
        read_plan(json.dumps(data), where="plan.json")


@pytest.mark.parametrize("order", [((0, 1), (1, 1)), ((0, 2),), ((1, 1),)])
def test_the_order_of_nodes_is_one_of_all_nodes(order):
    plan = small_plan()
    half = replace(plan.cluster.groups[0], num_nodes=1, devices_per_node=4)
    two = replace(plan.cluster, groups=(half, half))
    inputs = Inputs.of(plan.model, two, plan.workload)
    turned = replace(plan, inputs=inputs, cluster=two, mesh=replace(plan.mesh, node_order=((1, 1), (0, 1))))
    assert read_plan(to_json(seal(turned)), where="plan.json").mesh.node_order == ((1, 1), (0, 1))
    with pytest.raises(PlanError, match=r"mesh\.node_order is "):
        replace(turned, mesh=replace(plan.mesh, node_order=(*order[:-1], (2, 1))))
