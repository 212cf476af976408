import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

import autoplan
from autoplan import planner
from autoplan.errors import (
    ClusterError,
    CoefficientsError,
    ConfigurationError,
    InputError,
    NoPlanError,
    ProfileError,
    WorkloadError,
)
from autoplan.spec import AUTOPLAN, Configuration, read_plan
from autoplan.spec.codec import content_hash, to_json, to_jsonable
from autoplan.spec.profile import CollectiveFit, CollectiveOp
from autoplan.spec.rules import holds
from autoplan.units import GIB
from costmodels.batch import RECOMPUTES
from costmodels.coefficients import fitted_coefficients
from solver.assemble import default_optimizer
from solver.options import SearchOptions
from tests.solver.problems import make_cluster, make_model, make_profile
from tests.tiny_models import hybrid_like, latent_like, moe_like

MODEL = make_model(layers=16, hidden=2048, heads=16, kv_heads=16, width=8192)
SMALL = make_model()


def measured(*, bandwidth=1e11, memory=80 * GIB):
    """Return a profile of one node of eight devices whose links were measured at `bandwidth` bytes per second."""
    profile = make_profile(make_cluster(per_node=8, intra=bandwidth, memory=memory))
    fits = tuple(
        CollectiveFit(op=op, num_ranks=n, latency_seconds=1e-5, bytes_per_second=bandwidth, error=0.01)
        for op in get_args(CollectiveOp)
        for n in (2, 4, 8)
    )
    return replace(profile, fits=fits)


def plan_for(profile, *, global_batch, seq_len=2048, **options):
    return planner.plan(
        MODEL,
        cluster=None,
        global_batch=global_batch,
        seq_len=seq_len,
        profile=profile,
        options=SearchOptions(**options),
    )


def plan_small(**more):
    arguments = {"cluster": make_cluster(), "global_batch": 8, "seq_len": 1024} | more
    return planner.plan(SMALL, **arguments)


def test_slow_links_push_tp_down_and_fast_links_push_it_up():
    """Two sequences leave six of eight devices to tensor, context or pipeline parallelism: links decide which."""
    slow = plan_for(measured(bandwidth=1e9), global_batch=2, seq_len=8192).configuration
    fast = plan_for(measured(bandwidth=4e11), global_batch=2, seq_len=8192).configuration
    assert slow.tp == 1
    assert slow.pp == 8
    assert fast.tp * fast.cp >= 4
    assert fast.pp < slow.pp


def test_slow_links_push_sharding_down_and_fast_links_push_it_up():
    slow = plan_for(measured(bandwidth=1e9), global_batch=32).configuration
    fast = plan_for(measured(bandwidth=4e11), global_batch=32).configuration
    assert slow.dp < fast.dp
    assert slow.pp > fast.pp


def test_less_memory_pushes_sharding_recompute_and_pipelines_up():
    """From ample to scarce: more layers repeat more, more is sharded, then it is cut by other axes than data."""
    plans = [plan_for(measured(memory=size * GIB), global_batch=32) for size in (40, 20, 8, 4)]
    repeated = [sum(RECOMPUTES.index(layer.recompute) for layer in plan.layers) for plan in plans]
    stages = [plan.configuration.zero_stage for plan in plans]
    others = [plan.configuration.tp * plan.configuration.pp for plan in plans]
    assert repeated == sorted(repeated)
    assert 0 == repeated[0] < repeated[1] < repeated[2]
    assert stages == sorted(stages)
    assert stages[0] < stages[-1]
    assert others == sorted(others)
    assert 1 == others[0] < others[-1]


def test_less_memory_pushes_recompute_up_where_degrees_are_pinned():
    pins = {"tp": 1, "pp": 1, "micro_batch": 1, "zero_stage": 3}
    chosen = [
        plan_for(measured(memory=size * GIB), global_batch=32, fix=pins).configuration.recompute for size in (40, 8, 5)
    ]
    assert chosen[0] == "none"
    assert chosen[-1] == "full"


def test_a_plan_says_how_it_was_found():
    plan = plan_small()
    assert plan.search.status == "optimal"
    assert plan.search.gap == 0
    assert plan.estimate.fits
    assert plan.estimate.step_seconds == plan.search.lower_bound
    assert len(plan.alternatives) == 3
    assert all(other.step_seconds >= plan.estimate.step_seconds * (1 - 1e-9) for other in plan.alternatives)
    assert len(plan_small(options=SearchOptions(top=0)).alternatives) == 0


def test_a_plan_reads_back_whole():
    plan = plan_small(options=SearchOptions(fix={"pp": 2}))
    assert read_plan(to_json(plan), where="plan") == plan
    assert plan.inputs.profile is None


