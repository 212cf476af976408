from dataclasses import replace

import pytest

from autoplan.errors import ClusterError
from autoplan.spec import Cluster
from autoplan.spec.codec import from_jsonable, to_jsonable
from tests.spec.values import small_cluster


def test_ranks_are_counted_over_groups():
    group = small_cluster(8).groups[0]
    cluster = Cluster(name="two", groups=(replace(group, num_nodes=3), replace(group, devices_per_node=4)))
    assert cluster.num_devices == 3 * 8 + 4
    assert cluster.num_nodes == 4
    assert cluster.device_kind == "cuda"


def test_a_cluster_has_nodes():
    with pytest.raises(ClusterError, match="groups is empty"):
        Cluster(name="none", groups=())
    data = to_jsonable(small_cluster())
    data["groups"][0]["num_nodes"] = 0
    with pytest.raises(ClusterError, match=r"groups\.0\.num_nodes: "):
        from_jsonable(Cluster, data, where="there", error=ClusterError)


def test_cpus_and_gpus_do_not_mix():
    group = small_cluster().groups[0]
    with pytest.raises(ClusterError, match="mix cpu and cuda"):
        Cluster(name="both", groups=(group, replace(group, device=replace(group.device, kind="cpu"))))


def test_a_device_has_memory_left_and_a_rate():
    device = small_cluster().groups[0].device
    with pytest.raises(ClusterError, match="reserved_bytes leaves nothing of memory_bytes 80000000000"):
        replace(device, reserved_bytes=device.memory_bytes)
    with pytest.raises(ClusterError, match="peak_flops is empty"):
        replace(device, peak_flops={})


@pytest.mark.parametrize(
    ("field", "bad"),
    [("memory_bytes_per_second", 0), ("memory_bytes", 1.5), ("kind", "tpu"), ("peak_flops", {"bf16": -1.0})],
)
def test_bounds_name_the_field(field, bad):
    data = to_jsonable(small_cluster())
    data["groups"][0]["device"][field] = bad
    with pytest.raises(ClusterError, match=rf"groups\.0\.device\.{field}"):
        from_jsonable(Cluster, data, where="there", error=ClusterError)


def test_more_devices_than_any_cluster_has_are_a_slip():
    group = replace(small_cluster(8).groups[0], num_nodes=2**17)
    assert Cluster(name="all", groups=(group,)).num_devices == 2**20
    with pytest.raises(ClusterError, match="1048584 devices are more than the 1048576"):
        Cluster(name="more", groups=(replace(group, num_nodes=2**17 + 1),))
