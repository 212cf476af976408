"""Ranks are made even, compared with every way to do it."""

from itertools import combinations_with_replacement

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costmodels.balance import balance_ranks, divide_loop, divide_v, even_chunks, rank_seconds, refine_v, share_out


def timed(layers, *, first=0.0, last=0.0, shares=(1, 1, 1, 1)):
    done = np.concatenate([[0.0], np.cumsum(layers)])[None]
    return even_chunks(done, np.array([first]), np.array([last]), shares=np.array([shares], dtype=float))[0]


def v_ranks(pp):
    return np.minimum(np.arange(2 * pp), 2 * pp - 1 - np.arange(2 * pp))


def least_of_any_cuts(done, ends, pace, ranks):
    """Return the least that the slowest rank takes with any cuts at all."""
    layers, chunks = done.shape[1] - 1, len(ranks)
    inner = np.array(list(combinations_with_replacement(range(layers + 1), chunks - 1)))
    cuts = np.concatenate([np.zeros((len(inner), 1), int), inner, np.full((len(inner), 1), layers)], axis=1)
    every = [np.repeat(each, len(cuts), axis=0) for each in (done, ends, pace)]
    return rank_seconds(*every, ranks, np.diff(cuts, axis=1)).max(axis=1).min()


def drawn(seed, pp, layers, *, alike=False, chunks=None):
    generator = np.random.default_rng(seed)
    seconds = np.ones(layers) if alike else generator.choice([0.4, 1.0], layers)
    ends = np.zeros((1, chunks or 2 * pp))
    ends[0, 0], ends[0, -1] = generator.uniform(0, 1), generator.uniform(0, 3)
    pace = np.ones((1, pp)) if generator.integers(2) else generator.choice([1.0, 1.5], (1, pp))
    return np.concatenate([[0.0], np.cumsum(seconds)])[None], ends, pace


class TestEvenChunks:
    def test_the_head_takes_the_place_of_layers(self):
        assert timed(np.ones(7), last=1.0).tolist() == [0, 2, 4, 6, 7]
        assert timed(np.ones(7), first=1.0).tolist() == [0, 1, 3, 5, 7]
        assert timed(np.ones(6), first=1.0, last=1.0).tolist() == [0, 1, 3, 5, 6]

    def test_unequal_layers(self):
        assert timed(np.array([3.0, 1.0, 1.0, 1.0]), shares=(1, 1)).tolist() == [0, 1, 4]

    def test_a_slower_rank_has_a_smaller_share(self):
        assert timed(np.ones(6), shares=(1, 2)).tolist() == [0, 2, 6]

    def test_a_heavy_head_may_leave_the_last_chunk_without_a_layer(self):
        assert timed(np.ones(4), last=10.0, shares=(1, 1)).tolist() == [0, 4, 4]

    @given(
        layers=st.lists(st.floats(0.1, 10), min_size=1, max_size=30),
        first=st.floats(0, 20),
        last=st.floats(0, 20),
        chunks=st.integers(1, 8),
    )
    def test_boundaries_ascend_and_are_within_a_layer_of_their_share(self, layers, first, last, chunks):
        cuts = timed(np.array(layers), first=first, last=last, shares=(1,) * chunks)
        assert len(cuts) == chunks + 1
        assert cuts.tolist() == sorted(cuts.tolist())
        assert (cuts[0], cuts[-1]) == (0, len(layers))
        done = first + np.concatenate([[0.0], np.cumsum(layers)])
        for c in range(1, chunks):
            share = np.clip((done[-1] + last) * c / chunks, done[0], done[-1])
            assert abs(done[cuts[c]] - share) <= max(layers) / 2 + 1e-9


