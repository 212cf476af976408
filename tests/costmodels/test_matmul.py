import numpy as np
import pytest

from costmodels.hardware import resolve_hardware
from costmodels.matmul import MeasuredMatmul, RooflineMatmul, resolve_matmul
from tests.costmodels.problems import make_cluster, make_matmul, make_problem, make_profile

SHAPES = [(64, 64, 64), (512, 512, 512), (4096, 1024, 1024), (4096, 4096, 4096)]


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


def test_the_roofline_has_a_compute_and_a_memory_side():
    matmul = RooflineMatmul(flops=100e12, bytes_per_second=1e12, operand_bytes=2)
    large = matmul.seconds(8192, 8192, 8192)
    assert 2 * 8192**3 / 100e12 < large < 1.05 * 2 * 8192**3 / 100e12
    assert matmul.seconds(1, 8192, 8192) == pytest.approx(2 * (8192 + 8192**2 + 8192) / 1e12)


def test_small_products_run_at_a_lower_rate():
    matmul = RooflineMatmul(flops=1e12, bytes_per_second=1e15, operand_bytes=2)
    sizes = np.array([32, 128, 512, 2048])
    assert (np.diff(2 * sizes**3 / matmul.seconds(sizes, sizes, sizes)) > 0).all()


def test_arrays_broadcast():
    matmul = rates(measured())
    seconds = matmul.seconds(np.array([64, 512]), 64, np.array([64, 128]))
    assert seconds.shape == (2,)
    assert seconds[0] == matmul.seconds(64, 64, 64)
