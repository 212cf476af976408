from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoplan.spec import Derate
from autoplan.spec.profile import Contention
from costmodels.communication import DataWork
from costmodels.link_work import LinkRates, LinkWork
from costmodels.pricing import Rates, derate_rates, hidden_in_pair, price_data, price_pass
from costmodels.work import PassWork

FREE = Contention(compute_slowdown=1.0, communication_slowdown=1.0)
KINDS = ("products", "low_products", "grouped_products", "low_grouped_products", "attention", "memory")
AXES = ("tensor", "context", "expert")
LAYER, EMBEDDING, HEAD, STAGE = 0, 1, 2, 3
nominal = st.floats(0, 10)


def make_rates(**changes):
    """Rates of 1, a host that costs nothing, and communication that hides behind nothing."""
    nothing = {"host_seconds", "routed_host_seconds", "step_seconds", "jitter"}
    figures = {
        field.name: 0.0 if field.name in nothing or field.name.startswith("hidden_") else 1.0 for field in fields(Rates)
    }
    return Rates(**figures | {"links": LinkRates(), "contention": FREE} | changes)


def link(intra=0.0, inter=0.0, latency=0.0, shape=(1, 1)):
    return LinkWork(
        latency_seconds=np.full(shape, latency),
        intra_seconds=np.full(shape, intra),
        inter_seconds=np.full(shape, inter),
    )


def make_pass(**changes):
    figures = dict.fromkeys((*KINDS, "kernels", "routed_kernels"), 0.0) | changes
    arrays = {name: np.full((1, 1), value) for name, value in figures.items() if name not in AXES}
    return PassWork(**arrays, **{axis: changes.get(axis, link()) for axis in AXES})


def total(work, rates):
    priced = price_pass(work, rates)
    return float(priced.compute[0, 0] + priced.communication[0, 0])


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_work_has_its_own_rate(kind):
    work = make_pass(**dict.fromkeys(KINDS, 1.0))
    assert total(work, make_rates()) == pytest.approx(len(KINDS))
    assert total(work, make_rates(**{kind: 0.5})) == pytest.approx(len(KINDS) + 1)


def test_a_pass_is_never_faster_than_its_host_nor_than_its_device():
    work = make_pass(products=3.0, kernels=100.0)
    found = [total(work, make_rates(host_seconds=h)) for h in (0.0, 0.01, 0.03, 0.1, 1.0)]
    assert found == sorted(found)
    assert found[0] == pytest.approx(3.0)
    assert found[-1] == pytest.approx(100.0, rel=0.01)
    assert all(seconds >= max(3.0, 100 * h) for seconds, h in zip(found, (0, 0.01, 0.03, 0.1, 1), strict=True))


def test_rounding_off_costs_most_where_host_and_device_are_equal():
    work = make_pass(products=1.0, kernels=1.0)
    assert 1.0 <= total(work, make_rates(host_seconds=1.0)) < 1.5
    assert total(work, make_rates(host_seconds=0.1)) < 1.02


def test_a_graph_holds_what_is_not_routed():
    work = make_pass(kernels=3.0, routed_kernels=2.0)
    assert total(work, make_rates(host_seconds=1.0, routed_host_seconds=1.0)) == pytest.approx(5.0)
    assert total(work, make_rates(host_seconds=0.0, routed_host_seconds=1.0)) == pytest.approx(2.0)


def test_communication_takes_the_time_that_a_device_waits_for_its_host():
    work = make_pass(products=1.0, kernels=100.0, tensor=link(intra=2.0), expert=link(intra=1.0))
    priced = price_pass(work, make_rates(host_seconds=1.0))
    assert priced.compute[0, 0] == pytest.approx(100.0)
    assert priced.communication[0, 0] < 0.01
    apart = price_pass(work, make_rates())
    assert (apart.tensor[0, 0], apart.expert[0, 0]) == pytest.approx((2.0, 1.0))
    assert priced.tensor[0, 0] == pytest.approx(2 * priced.expert[0, 0])


