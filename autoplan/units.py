"""Units: names for powers, sizes of element types, and numbers written for people."""

KIB, MIB, GIB = 2**10, 2**20, 2**30

DTYPE_BYTES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2, "float8": 1}


def format_bytes(num_bytes: float) -> str:
    """Write a number of bytes with a binary unit: ``format_bytes(3 * GIB) == "3.00 GiB"``."""
    for unit, size in (("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if abs(num_bytes) >= size:
            return f"{num_bytes / size:.2f} {unit}"
    return f"{num_bytes:.0f} B"


def format_seconds(seconds: float) -> str:
    """Write a duration with the unit that leaves one to three digits before the point."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if abs(seconds) >= size:
            return f"{seconds / size:.3g} {unit}" if seconds < 1000 * size else f"{seconds / size:.0f} {unit}"
    return f"{seconds / 1e-6:.3g} µs"


def format_count(count: float) -> str:
    """Write a large count with a decimal suffix: ``format_count(8.03e9) == "8.03 B"``."""
    for unit, size in (("T", 1e12), ("B", 1e9), ("M", 1e6), ("K", 1e3)):
        if abs(count) >= size:
            return f"{count / size:.2f} {unit}"
    return f"{count:g}"
