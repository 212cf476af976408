import json
from dataclasses import replace

import pytest

from autoplan.errors import CheckpointError, InputError, PlanError
from autoplan.executor.launch import preflight
from autoplan.executor.options import RunOptions, choose_run_dir
from autoplan.spec import seal
from autoplan.spec.codec import to_jsonable
from tests.executor.disks import fill
from tests.executor.run_plans import tiny_plan, write_plan


def test_a_missing_altered_or_unrunnable_plan_is_refused(tmp_path):
    with pytest.raises(PlanError, match="No such file"):
        preflight.read_runnable_plan(tmp_path / "plan.json")
    path = write_plan(tmp_path, tiny_plan())
    assert preflight.read_runnable_plan(path) == tiny_plan()
    path.write_text(json.dumps({**to_jsonable(tiny_plan()), "runnable": False}))
    with pytest.raises(PlanError, match="the plan was altered"):
        preflight.read_runnable_plan(path)
    write_plan(tmp_path, tiny_plan(optimizer="muon"))
    with pytest.raises(PlanError, match=r"plan\.json: cannot run here: optimizer muon is not in the executor$"):
        preflight.read_runnable_plan(path)


def test_a_plan_that_claims_to_be_runnable_is_checked_all_the_same(tmp_path):
    claimed = seal(replace(tiny_plan(optimizer="muon"), runnable=True, not_runnable_reasons=()))
    with pytest.raises(PlanError, match="optimizer muon"):
        preflight.read_runnable_plan(write_plan(tmp_path, claimed))


def test_a_cpu_holds_any_number_of_ranks_and_other_machines_must_exist():
    preflight.check_machine(tiny_plan(global_batch=64, dp_replicate=64))
    with pytest.raises(PlanError, match="needs 64 CUDA devices, this machine has"):
        preflight.check_machine(tiny_plan(kind="cuda", global_batch=64, dp_replicate=64))
    with pytest.raises(PlanError, match=r"2 nodes: start on each of them `torchrun --nnodes 2 --nproc-per-node 2 "):
        preflight.check_machine(tiny_plan(nodes=2, dp_replicate=4))


def test_a_plan_for_larger_devices_is_refused():
    plan = tiny_plan(kind="cuda", dp_replicate=2)
    memory = plan.cluster.groups[0].device.memory_bytes
    preflight._check_memory(plan, [memory, int(0.98 * memory)])
    with pytest.raises(PlanError, match=r"cluster: the plan is for .* GiB, a device here has"):
        preflight._check_memory(plan, [memory, memory // 2])


def test_torchrun_with_another_number_of_ranks_is_refused(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "3")
    with pytest.raises(PlanError, match="the plan has 2 ranks, torchrun started 3"):
        preflight.check_world_size(tiny_plan())


GROUP = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"RANK": "x"}, "^RANK: is 'x', not a number"),
        ({"WORLD_SIZE": "y"}, "^WORLD_SIZE: is 'y', not a number"),
        ({"LOCAL_RANK": "-1"}, "^LOCAL_RANK: is '-1', not a number"),
        ({"MASTER_PORT": "http"}, "^MASTER_PORT: is 'http', not a number"),
        ({"MASTER_ADDR": ""}, "^MASTER_ADDR: is not set"),
        ({"RANK": None}, "^RANK: is not set"),
        ({"LOCAL_RANK": None}, "^LOCAL_RANK: is not set"),
        ({"RANK": "2"}, "^RANK: is 2, WORLD_SIZE is 2"),
    ],
)
def test_a_launchers_variable_that_makes_no_sense_is_named(monkeypatch, changes, message):
    set_variables(monkeypatch, {**GROUP, **changes})
    with pytest.raises(InputError, match=message):
        preflight.is_rank()


def test_a_process_is_a_rank_when_a_launcher_says_so(monkeypatch):
    set_variables(monkeypatch, GROUP)
    assert preflight.is_rank()
    set_variables(monkeypatch, {"RANK": None, "WORLD_SIZE": None})
    assert not preflight.is_rank()


def set_variables(monkeypatch, variables):
    for name, text in variables.items():
        monkeypatch.delenv(name, raising=False) if text is None else monkeypatch.setenv(name, text)


def test_ranks_that_share_cores_are_told_of(monkeypatch):
    monkeypatch.setattr(preflight, "count_cores", lambda: 2)
    assert preflight.note_shared_cores(tiny_plan()) is None
    note = preflight.note_shared_cores(tiny_plan(dp_replicate=4))
    assert note == "4 ranks share 2 cores: steps will take longer than on a machine with a core per rank"
    assert preflight.note_shared_cores(tiny_plan(kind="cuda", dp_replicate=4)) is None


def test_a_full_disk_is_refused_before_anything_starts_and_left_as_it_was(small_disk):
    fill(small_disk, leave=4096)
    with pytest.raises(InputError, match=r"^--run-dir: .* cannot be written: No space left on device$"):
        preflight.check_folders(RunOptions(data=small_disk, run_dir=small_disk))
    assert [path.name for path in small_disk.iterdir()] == ["filling"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"steps": 0}, "run options: steps"),
        ({"timeout_seconds": -1.0}, "run options: timeout_seconds"),
        ({"resume": True}, "--resume: needs --checkpoint-dir"),
        ({"checkpoint_every": 5}, "--checkpoint-every: needs --checkpoint-dir"),
        ({"restarts": 1}, "--restarts: needs --checkpoint-dir"),
    ],
)
def test_options_out_of_bounds_name_their_field(tmp_path, changes, message):
    with pytest.raises(InputError, match=message):
        preflight.check_options(RunOptions(data=tmp_path, **changes))


def test_an_earlier_run_is_not_overwritten(tmp_path):
    options = RunOptions(data=tmp_path, checkpoint_dir=tmp_path / "new" / "folder")
    preflight.check_folders(options)
    (tmp_path / "new" / "folder" / "metrics.jsonl").touch()
    with pytest.raises(InputError, match="metrics of an earlier run"):
        preflight.check_folders(options)
    preflight.check_folders(replace(options, resume=True))
    (tmp_path / "new" / "folder" / "step-00000001").mkdir()
    with pytest.raises(CheckpointError, match="resume it with --resume"):
        preflight.check_folders(options)


def test_a_folder_that_cannot_be_written_names_its_flag(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"--run-dir: .*file/below cannot be written"):
        preflight.check_folders(RunOptions(data=tmp_path, run_dir=tmp_path / "file" / "below"))


def test_the_run_directory_is_the_given_one_else_the_checkpoints_else_new(tmp_path):
    options = RunOptions(data=tmp_path)
    assert choose_run_dir(tiny_plan(), options).parent.name == "runs"
    options = replace(options, checkpoint_dir=tmp_path / "checkpoints")
    assert choose_run_dir(tiny_plan(), options) == tmp_path / "checkpoints"
    assert choose_run_dir(tiny_plan(), replace(options, run_dir=tmp_path / "run")) == tmp_path / "run"
