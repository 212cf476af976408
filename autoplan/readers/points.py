"""Published training runs as problems and configurations, with what was measured.

`read_points()` reads the table that comes with the package; another file may have the same columns.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from autoplan.errors import DataError
from autoplan.readers.documents import read_text
from autoplan.readers.notices import notice
from autoplan.readers.run_cells import LARGEST_MEASURED, SMALLEST_MEASURED, tidy
from autoplan.readers.run_models import CannotModel
from autoplan.readers.run_stacks import NARROW
from autoplan.readers.runs import Problems, Run, read_run
from autoplan.readers.table import Row, parse_table
from autoplan.spec import Configuration, LatentAttention, Mamba2, Moe, Problem

LONG_SEQUENCE = 16_384
MOST_NAMED, MOST_SHOWN = 3, 60
GROUPED = ("source", "model_name", "n_layers", "hidden", "gpu", "n_gpus", "seq_len", "global_batch")


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One published run.

    Either `problem` and `configuration` are given, or `skipped_reason` says why the run cannot be modelled.
    `assumptions` are the settings that the table leaves blank or words otherwise. Where a blank setting has several
    likely values, `open` names it and `alternatives` are all candidates, the likeliest first, which is
    `configuration`; runs whose settings are all known have one. `use`, `status` and `peak_memory_kind` are empty where
    the table is blank, `step_seconds` and `peak_memory_gib` None. `arch` and `precision` are the table's own words,
    `features` are for reports. `group` holds the runs whose times are comparable. Points of one model, cluster,
    workload and stack share one `problem` object.
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

    Columns that are missing read as blank, columns that are unknown are named in a warning (ReaderWarning), as are ids
    that several rows have. A row with a setting that cannot be is skipped with its reason. Raises DataError for a file
    that is no table of runs.
    """
    own = files("autoplan.readers").joinpath("measured", "points_fit.csv").read_text(encoding="utf-8")
    text, where = (own, "points_fit.csv") if path is None else (read_text(Path(path), error=DataError), str(path))
    table = parse_table(text, where=where)
    if "id" not in table.columns:
        first = text.partition("\n")[0][:MOST_SHOWN].strip()
        raise DataError(f"there is no column 'id'; columns are parted by commas, the header is {first!r}", where=where)
    if not table.rows:
        raise DataError("a header and no runs", where=where)
    _warn_of_columns(table.columns, own.partition("\n")[0].strip().split(","), where=where)
    _warn_of_ids(table.rows, where=where)
    problems: Problems = {}
    return tuple(_read_point(row, problems) for row in table.rows)


def _warn_of_columns(columns: Sequence[str], known: Sequence[str], *, where: str) -> None:
    unknown = [name for name in columns if name not in known]
    if unknown:
        notice(f"unknown columns are ignored: {', '.join(unknown)}", where=where)


def _warn_of_ids(rows: Sequence[Row], *, where: str) -> None:
    repeated = [name for name, count in Counter(row.text("id") for row in rows).items() if count > 1]
    if repeated:
        more = f" and {len(repeated) - MOST_NAMED} more" if len(repeated) > MOST_NAMED else ""
        named = ", ".join(repr(name) for name in repeated[:MOST_NAMED])
        notice(f"several rows have the id {named}{more}; each is a run of its own", where=where)


def _read_point(row: Row, problems: Problems) -> Point:
    notes: list[str] = []
    tidied = tidy(row, notes)
    run, reason = _read_run(tidied, problems)
    step_seconds = tidied.number("step_time_s")
    if step_seconds is None and run is not None:
        step_seconds = _seconds_of_rate(tidied, run.problem, notes)
    return Point(
        id=row.text("id"),
        line=row.line,
        source=row.text("source"),
        group=row.text("group") or _group(tidied),
        gpu=row.text("gpu"),
        use=tidied.text("use"),
        status=tidied.text("status"),
        step_seconds=step_seconds,
        peak_memory_gib=tidied.number("peak_mem_gib"),
        peak_memory_kind=tidied.text("peak_mem_kind"),
        problem=run.problem if run else None,
        configuration=run.configurations[0] if run else None,
        arch=row.text("arch"),
        precision=row.text("precision"),
        features=_features(run.problem, run.configurations[0]) if run else (),
        open=run.open if run else (),
        alternatives=run.configurations if run else (),
        assumptions=(*notes, *run.assumptions) if run else tuple(notes),
        skipped_reason=reason,
    )


def _group(row: Row) -> str:
    """Return the name of the runs that a row can be compared with where the table gives none."""
    return "/".join(row.text(column) for column in GROUPED)


def _seconds_of_rate(row: Row, problem: Problem, notes: list[str]) -> float | None:
    """Return the step time that the tokens per second and device make; none of a run that failed."""
    tokens_per_second, workload = row.number("tokens_per_s_per_gpu"), problem.workload
    if not tokens_per_second or row.text("status") not in ("", "ok"):
        return None
    tokens = (row.count("global_batch") or workload.global_batch) * workload.seq_len
    seconds = tokens / (problem.cluster.num_devices * tokens_per_second)
    if not SMALLEST_MEASURED <= seconds <= LARGEST_MEASURED:
        return None
    notes.append(f"step_time_s {seconds:.6g} from tokens_per_s_per_gpu")
    return seconds


def _read_run(row: Row, problems: Problems) -> tuple[Run | None, str | None]:
    """Return the run of a tidy row, or why there is none."""
    if row.text("use") == "exclude":
        return None, "excluded: " + (row.text("exclude_reason") or "no reason given")
    if row.flaw:
        return None, row.flaw
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
