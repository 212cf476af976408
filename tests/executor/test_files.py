import pytest

from autoplan.errors import RunError
from autoplan.executor.files import write_atomically
from tests.executor.disks import fill


def test_a_full_disk_is_named_and_the_old_content_stays_alone(small_disk):
    path = small_disk / "run.json"
    write_atomically(path, "old")
    fill(small_disk, leave=4096)
    with pytest.raises(RunError, match=r"run\.json cannot be written: No space left on device$"):
        write_atomically(path, "new" * 10_000)
    assert path.read_text() == "old"
    assert sorted(file.name for file in small_disk.iterdir()) == ["filling", "run.json"]


def test_a_folder_in_the_way_is_named_and_no_temporary_file_is_left(tmp_path):
    (tmp_path / "run.json").mkdir()
    with pytest.raises(RunError, match=r"run\.json cannot be written: Is a directory$"):
        write_atomically(tmp_path / "run.json", "new")
    assert [file.name for file in tmp_path.iterdir()] == ["run.json"]
