from dataclasses import fields, replace

import pytest

from autoplan.errors import InputError
from autoplan.spec import AUTOPLAN
from autoplan.spec.codec import from_json, to_json
from costmodels.coefficients import Coefficients, fitted_coefficients, resolve_rates
from costmodels.hardware import resolve_hardware
from costmodels.link_work import LinkRates
from tests.costmodels.problems import MILD, make_cluster, make_group, make_problem, make_profile

SHARES = ("products", "low_products", "grouped_products", "low_grouped_products", "attention", "memory", "optimizer")
OVERLAPS = ("hidden_data", "hidden_gather", "hidden_tensor", "hidden_context", "hidden_expert")


def rates(coefficients=None, *, stack=AUTOPLAN, profile=False, **device):
    cluster = make_cluster(make_group(**device))
    problem = make_problem(cluster=cluster, stack=stack, profile=make_profile(cluster) if profile else None)
    return resolve_rates(problem, resolve_hardware(problem), coefficients or Coefficients())


def test_coefficients_come_back_from_json():
    changed = Coefficients(products=0.7, jitter=0.0, architectures={"attention.hopper": 1.1})
    assert from_json(Coefficients, to_json(changed), where="here") == changed


@pytest.mark.parametrize("text", ['{"products": 0}', '{"memory": -1}', '{"jitter": -0.1}', '{"unheard_of": 1}'])
def test_impossible_coefficients_are_refused(text):
    with pytest.raises(InputError, match=r"^here"):
        from_json(Coefficients, text, where="here")


def test_the_package_s_own_are_physical():
    found = fitted_coefficients()
    for architecture in (None, "ampere", "hopper", "blackwell"):
        for name in (*SHARES, "intra", "inter"):
            assert 0.1 < found.of(name, architecture) < 1.5, (name, architecture)
    assert all(0 <= getattr(found, field.name) <= 1 for field in fields(found) if field.name.startswith("hidden_"))
    assert found.step_seconds < 1
    assert found.jitter < 0.1


def test_an_architecture_has_a_factor_and_an_unknown_one_has_none():
    found = Coefficients(products=0.8, architectures={"products.hopper": 0.9})
    assert found.of("products", "hopper") == pytest.approx(0.72)
    assert found.of("products", "ampere") == found.of("products", "tomorrow") == found.of("products", None) == 0.8
    assert found.of("memory", "hopper") == found.memory
    assert rates(found, architecture="hopper").products == pytest.approx(0.72)
    assert rates(found, architecture="tomorrow").products == pytest.approx(0.8)


def test_one_coefficient_scales():
    found = Coefficients(memory=0.5).scaled("memory", 1.2)
    assert found == Coefficients(memory=0.6)


@pytest.mark.parametrize("name", SHARES)
def test_every_share_arrives(name):
    half, whole = (rates(Coefficients(**{name: share})) for share in (0.5, 1.0))
    assert getattr(half, name) == pytest.approx(getattr(whole, name) / 2)
    for other in set(SHARES) - {name}:
        assert getattr(half, other) == getattr(whole, other)


def test_links_host_and_step_arrive():
    found = rates(Coefficients(intra=0.5, inter=0.6, latency=2.0, host=3.0, step_seconds=0.1, jitter=0.05))
    assert found.links == LinkRates(intra=0.5, inter=0.6, latency=2.0)
    assert found.host_seconds == pytest.approx(3 * AUTOPLAN.host_seconds)
    assert (found.step_seconds, found.jitter) == (0.1, 0.05)


def test_only_what_the_software_overlaps_hides():
    flags = ("overlap_data", "overlap_gather", "overlap_tensor", "overlap_context", "overlap_expert")
    every = replace(AUTOPLAN, **dict.fromkeys(flags, True))
    none = replace(AUTOPLAN, **dict.fromkeys(flags, False))
    coefficients = Coefficients(hidden_data=0.9, hidden_tensor=0.4, hidden_context=0.8, hidden_expert=0.3)
    assert [getattr(rates(coefficients, stack=every), name) for name in OVERLAPS] == [0.9, 0.9, 0.4, 0.8, 0.3]
    assert [getattr(rates(coefficients, stack=none), name) for name in OVERLAPS] == [0, 0, 0, 0, 0]


def test_a_graph_launches_without_the_host():
    assert rates(stack=replace(AUTOPLAN, cuda_graph=True)).host_seconds == 0


def test_what_a_profile_measured_is_reached():
    found = rates(Coefficients(products=0.3, memory=0.3, intra=0.3, optimizer=0.3), profile=True)
    assert [getattr(found, name) for name in SHARES] == [1.0] * len(SHARES)
    assert found.links == LinkRates()
    assert found.contention == MILD
    assert (found.step_seconds, found.jitter) == (0, 0)
    assert found.host_seconds == AUTOPLAN.host_seconds


def test_on_cpus_nothing_hides_and_the_host_is_the_device():
    for profile in (False, True):
        found = rates(kind="cpu", profile=profile)
        assert [getattr(found, name) for name in OVERLAPS] == [0] * len(OVERLAPS)
        assert found.host_seconds == 0
        assert found.products == 1
