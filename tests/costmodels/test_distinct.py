import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from costmodels.batch import select_rows
from costmodels.distinct import distinct

columns = st.integers(1, 30).flatmap(
    lambda rows: st.lists(
        st.lists(st.one_of(st.integers(0, 3), st.integers(0, 2**40)), min_size=rows, max_size=rows),
        min_size=1,
        max_size=4,
    )
)


@given(columns=columns)
def test_rows_are_told_apart_by_all_of_their_columns(columns):
    table = np.array(columns)
    index, first = distinct(*table)
    assert (table[:, first][:, index] == table).all()
    assert len(first) == len({tuple(row) for row in table.T.tolist()})


def test_nothing_has_no_distinct_rows():
    index, first = distinct(np.zeros(0, dtype=np.int64))
    assert len(index) == len(first) == 0


def test_rows_are_selected_by_integers_masks_and_slices():
    rows = np.array([[1], [2], [3]])
    for index in ([0, 2], np.array([True, False, True]), slice(0, 3, 2)):
        assert select_rows(rows, index).tolist() == [[1], [3]]
