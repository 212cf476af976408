from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

from autoplan.errors import CheckpointError, RunError
from autoplan.executor.checkpoint import store
from autoplan.executor.checkpoint.index import (
    CheckpointInfo,
    find_latest,
    list_complete,
    model_hash,
    prune,
    read_info,
    require_same_run,
    sweep,
)
from tests.executor.disks import fill
from tests.executor.run_plans import tiny_plan
from tests.multiprocess import RankError, launch


def save_on_a_full_disk(folder: Path):
    save(folder, 1)
    if dist.get_rank() == 0:
        fill(folder, leave=0)
    dist.barrier()
    try:
        save(folder, 2)
    except RunError as error:
        return str(error)
    return None


def info(step: int = 3) -> CheckpointInfo:
    plan = tiny_plan()
    return CheckpointInfo(
        step=step,
        sequences=step * 4,
        plan_id=plan.id,
        model=model_hash(plan.model),
        seq_len=8,
        seed=0,
        dtype=None,
        data_fingerprint="f",
        files={},
    )


def state(placement, *, fill=None):
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    full = torch.arange(10.0).reshape(5, 2) if fill is None else torch.full((5, 2), fill)
    return {"model": {"w": distribute_tensor(full, mesh, [placement])}, "step": torch.tensor(3 if fill is None else 0)}


def save(folder: Path, *steps: int, keep: int = 2):
    return [store.save(folder, state(Shard(0)), info(step), keep=keep) for step in steps][-1]


def load(path: Path, placement):
    target = state(placement, fill=-1.0)
    store.load(path, target)
    return target["model"]["w"].full_tensor().tolist(), int(target["step"])


def save_then_load(folder: Path):
    path = save(folder, 3)
    return path, load(path, Shard(0)), load(path, Replicate())


def save_under_a_file(folder: Path):
    (folder / "in-the-way").touch()
    dist.barrier()
    try:
        save(folder / "in-the-way", 1)
    except RunError as error:
        return str(error)
    return None


def test_a_full_disk_is_named_and_leaves_the_earlier_checkpoint_and_nothing_of_the_new_one(small_disk):
    for message in launch(save_on_a_full_disk, small_disk, num_ranks=2):
        assert "step-00000002 cannot be written" in message or "checkpoint cannot be written" in message
        assert "No space left on device" in message
        assert "\n" not in message
    (small_disk / "filling").unlink()
    assert [path.name for path in small_disk.iterdir()] == ["step-00000001"]
    assert launch(load, small_disk / "step-00000001", Shard(0), num_ranks=2) == [EXPECTED] * 2


def test_what_a_killed_run_was_saving_is_swept_and_complete_checkpoints_stay(tmp_path):
    for name in (".step-00000002.partial", "step-00000001", "mine.partial"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").touch()
    sweep(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.partial", "step-00000001"]


EXPECTED = (torch.arange(10.0).reshape(5, 2).tolist(), 3)


def test_what_was_saved_comes_back_whole_in_any_layout(tmp_path):
    for path, same, other in launch(save_then_load, tmp_path, num_ranks=2):
        assert (path, same, other) == (tmp_path / "step-00000003", EXPECTED, EXPECTED)
    read = read_info(tmp_path / "step-00000003")
    assert replace(read, files={}) == info()
    assert set(read.files) == {".metadata", "__0_0.distcp", "__1_0.distcp"}
    assert launch(load, tmp_path / "step-00000003", Shard(1), num_ranks=1) == [EXPECTED]


def test_the_last_k_are_kept_and_the_newest_is_found(tmp_path):
    launch(save, tmp_path, 1, 2, 10, num_ranks=2)
    assert [path.name for path in list_complete(tmp_path)] == ["step-00000002", "step-00000010"]
    assert find_latest(tmp_path).name == "step-00000010"
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_a_checkpoint_that_was_not_finished_is_passed_over(tmp_path):
    for name, complete in {"step-00000001": True, "step-00000002": False, ".step-00000003.partial": True}.items():
        (tmp_path / name).mkdir()
        if complete:
            (tmp_path / name / "checkpoint.json").touch()
    assert find_latest(tmp_path).name == "step-00000001"
    prune(tmp_path, keep=1)
    (tmp_path / "step-00000001" / "checkpoint.json").unlink()
    with pytest.raises(CheckpointError, match="no complete checkpoint"):
        find_latest(tmp_path)


def test_a_crash_while_saving_leaves_the_previous_one_and_does_no_harm_later(tmp_path):
    launch(save, tmp_path, 1, num_ranks=2)
    partial = tmp_path / ".step-00000002.partial"
    partial.mkdir()
    (partial / "__0_0.distcp").write_bytes(b"half")
    assert find_latest(tmp_path).name == "step-00000001"
    launch(save, tmp_path, 2, num_ranks=2)
    assert launch(load, tmp_path / "step-00000002", Shard(0), num_ranks=2) == [EXPECTED] * 2


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda file: file.write_bytes(file.read_bytes()[:-1] + b"?"), r"__1_0\.distcp: is damaged"),
        (lambda file: file.unlink(), r"__1_0\.distcp: cannot be read: No such file"),
        (
            lambda file: (file.parent / "checkpoint.json").write_text("{"),
            r"checkpoint\.json: is damaged: .*; remove /",
        ),
    ],
)
def test_damage_is_found_and_the_file_named(tmp_path, damage, message):
    launch(save, tmp_path, 3, num_ranks=2)
    damage(tmp_path / "step-00000003" / "__1_0.distcp")
    with pytest.raises(RankError, match=f"CheckpointError: .*{message}"):
        launch(load, tmp_path / "step-00000003", Shard(0), num_ranks=2)


def test_a_folder_that_cannot_be_written_is_an_error_on_every_rank(tmp_path):
    for message in launch(save_under_a_file, tmp_path, num_ranks=2):
        assert "rank 0: checkpoint cannot be written" in message


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "other"}, "is of another model than tiny-llama"),
        ({"seq_len": 16}, "sequence length 16, the run has 8"),
        ({"seed": 1}, "seed 1, the run has 0"),
        ({"dtype": "float64"}, "dtype float64, the run has None"),
        ({"data_fingerprint": "g"}, "on other data"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused(tmp_path, changes, message):
    same = {"seed": 0, "dtype": None, "data_fingerprint": "f", "where": tmp_path}
    require_same_run(replace(info(), plan_id="of another layout"), tiny_plan(), **same)
    with pytest.raises(CheckpointError, match=message):
        require_same_run(replace(info(), **changes), tiny_plan(), **same)
