import pytest

from autoplan.readers.run_degrees import Degrees, read_degrees
from autoplan.readers.run_models import CannotModel
from tests.readers.published import row

UNSAID = {"dp": "", "tp": "", "pp": "", "cp": ""}
NO_BATCH = {"num_microbatches": ""}


def read(**changes):
    assumptions = []
    degrees = read_degrees(row(**changes), assumptions)
    return (degrees.dp, degrees.tp, degrees.pp, degrees.cp), assumptions


def test_what_a_row_states():
    assert read() == ((8, 2, 1, 1), [])
    assert Degrees(dp=2, tp=3, pp=5, cp=7).num_gpus == 210


@pytest.mark.parametrize(
    ("cells", "degrees", "notes"),
    [
        ({"dp": ""}, (8, 2, 1, 1), []),
        ({"dp": "0"}, (8, 2, 1, 1), []),
        ({"cp": ""}, (8, 2, 1, 1), []),
        ({"tp": ""}, (8, 2, 1, 1), ["tp 2"]),
        ({"tp": "", "dp": "16"}, (16, 1, 1, 1), ["tp 1"]),
        ({"pp": "", "dp": "4"}, (4, 2, 2, 1), ["pp 2"]),
        ({"cp": "", "dp": "2"}, (2, 2, 1, 4), ["cp 4"]),
        ({"tp": "", "pp": "", "dp": "2"}, (2, 8, 1, 1), ["tp 8", "pp 1"]),
        ({"tp": "", "pp": "", "dp": "1"}, (1, 1, 16, 1), ["tp 1", "pp 16"]),
        (UNSAID, (16, 1, 1, 1), ["tp 1", "pp 1"]),
        ({"n_gpus": ""}, (8, 2, 1, 1), ["n_gpus 16"]),
        ({"n_gpus": "", "tp": "", "pp": ""}, (8, 1, 1, 1), ["n_gpus 8", "tp 1", "pp 1"]),
    ],
)
def test_blank_degrees_follow_from_the_others(cells, degrees, notes):
    assert read(**cells) == (degrees, notes)


@pytest.mark.parametrize(
    ("cells", "degrees"),
    [
        ({"dp": "8", "cp": "4", **NO_BATCH}, (2, 2, 1, 4)),  # context parallelism counted
        ({"dp": "2", "ep": "4", **NO_BATCH}, (8, 2, 1, 1)),  # ranks with the same experts
        ({"dp": "2", "dp_shard": "4", **NO_BATCH}, (8, 2, 1, 1)),  # replicas of a shard group
        ({"dp": "4"}, (8, 2, 1, 1)),  # 64 sequences in 4 micro-batches of 2 need 8
    ],
)
def test_data_parallel_ranks_that_are_counted_otherwise(cells, degrees):
    found, (note,) = read(**cells)
    assert found == degrees
    assert note == f"dp {degrees[0]} instead of {cells['dp']}, to have 16 ranks"


def test_a_number_of_devices_that_degrees_and_batch_contradict():
    assert read(n_gpus="64", dp_shard="") == (
        (8, 2, 1, 1),
        ["n_gpus 16 instead of 64, as the degrees and the batch have it"],
    )


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"n_gpus": "", "dp": ""}, "n_gpus is unknown"),
        ({"tp": "3", "dp": ""}, "tp 3 x pp 1 x cp 1 does not divide n_gpus 16"),
        ({"dp": "3", "tp": ""}, "dp 3 x pp 1 x cp 1 does not divide n_gpus 16"),
        ({"dp": "4", **NO_BATCH, "dp_shard": ""}, "dp 4 x tp 2 x pp 1 x cp 1 = 8 ranks, n_gpus is 16"),
        ({"dp": "5"}, "dp 5 x tp 2 x pp 1 x cp 1 = 10 ranks, n_gpus is 16"),
    ],
)
def test_degrees_without_a_reading(cells, reason):
    if cells.get("dp") == "5":
        cells = {**cells, "num_microbatches": "3"}
    with pytest.raises(CannotModel, match=f"^{reason}$"):
        read(**cells)
