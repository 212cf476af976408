from autoplan.profiler.blocks import default_models
from autoplan.profiler.effort import choose_effort
from autoplan.profiler.matmuls import matmul_flops, matmul_rate, matmul_shapes
from autoplan.spec.profile import MatmulTiming, Timing


def test_shapes_grow_and_hold_the_model_s_projections():
    effort = choose_effort("cpu", quick=True)
    model = default_models("cpu")[1]
    found = matmul_shapes(effort, model)
    assert len(set(found)) == len(found)
    assert [matmul_flops(shape) for shape in found] == sorted(matmul_flops(shape) for shape in found)
    rows = effort.matmul_rows[0]
    for k, n in ((768, 768), (768, 256), (768, 2048), (2048, 768), (768, model.vocab_size)):
        assert (rows, k, n) in found
        assert (rows, k, n) not in matmul_shapes(effort, None)


def test_the_rate_counts_a_multiplication_and_an_addition():
    timing = MatmulTiming(precision="fp32", m=2, k=3, n=5, timing=Timing(seconds=0.5, spread=0.0, repeats=3))
    assert matmul_rate(timing) == 120.0