class TestRanks:
    @pytest.mark.parametrize(("first", "counts"), [(True, [3, 3, 2]), (False, [2, 3, 3])])
    def test_what_does_not_divide_is_on_the_first_ranks_or_on_the_last(self, first, counts):
        assert share_out(8, np.zeros((1, 3)), np.ones((1, 3)), first_ranks=first)[0].tolist() == counts

    def test_loads_and_paces_count(self):
        counts = share_out(6, np.array([[2.0, 0.0, 0.0]]), np.array([[1.0, 1.0, 2.0]]), first_ranks=True)
        assert counts[0].tolist() == [2, 3, 1]

    @settings(max_examples=60, deadline=None)
    @given(seed=st.integers(0, 2**20), pp=st.integers(2, 3), layers=st.integers(4, 12), first=st.booleans())
    def test_alike_layers_are_shared_out_as_evenly_as_can_be(self, seed, pp, layers, first):
        done, ends, pace = drawn(seed, pp, layers, alike=True)
        found = balance_ranks(
            done, ends, pace, v_ranks(pp), lambda n: divide_v(n, np.zeros(1), first_chunks=first), first_ranks=first
        )
        assert found.sum() == layers
        slowest = rank_seconds(done, ends, pace, v_ranks(pp), found).max()
        assert slowest == pytest.approx(least_of_any_cuts(done, ends, pace, v_ranks(pp)))

    def test_work_besides_counts_where_ranks_are_made_even(self):
        done, ends, pace = np.arange(9.0)[None], np.zeros((1, 4)), np.ones((1, 4))
        found = balance_ranks(
            done, ends, pace, np.arange(4), lambda n: n, first_ranks=True, besides=np.array([[0.0, 1.0, 2.0, 3.0]])
        )
        assert found.tolist() == [[4, 3, 1, 0]]


class TestV:
    def test_both_chunks_of_a_rank_are_even(self):
        counts = np.array([[3, 4, 5]])
        assert divide_v(counts, np.array([1.0]), first_chunks=True).tolist() == [[2, 2, 3, 2, 2, 1]]
        assert divide_v(counts, np.array([1.0]), first_chunks=False).tolist() == [[2, 2, 2, 3, 2, 1]]

    @settings(max_examples=60, deadline=None)
    @given(seed=st.integers(0, 2**20), pp=st.integers(2, 3), layers=st.integers(6, 12))
    def test_unlike_layers_are_refined_from_the_outside_in(self, seed, pp, layers):
        done, ends, pace = drawn(seed, pp, layers)
        start = balance_ranks(
            done, ends, pace, v_ranks(pp), lambda n: divide_v(n, np.zeros(1), first_chunks=True), first_ranks=True
        )
        found = refine_v(done, ends, pace, start)
        assert found.sum() == layers
        assert (found >= 0).all()
        before, after = (rank_seconds(done, ends, pace, v_ranks(pp), each).max() for each in (start, found))
        assert after <= before * 1.0051
        assert after >= least_of_any_cuts(done, ends, pace, v_ranks(pp)) * (1 - 1e-12)

    def test_refining_finds_the_best_near_the_start_and_the_more_even_of_equals(self):
        done = np.concatenate([[0.0], np.cumsum([1, 1, 1, 1, 1, 1, 2, 2.0])])[None]
        found = refine_v(done, np.zeros((1, 4)), np.ones((1, 2)), np.array([[3, 1, 1, 3]]))
        assert rank_seconds(done, np.zeros((1, 4)), np.ones((1, 2)), v_ranks(2), found).max() == 5
        assert found.tolist() in ([[3, 2, 2, 1]], [[1, 3, 2, 2]])


class TestLoop:
    def test_ranks_have_the_same_in_every_round(self):
        assert divide_loop(np.array([[5, 5, 5]]), 6).tolist() == [[3, 3, 3, 2, 2, 2]]

    def test_the_head_takes_from_the_last_chunk_and_the_embedding_from_the_first(self):
        assert divide_loop(np.array([[5, 6, 6, 3]]), 8).tolist() == [[2, 3, 3, 3, 3, 3, 3, 0]]

    def test_what_ranks_have_more_is_on_their_first_chunks(self):
        assert divide_loop(np.array([[5, 4, 4, 3]]), 8).tolist() == [[3, 2, 2, 2, 2, 2, 2, 1]]

    def test_a_rank_may_lack_more_than_a_chunk_has(self):
        assert divide_loop(np.array([[4, 4, 4, 0]]), 8).tolist() == [[2, 2, 2, 0, 2, 2, 2, 0]]

    @given(counts=st.lists(st.integers(0, 20), min_size=2, max_size=6), v=st.integers(2, 5))
    def test_every_rank_has_its_layers(self, counts, v):
        sizes = divide_loop(np.array([counts]), v * len(counts)).reshape(v, -1)
        assert (sizes >= 0).all()
        assert sizes.sum(axis=0).tolist() == counts
