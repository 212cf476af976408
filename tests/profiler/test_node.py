import json
import os
import socket
from dataclasses import replace
from functools import partial

import jsonschema
import pytest
import torch

from autoplan.errors import InputError, ProfileError, RunError
from autoplan.profiler import profile_node
from autoplan.profiler.blocks import default_models
from autoplan.profiler.effort import Effort, Patience, choose_effort
from autoplan.profiler.launcher import run_ranks
from autoplan.profiler.node import Assignment, profile_with
from autoplan.spec.cluster import Device
from autoplan.spec.codec import from_json, json_schema, to_json
from autoplan.spec.profile import Profile
from autoplan.units import GIB, KIB, MIB

TINY = Effort(
    patience=Patience(min_repeats=2, max_repeats=3, seconds=0.0, long_seconds=60.0),
    matmul_rows=(8, 16),
    matmul_widths=((32, 32),),
    matmul_seconds=1000.0,
    micro_batches=(1, 2),
    seq_lens=(16,),
    layer_seconds=1000.0,
    message_bytes=(KIB, 64 * KIB),
    collective_seconds=1000.0,
    contention_seconds=0.05,
    optimizer_parameters=64 * KIB,
    copy_bytes=MIB,
)
MODEL = replace(default_models("cpu")[0], vocab_size=64)
ASSIGNMENT = Assignment(kind="cpu", effort=TINY, quick=True, model=MODEL, device=None)
CUDA = Device(
    slug="h100-80g-sxm",
    kind="cuda",
    memory_bytes=80 * GIB,
    memory_bytes_per_second=3.35e12,
    peak_flops={"bf16": 989e12},
    sources={},
)
OPS = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all"}


@pytest.fixture(scope="module")
def steps():
    return []


@pytest.fixture(scope="module")
def profile(steps):
    return profile_with(ASSIGNMENT, num_ranks=2, on_progress=lambda *step: steps.append(step))


def test_a_profile_survives_json_and_keeps_to_its_schema(profile):
    text = to_json(profile)
    assert from_json(Profile, text, where="profile") == profile
    jsonschema.Draft202012Validator(json_schema(Profile)).validate(json.loads(text))


def test_every_shape_of_the_grid_is_measured(profile):
    assert {layer.block for layer in profile.layers} == set(ASSIGNMENT.model.blocks)
    points = {(layer.precision, layer.tp, layer.micro_batch, layer.seq_len) for layer in profile.layers}
    assert points == {(p, tp, b, 16) for p in ("fp32", "bf16") for tp in (1, 2) for b in (1, 2)}
    assert {(m.precision, m.m, m.k, m.n) for m in profile.matmuls} >= {("fp32", 8, 32, 32), ("bf16", 16, 32, 32)}
    assert {(c.op, c.num_ranks) for c in profile.collectives} == {(op, 2) for op in OPS | {"send_recv"}}
    assert {(fit.op, fit.num_ranks) for fit in profile.fits} == {(op, 2) for op in OPS | {"send_recv"}}
    assert profile.contention is not None
    assert profile.optimizer_bytes_per_second > 0


def test_activations_grow_with_the_batch_and_shrink_with_precision_and_degree(profile):
    kept = {(x.precision, x.tp, x.micro_batch): x.activation_bytes for x in profile.layers}
    assert kept["fp32", 1, 2] == 2 * kept["fp32", 1, 1]
    assert kept["bf16", 1, 1] < kept["fp32", 1, 1]
    assert kept["fp32", 2, 1] < kept["fp32", 1, 1]


def test_the_cluster_is_this_node(profile):
    (group,) = profile.cluster.groups
    assert (group.num_nodes, group.devices_per_node) == (1, 2)
    assert group.device.slug == "cpu"
    assert set(group.device.peak_flops) == {"fp32", "bf16"}
    assert set(group.device.sources.values()) == {"measured by autoplan profile"}
    fit = next(fit for fit in profile.fits if fit.op == "all_reduce")
    assert group.intra_node.bytes_per_second == fit.bytes_per_second


def test_provenance_says_what_was_used(profile):
    assert profile.provenance.num_ranks == 2
    assert profile.provenance.versions["torch"] == torch.__version__
    assert profile.provenance.quick


def test_progress_rises_to_the_end(profile, steps):
    fractions = [fraction for _, fraction in steps]
    assert fractions == sorted(fractions)
    assert (fractions[0], fractions[-1]) == (0.0, 1.0)
    assert {"starting ranks", "memory bandwidth", "optimizer step", "done"} <= {text for text, _ in steps}


def test_a_single_rank_has_no_collectives():
    assignment = replace(ASSIGNMENT, effort=replace(TINY, micro_batches=(1,)))
    profile = profile_with(assignment, num_ranks=1, on_progress=lambda *_: None)
    assert (profile.collectives, profile.fits, profile.contention) == ((), (), None)
    assert {layer.tp for layer in profile.layers} == {1}
    device = profile.cluster.groups[0].device
    assert profile.cluster.groups[0].intra_node.bytes_per_second == device.memory_bytes_per_second


def measure_as_torchrun_would_start_it(rank, report, *, port):
    os.environ.update(
        RANK=str(rank), WORLD_SIZE="4", LOCAL_WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port)
    )
    heard = []
    assignment = replace(ASSIGNMENT, effort=replace(TINY, micro_batches=(1,)))
    profile = profile_with(assignment, num_ranks=1, on_progress=lambda *step: heard.append(step))
    assert bool(heard) == (rank == 0)
    return profile


def test_nodes_started_by_torchrun_are_one_cluster():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]
    work = partial(measure_as_torchrun_would_start_it, port=port)
    profile = run_ranks(work, num_ranks=4, on_progress=lambda *_: None)
    (group,) = profile.cluster.groups
    assert (group.num_nodes, group.devices_per_node) == (2, 2)
    assert profile.provenance.num_ranks == 4
    within = next(fit for fit in profile.fits if (fit.op, fit.num_ranks) == ("all_reduce", 2))
    assert group.intra_node.bytes_per_second == within.bytes_per_second
    assert group.inter_node != group.intra_node
    assert {(fit.op, fit.num_ranks) for fit in profile.fits} == {
        *((op, size) for op in OPS for size in (2, 4)),
        ("send_recv", 2),
    }


def test_a_failing_measurement_names_rank_and_cause():
    assignment = replace(ASSIGNMENT, effort=replace(TINY, message_bytes=(2**60, 2**61)))
    with pytest.raises(RunError, match=r"rank \d: RuntimeError: .*allocate memory"):
        profile_with(assignment, num_ranks=2, on_progress=lambda *_: None)


def test_no_ranks_are_refused():
    with pytest.raises(ProfileError, match="num_ranks: 0 ranks"):
        profile_node(num_ranks=0, quick=True)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")
def test_a_device_that_is_not_here_is_refused():
    with pytest.raises(InputError, match="device: 2 ranks need as many CUDA devices, this node has 0"):
        profile_node(num_ranks=2, quick=True, device=CUDA)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_cuda_device_is_measured():
    effort = replace(choose_effort("cuda", quick=True), matmul_seconds=1.0, layer_seconds=1.0, collective_seconds=1.0)
    count = min(torch.cuda.device_count(), 2)
    assignment = replace(ASSIGNMENT, kind="cuda", effort=effort, device=CUDA)
    profile = profile_with(assignment, num_ranks=count, on_progress=lambda *_: None)
    device = profile.cluster.groups[0].device
    assert device.kind == "cuda"
    assert device.peak_flops == CUDA.peak_flops
    assert device.reserved_bytes > 0
    assert profile.layers
    assert "nccl" in profile.provenance.versions
