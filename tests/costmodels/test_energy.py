import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoplan.readers import device_preset, device_presets
from costmodels.energy import DevicePower, device_power, step_cost, step_energy_joules

WATTS = st.floats(1, 2000)
SECONDS = st.floats(0, 1e4)
COUNTS = st.integers(1, 20_000)


def test_a_step_by_hand():
    power = DevicePower(busy_watts=600.0, waiting_watts=250.0, idle_watts=70.0)
    joules = step_energy_joules(power, busy_seconds=2.0, waiting_seconds=0.5, num_devices=8)
    assert joules == pytest.approx(8 * (2 * 600 + 0.5 * 250))


def test_a_price_is_per_device_and_hour():
    assert step_cost(3.6, step_seconds=10.0, num_devices=8) == pytest.approx(0.08)


def test_the_power_of_an_h100():
    power = device_power(limit_watts=700.0, idle_watts=70.0)
    assert (power.busy_watts, power.idle_watts) == pytest.approx((630, 70))
    assert power.waiting_watts == pytest.approx(70 + 0.35 * 560)
    assert device_power(limit_watts=700.0).idle_watts == pytest.approx(98)


@given(WATTS, st.none() | st.floats(0, 4000))
def test_a_device_never_draws_less_than_when_idle(limit, idle):
    power = device_power(limit_watts=limit, idle_watts=idle)
    assert 0 <= power.idle_watts <= power.waiting_watts * (1 + 1e-12)
    assert power.waiting_watts <= power.busy_watts * (1 + 1e-12)


@given(WATTS, SECONDS, SECONDS, SECONDS, COUNTS)
def test_energy_grows_with_time_and_devices_and_stays_above_idle(limit, busy, waiting, more, count):
    power = device_power(limit_watts=limit)

    def joules(busy_seconds, waiting_seconds, num_devices):
        return step_energy_joules(
            power, busy_seconds=busy_seconds, waiting_seconds=waiting_seconds, num_devices=num_devices
        )

    energy = joules(busy, waiting, count)
    assert energy >= power.idle_watts * (busy + waiting) * count * (1 - 1e-12)
    assert energy <= limit * (busy + waiting) * count
    assert energy <= joules(busy + more, waiting, count)
    assert energy <= joules(busy, waiting + more, count)
    assert energy <= joules(busy, waiting, count + 1)
    assert joules(busy, waiting + more, count) <= joules(busy + more, waiting, count) * (1 + 1e-12)


@given(st.floats(0, 100), SECONDS, SECONDS, COUNTS)
def test_cost_grows_with_time_and_devices(price, seconds, more, count):
    cost = step_cost(price, step_seconds=seconds, num_devices=count)
    assert 0 <= cost <= step_cost(price, step_seconds=seconds + more, num_devices=count)
    assert cost <= step_cost(price, step_seconds=seconds, num_devices=count + 1)


def test_arrays_are_taken_element_by_element():
    power = device_power(limit_watts=400.0)
    busy, waiting = np.array([1.0, 2.0, 0.0]), np.array([0.5, 0.0, 3.0])
    joules = step_energy_joules(power, busy_seconds=busy, waiting_seconds=waiting, num_devices=16)
    singles = [
        step_energy_joules(power, busy_seconds=b, waiting_seconds=w, num_devices=16)
        for b, w in zip(busy, waiting, strict=True)
    ]
    assert joules.tolist() == pytest.approx(singles)
    assert step_cost(2.0, step_seconds=busy, num_devices=16).tolist() == pytest.approx([32 / 3600, 64 / 3600, 0.0])


@pytest.mark.parametrize("slug", [slug for slug in device_presets() if device_preset(slug).device.power_watts])
def test_every_preset_is_idle_well_below_its_limit(slug):
    device = device_preset(slug).device
    power = device_power(limit_watts=device.power_watts, idle_watts=device.idle_power_watts)
    assert power.idle_watts < 0.3 * device.power_watts < power.busy_watts < device.power_watts
