import subprocess
import sys
from dataclasses import replace

import pytest

from autoplan.planner import load_model
from autoplan.spec import AUTOPLAN, Configuration
from costmodels.coefficients import Coefficients, fitted_coefficients
from costmodels.estimate import estimate
from costmodels.spread import Spread
from tests.costmodels.problems import make_cluster, make_group, make_problem, make_profile

EIGHT = Configuration(tp=8)
PLAIN = Coefficients(spread=Spread(between={}, residual=0.1, quantile=2.0))


def ends(problem, coefficients=None, configuration=EIGHT):
    found = estimate(problem, configuration, coefficients=coefficients)
    return found.step_seconds_low / found.step_seconds, found.step_seconds_high / found.step_seconds


def test_without_measurements_the_range_is_that_of_what_was_kept_aside():
    low, high = ends(make_problem(), PLAIN)
    assert high == pytest.approx(1.2214, rel=1e-3)  # exp(2·0.1)
    assert low * high == pytest.approx(1.0)


def test_a_run_that_leans_on_what_differs_between_frameworks_has_a_wider_range():
    nvlink = Coefficients(spread=Spread(between={"nvlink": 0.5}, residual=0.1, quantile=2.0))
    alone, together = Configuration(dp_replicate=8), Configuration(tp=8)
    problem = make_problem(seq_len=4096, stack=replace(AUTOPLAN, host_seconds=0.0))
    assert ends(problem, nvlink, together)[1] > ends(problem, nvlink, alone)[1] > ends(problem, PLAIN, alone)[1]


@pytest.mark.parametrize("cluster", [make_cluster(make_group(kind="cpu")), make_cluster()], ids=["cpu", "profile"])
def test_measured_and_roofline_terms_add_up_their_own_errors(cluster):
    cpu = cluster.device_kind == "cpu"
    problem = make_problem(cluster=cluster, profile=None if cpu else make_profile(cluster))
    low, high = ends(problem, PLAIN)
    assert high - 1 == pytest.approx(1 - low)
    assert (low, high) == pytest.approx(ends(problem))
    assert any("adds up relative errors" in text for text in estimate(problem, EIGHT).assumptions)


def test_the_package_s_range_is_narrower_than_a_guess_and_wider_than_repeats():
    low, high = ends(make_problem(load_model("llama-3-8b"), seq_len=4096))
    assert 1.1 < high / low < 1.8
    assert fitted_coefficients().spread.residual > 0.017  # what repeats of a run differ by


def test_planning_does_not_load_scipy():
    code = "import sys, autoplan.planner, costmodels.estimate, solver; sys.exit('scipy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
