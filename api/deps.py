"""What routes ask for: the parts of the running service, and checks of a request, as annotated aliases."""

from typing import Annotated

from fastapi import Depends, Header, Query, Request

from api.db.engine import Database
from api.jobs.manager import Jobs
from api.prefer import wait_seconds
from api.settings import Settings


def _settings(request: Request) -> Settings:
    settings: Settings = request.app.state.settings
    return settings


def _database(request: Request) -> Database:
    database: Database = request.app.state.database
    return database


def _jobs(request: Request) -> Jobs:
    jobs: Jobs = request.app.state.jobs
    return jobs


SettingsDep = Annotated[Settings, Depends(_settings)]
DatabaseDep = Annotated[Database, Depends(_database)]
JobsDep = Annotated[Jobs, Depends(_jobs)]


def _wait(settings: SettingsDep, prefer: Annotated[str | None, Header(description="wait=N, in seconds")] = None) -> int:
    return wait_seconds(prefer, longest=settings.max_wait_seconds)


Wait = Annotated[int, Depends(_wait)]
IdempotencyKey = Annotated[
    str | None,
    Header(min_length=1, max_length=255, description="Requests with one key and one body have one job."),
]
Limit = Annotated[int, Query(ge=1, le=200, description="How many to list.")]
Before = Annotated[
    int | None,
    Query(ge=1, le=2**63 - 1, description="List those that are older than this one's number."),  # the database's int
]
