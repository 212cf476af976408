"""Published training runs as problems and configurations, with what was measured.

`read_points()` reads the table that comes with the package; another file may have the same columns.
"""

from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from autoplan.errors import DataError
from autoplan.readers.documents import read_text
from autoplan.readers.notices import notice
from autoplan.readers.run_models import CannotModel
from autoplan.readers.runs import Problems, Run, read_run
from autoplan.readers.table import Row, parse_table
from autoplan.spec import Configuration, Problem

USES = ("accuracy", "ranking-only", "memory-only", "feasibility", "exclude")
STATUSES = ("ok", "oom", "error")
MEMORY_KINDS = ("allocated", "reserved", "analytic")


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One published run.

    Either `problem` and `configuration` are given, or `skipped_reason` says why the run cannot be modelled.
    `assumptions` are the settings that the table leaves blank. `use`, `status` and `peak_memory_kind` are
    empty where the table is blank, `step_seconds` and `peak_memory_gib` None. `group` holds the runs whose
    times are comparable. Points of one model, cluster and workload share one `problem` object.
    """

    id: str
    line: int
    source: str
    group: str
    gpu: str
    use: str
    status: str
    step_seconds: float | None
    peak_memory_gib: float | None
    peak_memory_kind: str
    problem: Problem | None = None
    configuration: Configuration | None = None
    assumptions: tuple[str, ...] = ()
    skipped_reason: str | None = None

    @property
    def excluded(self) -> bool:
        """Whether the table itself says to leave the row out."""
        return self.use == "exclude"


def read_points(path: str | Path | None = None) -> tuple[Point, ...]:
    """Return the runs of a CSV file, of the package's own when `path` is None; blank means unknown.

    Columns that are missing read as blank, columns that are unknown are named in a warning (ReaderWarning).
    Raises DataError that names file, line and column for a number, flag or word that is none.
    """
    own = files("autoplan.readers").joinpath("measured", "points_fit.csv").read_text(encoding="utf-8")
    text, where = (own, "points_fit.csv") if path is None else (read_text(Path(path), error=DataError), str(path))
    table = parse_table(text, where=where)
    if "id" not in table.columns:
        raise DataError("there is no column 'id'", where=where)
    known = own.partition("\n")[0].strip().split(",")
    unknown = [name for name in table.columns if name not in known]
    if unknown:
        notice(f"unknown columns are ignored: {', '.join(unknown)}", where=where)
    problems: Problems = {}
    return tuple(_read_point(row, problems) for row in table.rows)


def _read_point(row: Row, problems: Problems) -> Point:
    use = row.choice("use", USES)
    run, reason = _read_run(row, problems, use=use)
    return Point(
        id=row.text("id"),
        line=row.line,
        source=row.text("source"),
        group=row.text("group"),
        gpu=row.text("gpu"),
        use=use,
        status=row.choice("status", STATUSES),
        step_seconds=row.number("step_time_s") or None,
        peak_memory_gib=row.number("peak_mem_gib") or None,
        peak_memory_kind=row.choice("peak_mem_kind", MEMORY_KINDS),
        problem=run.problem if run else None,
        configuration=run.configuration if run else None,
        assumptions=run.assumptions if run else (),
        skipped_reason=reason,
    )


def _read_run(row: Row, problems: Problems, *, use: str) -> tuple[Run | None, str | None]:
    if use == "exclude":
        return None, "excluded: " + (row.text("exclude_reason") or "no reason given")
    try:
        return read_run(row, problems), None
    except CannotModel as problem:
        return None, str(problem)
