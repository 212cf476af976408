import pytest

from autoplan.spec import Configuration
from costmodels.hardware import resolve_hardware
from costmodels.links import place, resolve_links
from tests.costmodels.problems import make_batch, make_cluster, make_fits, make_group, make_problem, make_profile, one


def placement(nodes, per_node, **configuration):
    problem = make_problem(cluster=make_cluster(make_group(nodes, per_node)))
    placed = place(one(problem, **configuration), resolve_hardware(problem))
    return {
        name: (int(getattr(placed, name).local[0]), int(getattr(placed, name).nodes[0]))
        for name in ("tp", "dp_shard", "dp_replicate", "pp", "ends")
    }


def test_inner_axes_stay_in_the_node():
    assert placement(4, 8, tp=8, dp_shard=4) == {
        "tp": (8, 1),
        "dp_shard": (1, 4),
        "dp_replicate": (1, 1),
        "pp": (1, 1),
        "ends": (1, 1),
    }


def test_an_axis_may_have_several_ranks_in_every_node():
    assert placement(4, 8, tp=2, dp_shard=16)["dp_shard"] == (4, 4)
    assert placement(4, 8, dp_shard=4, dp_replicate=8) == placement(4, 8, dp_shard=4, dp_replicate=8) | {
        "dp_shard": (4, 1),
        "dp_replicate": (2, 4),
    }


def test_pipeline_neighbours_cross_nodes_when_a_stage_fills_one():
    assert placement(4, 8, tp=8, pp=4)["pp"] == (1, 2)
    assert placement(4, 8, tp=4, pp=8)["pp"] == (2, 1)
    assert placement(4, 8, tp=4, pp=8)["ends"] == (1, 2)


def test_one_node_is_inside_whatever_the_sizes():
    assert placement(1, 6, tp=2, dp_shard=3) == placement(1, 6, tp=2, dp_shard=3) | {"tp": (2, 1), "dp_shard": (3, 1)}


def test_ranks_that_do_not_fill_nodes_use_the_network():
    assert placement(2, 6, tp=4, dp_shard=3)["tp"] == (1, 4)


def seconds(problem, op, num_bytes, axis, **configuration):
    hardware = resolve_hardware(problem)
    batch = make_batch(problem, Configuration(**configuration))
    group = getattr(place(batch, hardware), axis)
    return float(resolve_links(problem, hardware).seconds(op, num_bytes, group)[0])


def test_fits_replace_the_link_inside_a_node():
    cluster = make_cluster()
    fitted = make_problem(cluster=cluster, profile=make_profile(cluster, fits=make_fits(latency=1e-3, bandwidth=1e9)))
    assert seconds(fitted, "all_gather", [8e9], "tp", tp=8) == pytest.approx(7e-3 + 7.0)
    plain = make_problem(cluster=cluster)
    assert seconds(plain, "all_gather", [8e9], "tp", tp=8) == pytest.approx(7 * 2e-6 + 7e9 / 200e9)


def test_the_nearest_measured_size_decides():
    cluster = make_cluster()
    fits = make_fits((2,), bandwidth=1e9) + make_fits((8,), bandwidth=4e9)
    problem = make_problem(cluster=cluster, profile=make_profile(cluster, fits=fits))
    near_two = seconds(problem, "all_reduce", [3e9], "tp", tp=2, dp_shard=4)
    near_eight = seconds(problem, "all_reduce", [8e9], "tp", tp=8)
    assert near_two == pytest.approx(2 * 5e-6 + 3.0)
    assert near_eight == pytest.approx(14 * 5e-6 + 14e9 / 4e9)


def test_fits_of_whole_nodes_are_for_groups_of_whole_nodes():
    cluster = make_cluster(make_group(2))
    fits = make_fits((8,), bandwidth=100e9) + make_fits((16,), latency=0.0, bandwidth=1e9)
    problem = make_problem(cluster=cluster, profile=make_profile(cluster, fits=fits))
    assert seconds(problem, "all_gather", [16e9], "dp_shard", dp_shard=16) == pytest.approx(15.0)
    across = seconds(problem, "all_gather", [16e9], "dp_shard", tp=8, dp_shard=2)
    assert across == pytest.approx(1e-5 + 8e9 / 20e9)
