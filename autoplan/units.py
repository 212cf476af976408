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
    """Write a duration in three digits, with s, ms or µs: ``format_seconds(0.0135) == "13.5 ms"``.

    From 1000 s on it has whole seconds with thousands separators.
    """
    rounded = float(f"{seconds:.3g}")
    if rounded == 0:
        return "0 s"
    if abs(rounded) >= 1000:
        return f"{seconds:,.0f} s"
    unit, size = next(((unit, size) for unit, size in (("s", 1.0), ("ms", 1e-3)) if abs(rounded) >= size), ("µs", 1e-6))
    return f"{rounded / size:#.3g}".rstrip(".") + f" {unit}"


def format_count(count: float) -> str:
    """Write a large count with a decimal suffix: ``format_count(8.03e9) == "8.03 B"``."""
    for unit, size in (("T", 1e12), ("B", 1e9), ("M", 1e6), ("K", 1e3)):
        if abs(count) >= size:
            return f"{count / size:.2f} {unit}"
    return f"{count:,.0f}" if abs(count) >= 100 else f"{count:.3g}"
