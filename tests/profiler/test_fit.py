import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoplan.profiler.fit import fit_collective, num_steps, predict, wire_bytes
from autoplan.spec.profile import CollectiveTiming, Timing
from autoplan.units import KIB, MIB

SIZES = tuple(KIB * 4**power for power in range(9))
NOISE = 0.05


def timings(op, num_ranks, seconds):
    return [
        CollectiveTiming(
            op=op, num_ranks=num_ranks, num_bytes=size, timing=Timing(seconds=value, spread=0.0, repeats=3)
        )
        for size, value in zip(SIZES, seconds, strict=True)
    ]


@st.composite
def links(draw):
    """A collective whose time is half latency, half bandwidth at some size within the measured ones."""
    op = draw(st.sampled_from(["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv"]))
    num_ranks = 2 if op == "send_recv" else draw(st.integers(2, 512))
    latency = 10 ** draw(st.floats(-7, -2))
    balanced = draw(st.floats(4 * KIB, 16 * MIB))
    return op, num_ranks, latency, wire_bytes(op, num_ranks, balanced) / (num_steps(op, num_ranks) * latency)


def true_seconds(op, num_ranks, latency, bandwidth):
    return [num_steps(op, num_ranks) * latency + wire_bytes(op, num_ranks, size) / bandwidth for size in SIZES]


@given(links())
def test_exact_times_give_their_latency_and_bandwidth_back(link):
    op, num_ranks, latency, bandwidth = link
    fit = fit_collective(timings(op, num_ranks, true_seconds(*link)))
    assert (fit.op, fit.num_ranks) == (op, num_ranks)
    assert fit.latency_seconds == pytest.approx(latency, rel=1e-6)
    assert fit.bytes_per_second == pytest.approx(bandwidth, rel=1e-6)
    assert fit.error < 1e-9


@given(links(), st.lists(st.floats(-NOISE, NOISE), min_size=len(SIZES), max_size=len(SIZES)))
def test_noisy_times_are_met_nearly(link, noise):
    truth = true_seconds(*link)
    noisy = [value * (1 + part) for value, part in zip(truth, noise, strict=True)]
    fit = fit_collective(timings(link[0], link[1], noisy))
    # The truth is a candidate, so the sum of squares is at most that of the noise: half of N errors reach the median.
    bound = NOISE / (1 - NOISE)
    assert fit.error <= bound * math.sqrt(2) + 1e-12
    for size, value in zip(SIZES, truth, strict=True):
        assert predict(fit, size) == pytest.approx(value, rel=(1 + NOISE) * bound * math.sqrt(len(SIZES)) + NOISE)


@given(st.lists(st.floats(1e-6, 1.0), min_size=len(SIZES), max_size=len(SIZES)))
def test_any_times_give_a_latency_and_bandwidth_that_make_sense(seconds):
    fit = fit_collective(timings("all_reduce", 4, seconds))
    assert fit.latency_seconds >= 0
    assert 0 < fit.bytes_per_second < math.inf


def test_no_other_latency_and_bandwidth_fit_better():
    seconds = [1e-3, 8e-4, 3e-3, 1e-3, 2e-3, 5e-3, 9e-3, 3e-2, 2e-1]
    fit = fit_collective(timings("all_gather", 4, seconds))

    def loss(latency, per_byte):
        expected = [3 * latency + wire_bytes("all_gather", 4, size) * per_byte for size in SIZES]
        return sum((value / second - 1) ** 2 for value, second in zip(expected, seconds, strict=True))

    best = loss(fit.latency_seconds, 1 / fit.bytes_per_second)
    for latency in np.linspace(0, 2 * fit.latency_seconds, 21):
        for per_byte in np.linspace(0, 2 / fit.bytes_per_second, 21):
            assert best <= loss(latency, per_byte) + 1e-12


def test_times_that_do_not_grow_are_all_latency():
    fit = fit_collective(timings("all_reduce", 2, [4e-3] * 8 + [3.9e-3]))
    assert fit.latency_seconds == pytest.approx(2e-3, rel=0.1)
    assert fit.bytes_per_second == pytest.approx(10 * 64 * MIB / 3.9e-3)
    assert fit.error < 0.1


def test_times_without_latency_are_all_bandwidth():
    fit = fit_collective(timings("send_recv", 2, [size / 1e9 * (0.9 if size == KIB else 1.0) for size in SIZES]))
    assert fit.latency_seconds == 0
    assert fit.bytes_per_second == pytest.approx(1e9, rel=0.02)


def test_steps_and_bytes_are_those_of_the_ring():
    counts = {
        "all_reduce": (6, 1536),
        "all_gather": (3, 768),
        "reduce_scatter": (3, 768),
        "all_to_all": (3, 768),
        "send_recv": (1, 1024),
    }
    for op, (steps, sent) in counts.items():
        assert num_steps(op, 4) == steps
        assert wire_bytes(op, 4, 1024) == sent
