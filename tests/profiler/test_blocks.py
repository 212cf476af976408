import pytest

from autoplan.profiler.blocks import block_flops, cut_block, default_models, shapes, subjects


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_default_blocks_can_be_measured_at_the_usual_degrees(kind):
    for model in default_models(kind):
        assert model.blocks[0].mixer.num_heads * model.blocks[0].mixer.head_dim == model.hidden_size
    degrees = {subject.tp for subject in subjects(None, kind=kind, num_ranks=2)}
    assert degrees == {1, 2}


def test_degrees_that_do_not_divide_are_left_out():
    small, large = default_models("cpu")
    assert small.blocks[0].mixer.num_kv_heads == 2
    assert [subject.tp for subject in subjects(small, kind="cpu", num_ranks=8)] == [1, 2]
    assert [subject.tp for subject in subjects(large, kind="cpu", num_ranks=4)] == [1, 2, 4]
    assert [subject.tp for subject in subjects(large, kind="cpu", num_ranks=3)] == [1, 2]


def test_a_cut_block_has_its_share_of_heads_and_width_and_the_whole_head_dim():
    block = default_models("cpu")[1].blocks[0]
    cut = cut_block(block, 4)
    assert (cut.mixer.num_heads, cut.mixer.num_kv_heads, cut.mixer.head_dim) == (3, 1, 64)
    assert cut.feed_forward.width == 512


def test_flops_of_a_hand_counted_block():
    model = default_models("cpu")[0]
    hidden, kv, width, seq_len = 256, 128, 768, 10
    weights = hidden * hidden * 2 + hidden * kv * 2 + 3 * hidden * width
    expected = 20 * (2 * weights + 2 * seq_len * hidden)
    assert block_flops(model, model.blocks[0], tokens=20, seq_len=seq_len) == expected


def test_shapes_grow_and_respect_the_longest_sequence():
    found = list(shapes((1, 4), (128, 512, 1024), limit=600))
    assert found == [(1, 128), (1, 512), (4, 128), (1, 600), (4, 512), (4, 600)]