def test_the_id_is_the_same_in_other_processes():
    """Hash seeds, time and search time differ; the plan does not."""
    code = (
        "import sys\n"
        "from autoplan import planner\n"
        "print(planner.plan('llama-3-8b', cluster='h100-80g-sxm:2x8', global_batch=128, seq_len=8192).id)\n"
        "print('torch' in sys.modules, 'pandas' in sys.modules, 'ortools' in sys.modules)\n"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    (output,) = outputs
    assert output.splitlines()[1] == "False False False"


def test_arguments_may_be_values_objects_paths_or_names(tmp_path: Path):
    cluster_file = tmp_path / "cluster.json"
    cluster_file.write_text(to_json(make_cluster()))
    model_file = tmp_path / "model.json"
    model_file.write_text(to_json(SMALL))
    profile_file = tmp_path / "profile.json"
    profile_file.write_text(to_json(make_profile(make_cluster())))
    expected = plan_small()
    for model in (to_jsonable(SMALL), model_file, str(model_file)):
        for cluster in (to_jsonable(make_cluster()), cluster_file):
            assert planner.plan(model, cluster=cluster, global_batch=8, seq_len=1024).id == expected.id
    with_profile = plan_small(profile=profile_file)
    assert with_profile.inputs.profile is not None
    assert plan_small(profile=make_profile(make_cluster())).id == with_profile.id


def test_without_a_cluster_the_profile_s_own_is_planned_for():
    profile = make_profile(make_cluster())
    assert plan_small(cluster=None, profile=profile).cluster == profile.cluster
    with pytest.raises(ClusterError, match="--cluster"):
        plan_small(cluster=None)


def test_a_profile_of_another_device_is_refused_by_name():
    profile = make_profile(make_cluster(slug="a100-80g-sxm"))
    with pytest.raises(ProfileError, match=r"--profile: .*a100-80g-sxm.*h100-80g-sxm"):
        plan_small(profile=profile)


@pytest.mark.parametrize(
    ("wrong", "where"),
    [
        ({"global_batch": 0}, "--global-batch"),
        ({"global_batch": 2.0}, "--global-batch"),
        ({"global_batch": True}, "--global-batch"),
        ({"seq_len": -1}, "--seq-len"),
        ({"optimizer": "adam"}, "--optimizer"),
        ({"precision": "int8"}, "--precision"),
    ],
)
def test_a_workload_that_makes_no_sense_names_the_flag(wrong, where):
    with pytest.raises(WorkloadError) as caught:
        plan_small(**wrong)
    assert caught.value.where == where


def test_more_tokens_than_learned_positions_are_refused():
    with pytest.raises(WorkloadError, match=r"--seq-len: 2048 is more than the 1024 learned positions of gpt2"):
        planner.plan("gpt2", cluster="a100-80g-sxm:1x1", global_batch=8, seq_len=2048)


def test_the_optimizer_can_be_set():
    optimizer = default_optimizer("adamw", learning_rate=1e-4, warmup_steps=2000)
    assert plan_small(optimizer_plan=optimizer).optimizer == optimizer


def test_one_configuration_can_be_estimated():
    configuration = Configuration(tp=2, dp_shard=2, zero_stage=3)
    estimate = planner.estimate(
        SMALL, cluster=make_cluster(), global_batch=8, seq_len=1024, configuration=configuration
    )
    assert sum(estimate.breakdown.values()) == pytest.approx(estimate.step_seconds)
    with pytest.raises(ConfigurationError, match="the cluster has 4"):
        planner.estimate(SMALL, cluster=make_cluster(), global_batch=8, seq_len=1024, configuration=Configuration(tp=8))


@pytest.mark.parametrize(
    ("model", "reasons"),
    [
        (moe_like(num_layers=4), {"feed-forward moe: not in the models"}),
        (
            latent_like(num_layers=4),
            {
                "mixer latent_attention: not in the models",
                "feed-forward moe: not in the models",
                "multi-token prediction: not in the models",
            },
        ),
        (
            hybrid_like(),
            {
                "mixer mamba2, layers without a mixer: not in the models",
                "layers without a feed-forward: not in the models",
                "positions none: not in the models",
            },
        ),
    ],
)
def test_every_family_is_planned_with_the_reasons_why_it_does_not_run_here(model, reasons):
    options = SearchOptions(fix={"schedule": "1f1b"})
    plan = planner.plan(model, cluster=make_cluster(), global_batch=8, seq_len=64, options=options)
    assert set(plan.not_runnable_reasons) == reasons
    assert not plan.runnable
    assert plan.estimate.fits
    assert read_plan(to_json(plan), where="plan") == plan
    problem = planner.make_problem(model, cluster=make_cluster(), global_batch=8, seq_len=64)
    assert holds(problem, plan.configuration, kind="valid")


@pytest.mark.parametrize(
    ("model", "degrees"),
    [
        (SMALL, {"cp": 2, "cp_method": "ring", "dp_replicate": 2}),
        (SMALL, {"pp": 2, "schedule": "interleaved", "virtual_stages": 2, "dp_replicate": 2}),
        (SMALL, {"pp": 4, "schedule": "zb-h1"}),
        (SMALL, {"pp": 2, "schedule": "zb-v", "virtual_stages": 2, "tp": 2}),
        (SMALL, {"dp_replicate": 4, "recompute": "full", "recompute_layers": 2}),
        (moe_like(num_layers=4), {"dp_shard": 4, "zero_stage": 1, "ep": 4}),
        (moe_like(num_layers=4), {"cp": 2, "tp": 2, "ep": 2, "etp": 2}),
        (latent_like(num_layers=4), {"pp": 2, "dp_replicate": 2, "ep": 2}),
        (hybrid_like(), {"tp": 2, "pp": 2}),
    ],
)
def test_every_degree_can_be_estimated(model, degrees):
    estimate = planner.estimate(
        model, cluster=make_cluster(), global_batch=16, seq_len=64, configuration=Configuration(**degrees)
    )
    assert estimate.step_seconds > 0
    assert sum(estimate.breakdown.values()) == pytest.approx(estimate.step_seconds)
    assert len(estimate.memory) == degrees.get("pp", 1)


def test_the_software_is_a_value_or_a_name_and_ours_unless_said():
    assert plan_small().stack == AUTOPLAN
    assert plan_small(stack="autoplan").id == plan_small().id
    plan = plan_small(stack="megatron")
    assert plan.stack.name == "megatron"
    assert plan.not_runnable_reasons == ("stack megatron: the plan is for that software, not for the executor here",)
    assert plan_small(stack=plan.stack).id == plan.id != plan_small().id
    with pytest.raises(NoPlanError):
        plan_small(stack="megatron", options=SearchOptions(runnable_only=True))
    with pytest.raises(InputError, match=r"unknown stack 'megatrom'.*megatron"):
        plan_small(stack="megatrom")


def test_pins_are_honoured_or_refused():
    plan = plan_small(options=SearchOptions(fix={"tp": 2, "recompute": "full"}))
    assert (plan.configuration.tp, plan.configuration.recompute) == (2, "full")
    with pytest.raises(NoPlanError):
        plan_small(options=SearchOptions(fix={"tp": 3}))


def test_a_plan_that_cannot_run_here_is_still_a_plan_unless_asked_otherwise():
    plan = plan_small(optimizer="muon")
    assert not plan.runnable
    assert plan.not_runnable_reasons
    with pytest.raises(NoPlanError) as caught:
        plan_small(optimizer="muon", options=SearchOptions(runnable_only=True))
    assert "plan without --runnable-only" in [remedy.action for remedy in caught.value.remedies]


def test_the_package_hands_on_the_public_functions():
    assert autoplan.plan is planner.plan
    assert autoplan.estimate is planner.estimate
    assert autoplan.load_model is planner.load_model
    assert json.loads(to_json(autoplan.load_cluster("h100-80g-sxm:2x8")))["groups"][0]["num_nodes"] == 2


@pytest.mark.parametrize("argument", ["global_batch", "seq_len"])
def test_a_size_beyond_every_machine_is_named(argument):
    with pytest.raises(WorkloadError, match=rf"^--{argument.replace('_', '-')}: 10{{18}}: a whole number from 1 to "):
        plan_small(**{argument: 10**18})


def test_a_model_is_the_same_by_whatever_name():
    other = planner.plan(replace(SMALL, name="other"), cluster=make_cluster(), global_batch=8, seq_len=1024)
    assert other.inputs == plan_small().inputs


def test_positions_beyond_those_of_the_model_are_an_assumption():
    beyond = planner.plan(replace(SMALL, max_positions=512), cluster=make_cluster(), global_batch=8, seq_len=1024)
    assert any("beyond the 512 positions" in said for said in beyond.estimate.assumptions)


def test_public_names_are_listed():
    assert {"plan", "estimate", "load_model", "load_cluster"} <= set(dir(autoplan))


def test_coefficients_of_ones_own_price_the_plan(tmp_path):
    slow = replace(fitted_coefficients(), products=fitted_coefficients().products / 4)
    path = tmp_path / "slow.json"
    path.write_text(to_json(slow))
    usual, own, again = plan_small(), plan_small(coefficients=slow), plan_small(coefficients=path)
    assert own.estimate.step_seconds > usual.estimate.step_seconds
    assert (usual.inputs.coefficients, own.inputs.coefficients) == (None, content_hash(to_jsonable(slow)))
    assert own.id == again.id != usual.id
    with pytest.raises(CoefficientsError, match="--coefficients: a profile's own measurements take their place"):
        plan_small(coefficients=slow, profile=make_profile(make_cluster()))
