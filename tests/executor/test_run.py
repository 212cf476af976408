import json
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from autoplan.errors import CheckpointError, DataError, RunError
from autoplan.executor.options import RunOptions
from autoplan.executor.run import train
from autoplan.executor.telemetry.metrics import read_metrics
from autoplan.executor.training import Training
from autoplan.spec import Plan
from tests.executor.run_plans import ESTIMATE, tiny_plan, write_text
from tests.multiprocess import launch


@dataclass(frozen=True)
class Start:
    """One start of a run: stopped after so many of its steps, or with a weight spoiled before a step."""

    plan: Plan
    options: RunOptions
    stop_after: int | None = None
    restarted: bool = False
    spoil_before: int | None = None
    own_data: bool = False


def start_each(*starts):
    """Do all starts one after the other in the same processes; an error of the user's is returned in words."""
    return [start_one(start) for start in starts]


def start_one(start):
    asked = count(1)
    options = start.options
    if start.own_data:
        options = replace(options, data=write_text(options.data.parent, name=f"rank-{dist.get_rank()}"))
        options.data.write_bytes(options.data.read_bytes()[dist.get_rank() :])
    try:
        with spoiled_weight(start.spoil_before):
            return train(
                start.plan,
                options,
                device=torch.device("cpu"),
                restarted=start.restarted,
                stop_requested=lambda: next(asked) == start.stop_after,
            )
    except (CheckpointError, DataError, RunError) as error:
        return f"{type(error).__name__}: {error}"


@contextmanager
def spoiled_weight(step):
    """Make a weight infinite before `step`, as broken hardware would."""
    original, steps = Training.step, count(1)

    def spoil(training, tokens):
        if next(steps) == step:
            next(training.decoder.parameters()).data.fill_(float("inf"))
        return original(training, tokens)

    Training.step = spoil
    try:
        yield
    finally:
        Training.step = original


def options_in(folder: Path, **changes) -> RunOptions:
    folder.mkdir(exist_ok=True)
    path = folder / "text.txt"
    data = path if path.exists() else write_text(folder)
    return RunOptions(data=data, run_dir=folder / "run", **changes)


def losses(folder: Path):
    return [(record.step, record.loss) for record in read_metrics(folder / "run")]


def test_a_run_learns_and_writes_what_it_measured(tmp_path):
    (summary,), (other,) = launch(
        start_each, Start(tiny_plan(), options_in(tmp_path, steps=8, data_name="sample")), num_ranks=2
    )
    assert summary == other
    records = read_metrics(tmp_path / "run")
    assert [record.step for record in records] == list(range(1, 9))
    assert records[-1].loss < records[0].loss - 0.1
    for record in records:
        assert record.step_seconds > 0
        assert record.tokens_per_second == pytest.approx(4 * 8 / record.step_seconds)
        assert record.mfu * record.step_seconds == pytest.approx(ESTIMATE.mfu * ESTIMATE.step_seconds)
        assert (record.predicted_step_seconds, record.predicted_peak_memory_bytes) == (0.5, 1000)
        assert 2**26 < record.peak_memory_bytes < 2**30
    assert (summary.status, summary.first_step, summary.last_step, summary.checkpoint) == ("finished", 1, 8, None)
    assert json.loads((tmp_path / "run" / "run.json").read_text())["data"]["path"] == "sample"
    assert (summary.first_loss, summary.last_loss) == (records[0].loss, records[-1].loss)


@pytest.mark.parametrize(
    "degrees",
    [{"dp_replicate": 2}, {"dp_shard": 2, "zero_stage": 3}, {"tp": 2, "sequence_parallel": True}, {"pp": 2}],
    ids=str,
)
def test_interrupted_and_resumed_training_gives_the_very_same_losses(tmp_path, degrees):
    plan = tiny_plan(**degrees)
    whole = options_in(tmp_path / "whole", steps=5)
    parts = options_in(tmp_path / "parts", steps=5, checkpoint_dir=tmp_path / "checkpoints", checkpoint_every=2)
    starts = (Start(plan, whole), Start(plan, parts, spoil_before=4), Start(plan, replace(parts, resume=True)))
    _, interrupted, resumed = launch(start_each, *starts, num_ranks=2)[0]
    assert "nan at step 4" in interrupted
    assert (resumed.first_step, resumed.last_step) == (3, 5)
    assert losses(tmp_path / "parts") == losses(tmp_path / "whole")