@pytest.mark.parametrize(("axis", "kind"), [("tensor", "products"), ("context", "attention"), ("expert", "products")])
def test_communication_hides_behind_what_runs_beside_it(axis, kind):
    """1 s of compute, 2 s of communication: what is left is 2, 1.5 of which half may hide, or 1."""
    work = make_pass(**{kind: 1.0, axis: link(intra=2.0)})
    for share, shown in ((0.0, 2.0), (0.25, 1.5), (1.0, 1.0)):
        priced = price_pass(work, make_rates(**{f"hidden_{axis}": share}))
        assert getattr(priced, axis)[0, 0] == pytest.approx(shown), share
        assert priced.compute[0, 0] == pytest.approx(1.0)


def test_communication_hides_behind_nothing_else():
    work = make_pass(memory=5.0, attention=5.0, tensor=link(intra=2.0))
    assert price_pass(work, make_rates(hidden_tensor=1.0)).tensor[0, 0] == 2.0
    work = make_pass(products=5.0, context=link(intra=2.0))
    assert price_pass(work, make_rates(hidden_context=1.0)).context[0, 0] == 2.0


def test_kernels_side_by_side_slow_each_other():
    """T = max + (κ−1)·min: 1 s hidden behind 3 s still shows 0.3 s at κ = 1.3, and never more than it takes alone."""
    work = make_pass(products=3.0, tensor=link(intra=1.0))
    mild = Contention(compute_slowdown=1.3, communication_slowdown=1.3)
    assert price_pass(work, make_rates(hidden_tensor=1.0, contention=mild)).tensor[0, 0] == pytest.approx(0.3)
    bad = Contention(compute_slowdown=3.0, communication_slowdown=3.0)
    assert price_pass(work, make_rates(hidden_tensor=1.0, contention=bad)).tensor[0, 0] == pytest.approx(1.0)


def hidden(shown, alone, room, **rates):
    arrays = {name: np.full((1, 1), value) for name, value in (("shown", shown), ("alone", alone), ("room", room))}
    return float(hidden_in_pair(**arrays, rates=make_rates(**rates))[0, 0])


def test_a_pair_hides_what_the_other_pass_has_room_for():
    assert hidden(2.0, 2.0, 5.0) == pytest.approx(2.0)
    assert hidden(2.0, 2.0, 0.5) == pytest.approx(0.5)
    slow = Contention(compute_slowdown=1.2, communication_slowdown=1.3)
    assert hidden(2.0, 2.0, 5.0, contention=slow) == pytest.approx(2.0 - 2.6 * (1 - 1 / 1.2))
    assert hidden(2.0, 2.0, 5.0, contention=Contention(compute_slowdown=2.0, communication_slowdown=2.0)) == 0.0


def test_what_hides_in_its_own_pass_needs_room_in_a_pair_too():
    assert hidden(0.5, 2.0, 2.0) == pytest.approx(0.5)
    assert hidden(0.5, 2.0, 1.7) == pytest.approx(0.2)
    assert hidden(0.5, 2.0, 1.0) == 0.0


def test_links_inside_and_between_nodes_work_at_the_same_time():
    work = make_pass(tensor=link(intra=2.0, inter=3.0, latency=0.5))
    assert total(work, make_rates()) == pytest.approx(3.5)
    assert total(work, make_rates(links=LinkRates(inter=0.5))) == pytest.approx(6.5)
    assert total(work, make_rates(links=LinkRates(intra=0.5, latency=2.0))) == pytest.approx(5.0)


