import pytest

from autoplan.units import format_bytes, format_count, format_seconds


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 s"),
        (2.5e-6, "2.50 µs"),
        (0.0135, "13.5 ms"),
        (0.467, "467 ms"),
        (0.99951, "1.00 s"),
        (6.3, "6.30 s"),
        (999.4, "999 s"),
        (999.6, "1,000 s"),
        (12345.6, "12,346 s"),
    ],
)
def test_seconds_have_three_digits_and_no_exponent(seconds, text):
    assert format_seconds(seconds) == text


def test_bytes_and_large_counts_have_two_decimals():
    assert format_bytes(3 * 2**30) == "3.00 GiB"
    assert format_count(8.03e9) == "8.03 B"
    assert [format_count(count) for count in (0, 7, 12.345, 724.583)] == ["0", "7", "12.3", "725"]
