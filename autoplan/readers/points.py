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
from autoplan.readers.run_stacks import NARROW
from autoplan.readers.runs import Problems, Run, read_run
from autoplan.readers.table import Row, parse_table
from autoplan.spec import Configuration, LatentAttention, Mamba2, Moe, Problem

USES = ("accuracy", "ranking-only", "memory-only", "feasibility", "exclude")
STATUSES = ("ok", "oom", "error")
MEMORY_KINDS = ("allocated", "reserved", "analytic")
SMALLEST_MEASURED, LARGEST_MEASURED = 1e-6, 1e9
LONG_SEQUENCE = 16_384


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One published run.

    Either `problem` and `configuration` are given, or `skipped_reason` says why the run cannot be modelled.
    `assumptions` are the settings that the table leaves blank. Where a blank setting has several likely values,
    `open` names it and `alternatives` are all candidates, the likeliest first, which is `configuration`; runs whose
    settings are all known have one. `use`, `status` and `peak_memory_kind` are empty where the table is blank,
    `step_seconds` and `peak_memory_gib` None. `arch` and `precision` are the table's own words, `features` are for
    reports. `group` holds the runs whose times are comparable. Points of one model, cluster, workload and stack share
    one `problem` object.
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
    arch: str = ""
    precision: str = ""
    features: tuple[str, ...] = ()
    open: tuple[str, ...] = ()
    alternatives: tuple[Configuration, ...] = ()
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
        step_seconds=_measured(row, "step_time_s"),
        peak_memory_gib=_measured(row, "peak_mem_gib"),
        peak_memory_kind=row.choice("peak_mem_kind", MEMORY_KINDS),
        problem=run.problem if run else None,
        configuration=run.configurations[0] if run else None,
        arch=row.text("arch"),
        precision=row.text("precision"),
        features=_features(run.problem, run.configurations[0]) if run else (),
        open=run.open if run else (),
        alternatives=run.configurations if run else (),
        assumptions=run.assumptions if run else (),
        skipped_reason=reason,
    )


def _measured(row: Row, column: str) -> float | None:
    """Return a measured figure; blank and 0 are none."""
    figure = row.number(column) or None
    if figure is not None and not SMALLEST_MEASURED <= figure <= LARGEST_MEASURED:
        raise row.problem(column, f"{row.text(column)!r} is not between {SMALLEST_MEASURED:g} and {LARGEST_MEASURED:g}")
    return figure


def _read_run(row: Row, problems: Problems, *, use: str) -> tuple[Run | None, str | None]:
    if use == "exclude":
        return None, "excluded: " + (row.text("exclude_reason") or "no reason given")
    try:
        return read_run(row, problems), None
    except CannotModel as problem:
        return None, str(problem)


def _features(problem: Problem, c: Configuration) -> tuple[str, ...]:
    """Return what makes a run special, for tables of errors."""
    present = {
        "moe": any(isinstance(block.feed_forward, Moe) for block in problem.model.blocks),
        "latent attention": any(isinstance(block.mixer, LatentAttention) for block in problem.model.blocks),
        "mamba": any(isinstance(block.mixer, Mamba2) for block in problem.model.blocks),
        "long sequence": problem.workload.seq_len >= LONG_SEQUENCE,
        "tensor parallel": c.tp > 1,
        "pipeline": c.pp > 1,
        "interleaved": c.virtual_stages > 1,
        "context parallel": c.cp > 1,
        "expert parallel": c.ep > 1,
        "zero 3": c.zero_stage == 3,
        "narrow precision": problem.workload.precision in NARROW,
        "recompute": c.recompute != "none",
    }
    return tuple(name for name, holds in present.items() if holds)
