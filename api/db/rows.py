"""Rows of the database. They never leave this package's callers as they are: answers have types of their own."""

from datetime import UTC, datetime
from typing import Any, ClassVar, Literal

from sqlalchemy import JSON, DateTime, Dialect, ForeignKey, LargeBinary, String, TypeDecorator
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

JobState = Literal["queued", "running", "done", "failed", "cancelled"]
JobKind = Literal["plan", "front"]
"""What a job comes to: one plan, or a front of them."""


class UtcDateTime(TypeDecorator[datetime]):
    """Points in time: stored in UTC, given back with their time zone (SQLite forgets it)."""

    impl = DateTime
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        """Drop the time zone after turning to UTC."""
        return None if value is None else value.astimezone(UTC).replace(tzinfo=None)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        """Put the time zone back."""
        return None if value is None else value.replace(tzinfo=UTC)


class Row(DeclarativeBase):
    """The base of all rows."""

    type_annotation_map: ClassVar[dict[Any, Any]] = {
        datetime: UtcDateTime,
        dict[str, Any]: JSON,
        list[str]: JSON,
        str: String,
        bytes: LargeBinary,
    }


def now() -> datetime:
    """Return this moment in UTC."""
    return datetime.now(UTC)


class JobRow(Row):
    """One search that was asked for, and the `kind` of its answer, whose id is `plan_id`.

    `request_hash` is equal for equal requests, `defaults` says what was chosen where they left it open, and
    `notices` what was passed over in their model.
    """

    __tablename__ = "jobs"

    sequence: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    id: Mapped[str] = mapped_column(unique=True)
    request_hash: Mapped[str] = mapped_column(index=True)
    defaults: Mapped[dict[str, Any]]
    notices: Mapped[list[str]]
    kind: Mapped[str] = mapped_column(default="plan")
    state: Mapped[str] = mapped_column(index=True)
    progress: Mapped[dict[str, Any] | None]
    problem: Mapped[dict[str, Any] | None]
    plan_id: Mapped[str | None]
    created_at: Mapped[datetime] = mapped_column(default=now)
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]


class PlanRow(Row):
    """The answer of a job, a plan or a front, kept byte for byte, and what the list of plans shows of it.

    Jobs that differ in their search options alone can come to a plan of the same id.
    """

    __tablename__ = "plans"

    sequence: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    id: Mapped[str] = mapped_column(index=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), unique=True)
    content: Mapped[bytes]
    model: Mapped[str]
    cluster: Mapped[str]
    step_seconds: Mapped[float]
    runnable: Mapped[bool]
    created_at: Mapped[datetime] = mapped_column(default=now)


class ProfileRow(Row):
    """A profile under the hash of its content."""

    __tablename__ = "profiles"

    sequence: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    id: Mapped[str] = mapped_column(unique=True)
    content: Mapped[bytes]
    cluster: Mapped[str]
    num_devices: Mapped[int]
    measured_at: Mapped[str]
    created_at: Mapped[datetime] = mapped_column(default=now)


class IdempotencyRow(Row):
    """An Idempotency-Key, the hash of the body that came with it first, and the job that answers it."""

    __tablename__ = "idempotency_keys"

    key: Mapped[str] = mapped_column(primary_key=True)
    body_hash: Mapped[str]
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"))
    created_at: Mapped[datetime] = mapped_column(default=now)
