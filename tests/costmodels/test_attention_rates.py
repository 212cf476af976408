import numpy as np
import pytest

from costmodels.attention_rates import UNKNOWN, attention_shares, default_kernel

KERNELS = ["flash1", "flash2", "flash3", "cudnn"]
ARCHITECTURES = ["ampere", "hopper", "blackwell", "ada", "tomorrow", None]


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_no_kernel_is_faster_than_products_and_backwards_are_slower(kernel, architecture):
    forward, backward = attention_shares(kernel, architecture, seq_len=65536, head_dim=128)
    assert 0 < backward < forward < 1


def test_what_was_not_measured_has_one_share():
    forward, backward = attention_shares("flash2", "tomorrow", seq_len=10**9, head_dim=128)
    assert (forward, backward) == pytest.approx(UNKNOWN)
    assert attention_shares("flash3", None, seq_len=10**9, head_dim=128) == pytest.approx(UNKNOWN)


def test_longer_sequences_and_wider_heads_run_better():
    lengths = np.array([64, 512, 4096, 65536])
    by_length = attention_shares("flash2", "ampere", seq_len=lengths, head_dim=128)[0]
    assert (np.diff(by_length) > 0).all()
    by_width = [float(attention_shares("flash2", "ampere", seq_len=4096, head_dim=d)[0]) for d in (32, 64, 128, 256)]
    assert by_width == sorted(by_width)
    assert by_width[-1] == by_width[-2], "128 is what the rates were published for"


def test_newer_kernels_are_faster_where_they_were_made_for():
    def forward(kernel, architecture):
        return attention_shares(kernel, architecture, seq_len=8192, head_dim=128)[0]

    assert forward("flash1", "ampere") < forward("flash2", "ampere")
    assert forward("flash2", "hopper") < forward("flash3", "hopper")


def test_frameworks_take_the_fastest():
    assert [default_kernel(a) for a in ("ampere", "hopper", "blackwell", None)] == [
        "flash2",
        "cudnn",
        "cudnn",
        "flash2",
    ]
