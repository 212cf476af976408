import json

import pytest

from autoplan.errors import InputError, RunError
from autoplan.executor.telemetry.metrics import RunLog, StepRecord, mark_failed, new_record, read_metrics
from tests.executor.disks import fill
from tests.executor.run_plans import tiny_plan


def step_record(step: int, loss: float = 1.0) -> StepRecord:
    return StepRecord(
        step=step,
        loss=loss,
        grad_norm=1.0,
        learning_rate=1e-3,
        step_seconds=0.5,
        predicted_step_seconds=0.4,
        tokens_per_second=64.0,
        mfu=0.1,
        peak_memory_bytes=10,
        predicted_peak_memory_bytes=9,
    )


def append_steps(log):
    for step in range(1, 100):
        log.append(step_record(step))


def run_record():
    return new_record(tiny_plan(), seed=0, dtype="float32", steps=9, data={"fingerprint": "x"}, memory="allocated")


@pytest.fixture
def log(tmp_path):
    log = RunLog(tmp_path / "run")
    log.begin(run_record(), first_step=1)
    for step in range(1, 5):
        log.append(step_record(step))
    return log


def test_lines_are_whole_json_objects_with_the_promised_keys(log):
    lines = [json.loads(line) for line in (log.run_dir / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2, 3, 4]
    promised = "step loss step_seconds tokens_per_second predicted_step_seconds peak_memory_bytes"
    assert {*promised.split(), "predicted_peak_memory_bytes", "mfu"} <= lines[0].keys()


def test_a_line_cut_short_by_a_kill_is_mended_and_steps_are_not_written_twice(log):
    with (log.run_dir / "metrics.jsonl").open("a") as stream:
        stream.write('{"step": 5, "loss": 0.')
    log.begin(run_record(), first_step=4)
    log.append(step_record(4, loss=0.5))
    assert [(line.step, line.loss) for line in read_metrics(log.run_dir)] == [(1, 1.0), (2, 1.0), (3, 1.0), (4, 0.5)]
    assert (log.run_dir / "metrics.jsonl").read_text().count("\n") == 4


def test_run_json_keeps_its_start_and_lists_resumptions(log):
    first = json.loads((log.run_dir / "run.json").read_text())
    assert (first["ranks"], first["resumed_at"], first["status"]) == (2, [], "running")
    assert first["plan_id"] == tiny_plan().id
    assert set(first["versions"]) == {"autoplan", "torch", "python"}
    log.begin(run_record(), first_step=4)
    log.end(log.begin(run_record(), first_step=5), "finished")
    last = json.loads((log.run_dir / "run.json").read_text())
    assert (last["resumed_at"], last["status"]) == ([3, 4], "finished")
    assert last["started_at"] == first["started_at"]


def test_a_full_disk_is_an_error_that_names_the_file_and_keeps_whole_lines(small_disk):
    log = RunLog(small_disk)
    log.begin(run_record(), first_step=1)
    fill(small_disk, leave=0)
    with pytest.raises(RunError, match=r"metrics\.jsonl cannot be written: No space left on device$"):
        append_steps(log)
    assert [line.step for line in read_metrics(small_disk)] == list(range(1, len(read_metrics(small_disk)) + 1))


def test_only_a_running_run_is_marked_failed(log, tmp_path):
    mark_failed(tmp_path)
    mark_failed(log.run_dir)
    assert json.loads((log.run_dir / "run.json").read_text())["status"] == "failed"
    log.end(run_record(), "finished")
    mark_failed(log.run_dir)
    assert json.loads((log.run_dir / "run.json").read_text())["status"] == "finished"


def test_a_foreign_metrics_file_is_refused_with_its_line(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"loss": 1}\n')
    with pytest.raises(InputError, match=r"metrics\.jsonl:1: "):
        read_metrics(tmp_path)
