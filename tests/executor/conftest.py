import subprocess

import pytest


@pytest.fixture
def small_disk(tmp_path):
    """A disk of 1 MiB of its own, where this machine lets us mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    try:
        ended = subprocess.run(mount, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("no mount command")
    if ended.returncode:
        pytest.skip(f"a tmpfs cannot be mounted: {ended.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)