@given(
    kinds=st.fixed_dictionaries(dict.fromkeys(KINDS, nominal)),
    moved=st.tuples(nominal, nominal, nominal),
    axis=st.sampled_from(AXES),
    hidden=st.floats(0, 1),
    slowdowns=st.tuples(st.floats(1, 2), st.floats(1, 2)),
    rate=st.floats(0.1, 1),
    more=st.floats(1, 5),
)
def test_a_faster_device_or_link_never_takes_longer(kinds, moved, axis, hidden, slowdowns, rate, more):
    work = make_pass(**kinds, **{axis: link(*moved)})
    contention = Contention(compute_slowdown=slowdowns[0], communication_slowdown=slowdowns[1])
    base = make_rates(**dict.fromkeys(KINDS, rate), contention=contention, **{f"hidden_{axis}": hidden})
    base = replace(base, links=LinkRates(intra=rate, inter=rate, latency=1 / rate))
    before = total(work, base) * (1 + 1e-9)
    for kind in KINDS:
        assert total(work, replace(base, **{kind: rate * more})) <= before, kind
    for name in ("intra", "inter"):
        assert total(work, replace(base, links=replace(base.links, **{name: rate * more}))) <= before, name
    assert total(work, replace(base, links=replace(base.links, latency=1 / rate / more))) <= before


@given(kinds=st.fixed_dictionaries(dict.fromkeys(KINDS, nominal)), kernels=nominal, rate=st.floats(0.1, 1))
def test_a_faster_device_or_host_never_takes_longer(kinds, kernels, rate):
    work = make_pass(**kinds, kernels=kernels)
    base = make_rates(**dict.fromkeys(KINDS, rate), host_seconds=1.0)
    before = total(work, base) * (1 + 1e-9)
    assert total(work, replace(base, host_seconds=0.5)) <= before
    for kind in KINDS:
        assert total(work, replace(base, **{kind: 2 * rate})) <= before, kind


def make_data(*, gather=0.0, scatter=0.0, replicate=0.0, tied=0.0):
    """The same for a layer, an embedding and a head; the stage itself has no weights."""

    def units(seconds):
        work = link(intra=seconds, shape=(1, 4))
        work.intra_seconds[:, STAGE] = 0.0
        return work

    return DataWork(
        gather=units(gather),
        scatter=units(scatter),
        replicate=units(replicate),
        tied=units(tied),
        send=link(shape=(1,)),
    )


def price(work, *, zero=0, every=False, compute=1.0, **rates):
    units = np.array([[compute, compute, compute, 0.0]])
    return price_data(
        work,
        make_rates(**rates),
        zero_stage=np.array([[zero]]),
        every_batch=np.array([[every]]),
        forward=units,
        backward=2 * units,
    )


ALL = {"gather": 3.0, "scatter": 5.0, "replicate": 7.0, "tied": 11.0}


@pytest.mark.parametrize(
    ("zero", "every", "forward", "backward", "step"),
    [
        (0, False, 0, 0, 7 + 11),
        (1, False, 0, 0, 3 + 5 + 7 + 11),
        (2, False, 0, 0, 3 + 5 + 7 + 11),
        (2, True, 0, 5, 3 + 7 + 11),
        (3, True, 3, 3 + 5, 7 + 11),
        (3, False, 3, 3, 5 + 7 + 11),
    ],
)
def test_what_each_zero_stage_does_when_where_nothing_hides(zero, every, forward, backward, step):
    """Stage 3 gathers in every pass, 1 and 2 once; gradients are reduced once or after every micro-batch."""
    found = price(make_data(**ALL), zero=zero, every=every)
    weights = np.array([[1, 1, 1, 0]])
    assert found.forward == pytest.approx(forward * weights)
    assert found.backward == pytest.approx(backward * weights)
    assert found.step == pytest.approx(step * weights)


def test_gathers_hide_behind_the_forward_but_for_the_first():
    found = price(make_data(gather=0.8), zero=3, every=True, hidden_data=1.0)
    assert found.forward[0, :STAGE] == pytest.approx([0, 0, 0])
    assert found.forward[0, STAGE] == pytest.approx(0.8), "the first gather of a stage hides behind nothing"
    longer = price(make_data(gather=1.5), zero=3, every=True, hidden_data=1.0)
    assert longer.forward[0, LAYER] == pytest.approx(0.5)
    assert longer.forward[0, STAGE] == pytest.approx(1.0)


def test_once_a_step_gathers_hide_where_the_software_overlaps_them():
    work = make_data(gather=0.8)
    assert price(work, zero=1, hidden_data=1.0).step[0, LAYER] == pytest.approx(0.8)
    assert price(work, zero=1, hidden_gather=1.0).step[0, LAYER] == pytest.approx(0)


