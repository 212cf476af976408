import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodels.hardware import resolve_hardware
from costmodels.matmul import MULTIPROCESSORS, MeasuredMatmul, RooflineMatmul, resolve_matmul
from tests.costmodels.problems import make_cluster, make_group, make_matmul, make_problem, make_profile

SHAPES = [(64, 64, 64), (512, 512, 512), (4096, 1024, 1024), (4096, 4096, 4096)]
UNITS = 100
RATE = 1e12
sizes = st.integers(1, 20_000)


def roofline(**changes):
    figures = {
        "flops": RATE,
        "low_flops": 2 * RATE,
        "bytes_per_second": 1e30,
        "operand_bytes": 2,
        "low_operand_bytes": 1,
        "units": UNITS,
    }
    return RooflineMatmul(**figures | changes)


def efficiency(matmul, m, k, n, count=1):
    return 2 * count * m * k * n / RATE / matmul.seconds(m, k, n, count=count)


def measured(factor=1.0, precision="bf16"):
    cluster = make_cluster()
    timings = [make_matmul(*shape, factor * 2e-14 * np.prod(shape), precision) for shape in SHAPES]
    return make_problem(cluster=cluster, profile=make_profile(cluster, matmuls=timings))


def rates(problem):
    return resolve_matmul(problem, resolve_hardware(problem))


def test_a_measured_shape_gets_its_measured_time():
    matmul = rates(measured())
    assert isinstance(matmul, MeasuredMatmul)
    for shape in SHAPES:
        assert matmul.seconds(*shape) == pytest.approx(2e-14 * np.prod(shape), rel=1e-6)
        assert matmul.seconds(*shape, count=3) == pytest.approx(3 * 2e-14 * np.prod(shape), rel=1e-6)


def test_between_shapes_the_rate_lies_between_theirs():
    problem = make_problem(
        profile=make_profile(
            make_cluster(), matmuls=[make_matmul(64, 64, 64, 1e-6), make_matmul(1024, 1024, 1024, 1e-4)]
        )
    )
    rate = 2 * 256**3 / rates(problem).seconds(256, 256, 256)
    assert 2 * 64**3 / 1e-6 < rate < 2 * 1024**3 / 1e-4


def test_slower_measurements_make_products_slower():
    assert rates(measured(3.0)).seconds(300, 300, 300) == pytest.approx(3 * rates(measured()).seconds(300, 300, 300))


def test_other_precisions_do_not_count():
    assert isinstance(rates(measured(precision="fp32")), RooflineMatmul)


@given(m=sizes, k=sizes, n=sizes, count=st.integers(1, 200), units=st.sampled_from([0, 40, 108, 132]))
def test_no_product_is_faster_than_the_device(m, k, n, count, units):
    assert 0 < efficiency(roofline(units=units), m, k, n, count) <= 1


@given(m=sizes, k=sizes, n=sizes, more=st.integers(1, 5_000), units=st.sampled_from([0, 108]))
def test_more_columns_or_rows_never_take_less_time(m, k, n, more, units):
    matmul = roofline(units=units)
    base = matmul.seconds(m, k, n) * (1 - 1e-9)
    assert matmul.seconds(m + more, k, n) >= base
    assert matmul.seconds(m, k, n + more) >= base


def test_large_products_reach_the_rate():
    assert efficiency(roofline(), 256 * UNITS, 8192, 128 * 64) > 0.98


def test_a_small_depth_never_fills_the_pipeline():
    depths = [16, 64, 256, 1024]
    found = [efficiency(roofline(), 256 * UNITS, k, 128) for k in depths]
    assert found == sorted(found)
    assert found[0] < 0.3
    assert found[-1] > 0.9


def test_one_tile_more_than_a_wave_costs_a_wave():
    """100 tiles of 256 x 128 fill 100 units once; the next one needs them again, unless smaller tiles do better."""
    matmul = roofline()
    full, one_more, double = (matmul.seconds(256 * tiles, 4096, 128) for tiles in (100, 101, 200))
    assert one_more > 1.3 * full
    assert full < one_more <= double
    assert double == pytest.approx(2 * full)


