import psutil
import pytest

from autoplan.profiler.memory import available_bytes, process_bytes
from autoplan.units import MIB


@pytest.fixture
def host_bytes():
    return psutil.virtual_memory().total


def write(folder, **files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(f"{text}\n")


def own_cgroup(tmp_path, text):
    file = tmp_path / "own"
    file.write_text(text)
    return file


def test_a_version_2_limit_leaves_what_is_not_used(tmp_path):
    root = tmp_path / "cgroup"
    write(
        root / "pod" / "job",
        memory__max=100 * MIB,
        memory__current=60 * MIB,
        memory__stat=f"anon 1\ninactive_file {20 * MIB}",
    )
    own = own_cgroup(tmp_path, "0::/pod/job\n")
    assert available_bytes(cgroups=root, own=own) == 60 * MIB


def test_the_tightest_of_the_enclosing_groups_counts(tmp_path):
    root = tmp_path / "cgroup"
    write(root / "pod" / "job", memory__max="max", memory__current=10 * MIB)
    write(root / "pod", memory__max=64 * MIB, memory__current=10 * MIB)
    assert available_bytes(cgroups=root, own=own_cgroup(tmp_path, "0::/pod/job\n")) == 54 * MIB


def test_a_version_1_limit_counts(tmp_path):
    root = tmp_path / "cgroup"
    write(
        root / "memory" / "job",
        memory__limit_in_bytes=100 * MIB,
        memory__usage_in_bytes=90 * MIB,
        memory__stat=f"total_inactive_file {30 * MIB}",
    )
    own = own_cgroup(tmp_path, "5:cpu:/other\n4:memory:/job\n0::/\n")
    assert available_bytes(cgroups=root, own=own) == 40 * MIB


def test_no_limit_leaves_the_host(tmp_path, host_bytes):
    found = available_bytes(cgroups=tmp_path / "none", own=tmp_path / "none")
    assert 0 < found <= host_bytes


def test_this_machine_has_memory(host_bytes):
    assert 0 < available_bytes() <= host_bytes
    assert MIB < process_bytes() < host_bytes