def test_a_stopped_run_is_saved_and_goes_on_under_another_plan(tmp_path):
    whole = options_in(tmp_path / "whole", steps=5, dtype="float64")
    parts = options_in(tmp_path / "parts", steps=5, dtype="float64", checkpoint_dir=tmp_path / "checkpoints")
    resume = replace(parts, resume=True)
    starts = (
        Start(tiny_plan(), whole),
        Start(tiny_plan(), parts, stop_after=2),
        Start(tiny_plan(dp_shard=2, zero_stage=2), replace(resume, steps=3)),
        Start(tiny_plan(pp=2), replace(resume, steps=4)),
    )
    stopped = launch(start_each, *starts, num_ranks=2)[0][1]
    assert (stopped.status, stopped.last_step) == ("stopped", 2)
    assert stopped.checkpoint == tmp_path / "checkpoints" / "step-00000002"
    launch(start_each, Start(tiny_plan(pp=1), resume), num_ranks=1)
    assert [step for step, _ in losses(tmp_path / "parts")] == [1, 2, 3, 4, 5]
    for (step, loss), (_, expected) in zip(losses(tmp_path / "parts"), losses(tmp_path / "whole"), strict=True):
        assert loss == pytest.approx(expected, rel=1e-9), step


def test_a_restarted_run_without_a_checkpoint_begins_anew_and_without_work_ends(tmp_path):
    options = options_in(tmp_path, steps=2, checkpoint_dir=tmp_path / "checkpoints")
    starts = Start(tiny_plan(), options, restarted=True), Start(tiny_plan(), replace(options, resume=True))
    began, ended = launch(start_each, *starts, num_ranks=2)[0]
    assert (began.first_step, began.last_step) == (1, 2)
    assert (ended.status, ended.first_step, ended.last_step, ended.last_loss) == ("finished", 3, 2, None)
    assert [step for step, _ in losses(tmp_path)] == [1, 2]


def test_what_cannot_be_continued_is_refused_on_every_rank(tmp_path):
    options = options_in(tmp_path, steps=1, checkpoint_dir=tmp_path / "checkpoints")
    resume = replace(options, resume=True, steps=2)
    other = options_in(tmp_path / "other").data
    other.write_bytes(b"other" * 1000)
    first, second = launch(
        start_each,
        Start(tiny_plan(), resume),
        Start(tiny_plan(optimizer="sgd"), options),
        Start(tiny_plan(num_layers=3), resume),
        Start(tiny_plan(optimizer="adamw"), resume),
        Start(tiny_plan(), replace(resume, seed=1)),
        Start(tiny_plan(), replace(resume, data=other)),
        num_ranks=2,
    )
    assert first == second
    missing, _, model, optimizer, seed, data = first
    assert "CheckpointError" in missing
    assert "holds no complete checkpoint to resume from" in missing
    assert "is of another model than tiny-llama" in model
    assert "does not fit the plan" in optimizer
    assert "was trained with seed 0, the run has 1" in seed
    assert "was trained on other data" in data


def test_a_loss_that_is_no_number_stops_the_run_and_keeps_the_last_checkpoint(tmp_path):
    options = options_in(tmp_path, steps=5, checkpoint_dir=tmp_path / "checkpoints", checkpoint_every=1)
    for (answer,) in launch(start_each, Start(tiny_plan(), options, spoil_before=3), num_ranks=2):
        assert answer.startswith("RunError: the loss is nan at step 3; the newest checkpoint, ")
        assert "step-00000002" in answer
    assert [step for step, _ in losses(tmp_path)] == [1, 2]
    assert '"status": "failed"' in (tmp_path / "run" / "run.json").read_text()


def test_ranks_that_see_different_data_are_refused(tmp_path):
    for (answer,) in launch(start_each, Start(tiny_plan(), options_in(tmp_path), own_data=True), num_ranks=2):
        assert "rank 1 sees other data than rank 0" in answer
