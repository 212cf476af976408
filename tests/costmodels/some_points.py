"""Parts of the package's table of measured runs, for tests that need real rows but not all of them."""

import csv
import io
from importlib.resources import files

TABLE = files("autoplan.readers").joinpath("measured", "points_fit.csv").read_text(encoding="utf-8")


def write_rows(path, keep, **changes):
    """Write the rows for which `keep(row)` holds, cells replaced by `changes`, and return the path."""
    reader = csv.DictReader(io.StringIO(TABLE))
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, reader.fieldnames, lineterminator="\n")
        writer.writeheader()
        writer.writerows({**row, **changes} for row in reader if keep(row))
    return path
