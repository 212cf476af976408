from itertools import combinations_with_replacement, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solver.stages.kinds import Kinds
from solver.stages.menus import Menus

COSTS = st.integers(0, 6).map(float)


@st.composite
def kinds_and_counts(draw):
    """Kinds with small whole costs, so that many choices are equal, and how many layers there are of each."""
    number = draw(st.sampled_from([1, 2, 3]))
    by_mode = st.lists(st.tuples(COSTS, COSTS, COSTS), min_size=number, max_size=number)
    choices = np.array([draw(st.lists(st.booleans(), min_size=3, max_size=3)) for _ in range(number)])
    choices[~choices.any(axis=1), 0] = True
    flight, backward, reduce = (np.array([draw(by_mode)]) * choices for _ in range(3))
    one = np.ones((1, number))
    kinds = Kinds(
        of_layer=np.arange(number),
        forward=one,
        weight=one,
        optimizer=one,
        static=one,
        backward=backward,
        reduce=reduce,
        flight=flight,
        choices=choices[None],
    )
    return kinds, tuple(draw(st.lists(st.integers(0, 4), min_size=number, max_size=number).filter(any)))


def every_choice(kinds, counts):
    """Bytes, backward, and backward and reduction of all choices."""
    each = [
        combinations_with_replacement(np.flatnonzero(kinds.choices[0, kind]).tolist(), count)
        for kind, count in enumerate(counts)
    ]
    costs = (kinds.flight[0], kinds.backward[0], kinds.backward[0] + kinds.reduce[0])
    return np.array(
        [
            [sum(cost[kind, mode] for kind, modes in enumerate(choice) for mode in modes) for cost in costs]
            for choice in product(*each)
        ]
    )


@given(kinds_and_counts())
@settings(deadline=None)
def test_a_menu_has_what_no_other_choice_is_as_good_as(case):
    kinds, counts = case
    menu, every = Menus(kinds).of(0, counts), every_choice(*case)
    listed = np.stack([menu.flight, menu.backward, menu.done], axis=1)
    for choice in every:
        assert (listed <= choice + 1e-9).all(axis=1).any()
    for i, choice in enumerate(listed):
        assert (np.abs(every - choice) < 1e-9).all(axis=1).any()
        assert not (listed <= choice).all(axis=1)[np.arange(len(listed)) != i].any()
    assert (np.diff(menu.flight) >= 0).all()


@given(kinds_and_counts())
@settings(deadline=None)
def test_the_layers_of_a_choice_are_as_many_as_there_are_and_cost_what_it_says(case):
    kinds, counts = case
    menu = Menus(kinds).of(0, counts)
    assert (menu.layers.sum(axis=2) == counts).all()
    assert (menu.layers[:, ~kinds.choices[0]] == 0).all()
    for cost, each in ((menu.flight, kinds.flight[0]), (menu.backward, kinds.backward[0])):
        assert cost == pytest.approx((menu.layers * each).sum(axis=(1, 2)))


@given(kinds_and_counts(), st.lists(st.floats(0, 80), min_size=1, max_size=5))
@settings(deadline=None)
def test_the_quickest_choice_is_the_quickest_that_there_is_room_for(case, rooms):
    menu, every = Menus(case[0]).of(0, case[1]), every_choice(*case)
    rooms = np.array(rooms) + every[:, 0].min()
    choices, soonest = menu.quickest(rooms)
    for room, choice, done in zip(rooms, choices.tolist(), soonest.tolist(), strict=True):
        fits = every[every[:, 0] <= room]
        assert menu.flight[choice] <= room
        assert menu.backward[choice] == pytest.approx(fits[:, 1].min())
        assert done == pytest.approx(fits[:, 2].min())


@given(kinds_and_counts(), st.floats(0, 80))
@settings(deadline=None)
def test_sooner_choices_are_longer_and_done_ever_sooner_up_to_the_soonest(case, more):
    menu = Menus(case[0]).of(0, case[1])
    room = float(menu.flight[0] + more)
    (first,), (soonest,) = menu.quickest(np.array([room]))
    found = [int(first), *menu.sooner(room, int(first)).tolist()]
    assert (np.diff(menu.backward[found]) >= 0).all()
    assert (np.diff(menu.done[found]) < 0).all()
    assert menu.done[found[-1]] == pytest.approx(soonest)
    assert menu.fitting(room).tolist()[0] == first or menu.backward[menu.fitting(room)[0]] == menu.backward[first]


def test_deep_stages_have_a_menu_soon():
    """Three modes of a thousand layers are half a million choices, of which few are worth having."""
    costs = {name: np.ones((1, 1)) for name in ("forward", "weight", "optimizer", "static")}
    kinds = Kinds(
        of_layer=np.zeros(1, dtype=np.int64),
        backward=np.array([[[2.0, 2.25, 3.0]]]),
        reduce=np.zeros((1, 1, 3)),
        flight=np.array([[[34.0, 20.0, 2.0]]]),
        choices=np.ones((1, 1, 3), dtype=np.bool_),
        **costs,
    )
    menu = Menus(kinds).of(0, (1000,))
    assert 1000 < len(menu.flight) < 20_000