def test_reductions_hide_behind_the_backward():
    """2 s of backward: of 1.5 s nothing is left, of 3 s one second."""
    assert price(make_data(scatter=1.5), zero=3, every=True, hidden_data=1.0).backward[0, LAYER] == pytest.approx(0)
    assert price(make_data(scatter=3.0), zero=3, every=True, hidden_data=1.0).backward[0, LAYER] == pytest.approx(1)
    assert price(make_data(scatter=3.0), zero=1, hidden_data=1.0).step[0, LAYER] == pytest.approx(1)


def test_replicas_are_reduced_beside_what_every_backward_has():
    """2 s of backward hide the 1.5 s that every one reduces; with 1.5 s more for the replicas one second is left."""
    found = price(make_data(scatter=1.5, replicate=1.5), zero=3, every=True, hidden_data=1.0)
    assert found.backward[0, LAYER] == pytest.approx(0)
    assert found.step[0, LAYER] == pytest.approx(1)


def test_a_tied_table_is_exchanged_after_everything():
    assert price(make_data(tied=0.5), hidden_data=1.0).step[0, EMBEDDING] == pytest.approx(0.5)


@given(
    moved=st.tuples(nominal, nominal, nominal),
    zero=st.integers(0, 3),
    every=st.booleans(),
    hidden=st.floats(0, 1),
    compute=nominal,
    slowdown=st.floats(1, 2),
    more=st.floats(0, 10),
)
def test_overlap_never_costs_more_than_one_after_the_other(moved, zero, every, hidden, compute, slowdown, more):
    work = make_data(gather=moved[0], scatter=moved[1], replicate=moved[2])
    contention = Contention(compute_slowdown=slowdown, communication_slowdown=slowdown)
    beside = {"hidden_data": hidden, "hidden_gather": hidden, "contention": contention}
    hides = price(work, zero=zero, every=every, compute=compute, **beside)
    shows = price(work, zero=zero, every=every, compute=compute)
    for name in ("forward", "backward", "step"):
        found = getattr(hides, name)
        assert (found >= -1e-9).all(), name
        assert (found[:, :STAGE] <= getattr(shows, name)[:, :STAGE] + 1e-9).all(), name
    slower = price(work, zero=zero, every=every, compute=compute + more, **beside)
    for name in ("forward", "backward"):
        passes = 2 if name == "backward" else 1
        before, after = getattr(hides, name)[0, LAYER], getattr(slower, name)[0, LAYER]
        assert after + passes * more >= before - 1e-9, "more compute never saves time"


def test_faster_products_never_take_longer_while_the_host_is_slower():
    work = make_pass(products=1.0, kernels=2.0, tensor=link(intra=1.0))
    base = make_rates(host_seconds=1.0, hidden_tensor=1.0)
    assert total(work, replace(base, products=2.0)) <= total(work, base)


def test_faster_products_never_take_longer_where_two_axes_hide_behind_them():
    work = make_pass(products=1.0, tensor=link(intra=1.0), expert=link(intra=1.0))
    base = make_rates(hidden_tensor=1.0, hidden_expert=1.0)
    assert total(work, replace(base, products=2.0)) <= total(work, base)


def test_slow_nodes_reach_their_share_of_every_rate():
    work = make_pass(**dict.fromkeys(KINDS, 1.0), kernels=50.0, tensor=link(intra=2.0, inter=1.0, latency=0.5))
    rates = make_rates(host_seconds=0.1)
    slow = price_pass(work, derate_rates(rates, Derate(compute=0.5)))
    assert slow.compute[0, 0] == pytest.approx(2 * price_pass(work, rates).compute[0, 0])
    links = derate_rates(rates, Derate(links=0.25)).links
    assert work.tensor.seconds(links)[0, 0] == pytest.approx(0.5 + 2.0 / 0.25)
    assert derate_rates(rates, Derate()) is rates
