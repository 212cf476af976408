"""A faster device never makes a step slower: every schedule, with cuts that are given, by every figure of a device.

Not where a schedule splits the backward and gradients are reduced or weights gathered during it: less compute to hide
behind exposes communication, all of which the input gradient then has, so that it may take longer when the weight
gradient is faster (less than 0.1 % of a step). Cuts that follow from the times may become worse when these change.
"""

import pytest

from costmodels.estimate import estimate
from costmodels.pipeline import SPLIT
from tests.costmodels.problems import (
    SCHEDULES,
    families,
    make_cluster,
    make_group,
    make_problem,
    random_configurations,
    random_cuts,
)

ROUNDING = 1 + 1e-9
NOMINAL = {
    "peak_flops": 300e12,
    "memory_bytes_per_second": 2e12,
    "intra_seconds": 2e-6,
    "intra_bandwidth": 200e9,
    "inter_seconds": 1e-5,
    "inter_bandwidth": 20e9,
}


def problem_of(name, figures):
    """Two nodes of four."""
    group = make_group(
        2,
        4,
        intra=(figures["intra_seconds"], figures["intra_bandwidth"]),
        inter=(figures["inter_seconds"], figures["inter_bandwidth"]),
        peak_flops={"bf16": figures["peak_flops"], "fp32": figures["peak_flops"] / 15},
        memory_bytes_per_second=figures["memory_bytes_per_second"],
    )
    return make_problem(families(16)[name], cluster=make_cluster(group), global_batch=48, seq_len=512)


def pipelines(problem, schedule):
    """Two configurations of several stages with their cuts."""
    drawn = random_configurations(problem, 60, seed=sum(map(ord, schedule)), schedules=[schedule])
    found = [c for c in drawn if c.pp > 1 and (c.zero_stage < 2 or schedule not in SPLIT)][:2]
    rows = random_cuts(problem, found).tolist()
    return [(c, tuple(row[: c.pp * c.virtual_stages + 1])) for c, row in zip(found, rows, strict=True)]


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("name", ["llama", "moe", "hybrid"])
def test_every_figure_may_only_help(name, schedule):
    before = problem_of(name, NOMINAL)
    configurations = pipelines(before, schedule)
    for (configuration, cuts), factor in zip(configurations, (1.02, 1.5), strict=True):
        slow = estimate(before, configuration, cuts).step_seconds
        for figure, value in NOMINAL.items():
            better = value / factor if figure.endswith("_seconds") else value * factor
            after = problem_of(name, NOMINAL | {figure: better})
            assert estimate(after, configuration, cuts).step_seconds <= slow * ROUNDING, (configuration, figure)
