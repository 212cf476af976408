import numpy as np
import pytest

from autoplan.spec import Configuration
from autoplan.spec.profile import Contention
from costmodels.precision import OPTIMIZERS
from costmodels.unit_seconds import resolve, unit_seconds
from tests.costmodels.problems import make_batch, make_cluster, make_group, make_problem, make_profile, one


def seconds(problem, **configuration):
    batch = one(problem, **configuration)
    resolved = resolve(problem, batch)
    return unit_seconds(problem, batch, resolved), resolved


def on_cpu(**workload):
    return make_problem(cluster=make_cluster(make_group(kind="cpu")), **workload)


HAS_WEIGHTS = np.array([1, 1, 1, 0])


def free_overlap():
    cluster = make_cluster()
    nothing = Contention(compute_slowdown=1.0, communication_slowdown=1.0)
    return make_problem(cluster=cluster, profile=make_profile(cluster, contention=nothing), seq_len=4096)


def test_stage_3_gathers_twice_and_reduces_once_a_micro_batch_all_exposed_on_cpus():
    problem = on_cpu()
    found, resolved = seconds(problem, dp_shard=8, zero_stage=3)
    gather = resolved.links.seconds("all_gather", 2 * resolved.parameters.local, resolved.placement.dp_shard)
    reduce = resolved.links.seconds("reduce_scatter", 4 * resolved.parameters.local, resolved.placement.dp_shard)
    assert found.data_forward == pytest.approx(HAS_WEIGHTS * gather)
    assert found.data_backward == pytest.approx(HAS_WEIGHTS * (gather + reduce))
    assert np.all(found.reduce == 0)


def test_stage_2_gathers_once_a_step_and_reduces_every_micro_batch():
    problem = on_cpu()
    two, resolved = seconds(problem, dp_shard=8, zero_stage=2)
    one_, _ = seconds(problem, dp_shard=8, zero_stage=1)
    gather = resolved.links.seconds("all_gather", 2 * resolved.parameters.local, resolved.placement.dp_shard)
    reduce = resolved.links.seconds("reduce_scatter", 4 * resolved.parameters.local, resolved.placement.dp_shard)
    assert np.all(two.data_forward == 0)
    assert two.data_backward == pytest.approx(HAS_WEIGHTS * reduce)
    assert two.reduce == pytest.approx(HAS_WEIGHTS * gather)
    assert np.all(one_.data_backward == 0)
    assert one_.reduce == pytest.approx(HAS_WEIGHTS * (gather + reduce))


def test_replicas_reduce_once_behind_the_last_backward():
    """With free overlap a reduction shorter than a layer's backward costs nothing; the embedding's shows."""
    for configuration in ({"dp_replicate": 8}, {"dp_replicate": 4, "pp": 2}):
        found, resolved = seconds(free_overlap(), **configuration)
        reduce = resolved.links.seconds("all_reduce", 4 * resolved.parameters.local, resolved.placement.dp_replicate)
        assert found.reduce[0, 0] == 0
        assert found.reduce[0, 1] == pytest.approx(reduce[0, 1] - found.backward[0, 1])
        assert np.all(found.data_backward == 0)


def test_replicas_of_shards_are_reduced_once_a_step():
    found, resolved = seconds(on_cpu(), dp_shard=4, dp_replicate=2, zero_stage=3)
    parameters, placement = resolved.parameters.local, resolved.placement
    shards = resolved.links.seconds("all_reduce", 4 * parameters / 4, placement.dp_replicate)
    assert found.reduce == pytest.approx(HAS_WEIGHTS * shards)


def test_recompute_full_redoes_the_forward_of_layers_only():
    problem = make_problem(seq_len=2048)
    full, _ = seconds(problem, dp_replicate=8, recompute="full")
    selective, _ = seconds(problem, dp_replicate=8, recompute="selective")
    none, _ = seconds(problem, dp_replicate=8)
    assert full.recompute[0, 0] == full.forward[0, 0]
    assert 0 < selective.recompute[0, 0] < full.recompute[0, 0]
    assert np.all(none.recompute == 0)
    assert np.all(full.recompute[0, 1:] == 0)


def test_gradients_that_add_up_cost_a_pass_over_them():
    many, resolved = seconds(on_cpu(), dp_replicate=8)
    single, _ = seconds(on_cpu(global_batch=8), dp_replicate=8)
    added = (2 + 8) * resolved.parameters.local / resolved.hardware.memory_bytes_per_second
    assert many.backward - single.backward == pytest.approx(added)


def test_the_optimizer_moves_its_bytes():
    """AdamW: 28 bytes a parameter for the update, 36 for the norm in fp64 and 8 for scaling."""
    assert OPTIMIZERS["adamw"].traffic == 72
    found, resolved = seconds(make_problem(), dp_shard=8, zero_stage=1)
    rate = resolved.hardware.memory_bytes_per_second
    assert found.optimizer == pytest.approx(72 * resolved.parameters.sharded / rate)


def test_configurations_of_a_batch_do_not_mix():
    problem = make_problem(seq_len=1024)
    configurations = [
        Configuration(tp=2, dp_shard=4, zero_stage=3, micro_batch=2),
        Configuration(tp=2, dp_shard=4, zero_stage=3, micro_batch=2, sequence_parallel=True),
        Configuration(dp_replicate=8, recompute="full"),
        Configuration(tp=8, micro_batch=4),
    ]
    together = make_batch(problem, *configurations)
    all_ = unit_seconds(problem, together, resolve(problem, together))
    for i, configuration in enumerate(configurations):
        alone = make_batch(problem, configuration)
        single = unit_seconds(problem, alone, resolve(problem, alone))
        for name in ("forward", "backward", "recompute", "tensor_backward", "data_backward", "reduce"):
            assert getattr(all_, name)[i] == pytest.approx(getattr(single, name)[0]), name