def test_part_of_a_tile_costs_a_tile():
    matmul = roofline(units=1)
    assert matmul.seconds(129, 1024, 128) > 1.5 * matmul.seconds(128, 1024, 128)
    assert matmul.seconds(250, 1024, 128) == pytest.approx(matmul.seconds(256, 1024, 128), rel=0.02)


def test_products_of_one_kernel_fill_waves_together():
    matmul = roofline()
    alone, together = matmul.seconds(256, 512, 128), matmul.seconds(256, 512, 128, count=UNITS)
    assert together == pytest.approx(matmul.seconds(256 * UNITS, 512, 128))
    assert together < 0.1 * UNITS * alone
    assert matmul.seconds(256, 512, 128, count=UNITS + 1) > 1.3 * together


@given(m=sizes, k=sizes, n=sizes, count=st.integers(1, 200))
def test_together_never_takes_longer_than_one_by_one(m, k, n, count):
    matmul = roofline()
    assert matmul.seconds(m, k, n, count=count) <= count * matmul.seconds(m, k, n) * (1 + 1e-9)


def test_a_deep_product_with_few_tiles_splits_its_depth():
    """One tile of depth 65,536 works on more than one unit of 100."""
    assert efficiency(roofline(), 256, 65536, 128) > 5 / UNITS


def test_a_product_that_waits_for_memory():
    matmul = roofline(flops=100e12, bytes_per_second=1e11)
    moved = 2 * (8192 + 8192**2 + 8192)
    assert matmul.seconds(1, 8192, 8192) == pytest.approx(moved / 1e11)
    assert matmul.seconds(1, 8192, 8192, count=3) == pytest.approx(3 * moved / 1e11)


def test_low_precision_has_its_own_rate_and_operands():
    matmul = roofline()
    assert matmul.seconds(8192, 8192, 8192, low=True) == matmul.seconds(8192, 8192, 8192) / 2
    waiting = roofline(bytes_per_second=1.0)
    assert waiting.seconds(1, 64, 64, low=True) == 64 + 64 * 64 + 2 * 64, "operands of 1 byte, a result of 2"


def test_small_products_run_at_a_lower_rate_on_cpus():
    matmul = roofline(units=0)
    dims = np.array([32, 128, 512, 2048])
    assert (np.diff(2 * dims**3 / matmul.seconds(dims, dims, dims)) > 0).all()


def test_arrays_broadcast():
    for matmul in (rates(measured()), roofline()):
        seconds = matmul.seconds(np.array([64, 512]), 64, np.array([64, 128]), count=np.array([1, 4]))
        assert seconds.shape == (2,)
        assert seconds[0] == matmul.seconds(64, 64, 64)
        assert seconds[1] == matmul.seconds(512, 64, 128, count=4)


@pytest.mark.parametrize(
    ("device", "units"),
    [
        ({"architecture": "hopper"}, MULTIPROCESSORS["hopper"]),
        ({"architecture": "tomorrow"}, MULTIPROCESSORS["ampere"]),
        ({}, MULTIPROCESSORS["ampere"]),
        ({"kind": "cpu"}, 0),
    ],
)
def test_units_follow_the_architecture(device, units):
    assert rates(make_problem(cluster=make_cluster(make_group(**device)))).units == units


@pytest.mark.parametrize(
    ("precision", "low", "operands"), [("bf16", 225e12, (2, 2)), ("fp8", 450e12, (2, 1)), ("fp32", 15e12, (4, 4))]
)
def test_rates_follow_the_precision(precision, low, operands):
    peaks = {"bf16": 300e12, "fp8": 600e12, "fp32": 20e12}
    matmul = rates(make_problem(cluster=make_cluster(make_group(peak_flops=peaks)), precision=precision))
    assert matmul.low_flops == low
    assert matmul.flops == (15e12 if precision == "fp32" else 225e12)
    assert (matmul.operand_bytes, matmul.low_operand_bytes) == operands


def test_a_deeper_product_never_takes_less_time():
    matmul = roofline()
    depths = np.arange(256, 16384, 64)
    assert (np.diff(matmul.seconds(128, depths, 128)) >= -1e-15).all()
