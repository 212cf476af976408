"""The app: settings in, routes out. Importing this module starts nothing."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from api.body_limit import BodyLimit
from api.db.engine import Database
from api.handlers import add_handlers
from api.jobs.manager import Jobs
from api.openapi import Service, operation_id, problems
from api.request_log import RequestLog
from api.routes import clusters, estimate, health, jobs, models, plan, plans, profiles
from api.settings import Settings
from autoplan import __version__


def create_app(settings: Settings) -> FastAPI:
    """Return the service for `settings`, with its database open; the app's shutdown closes it.

    Raises InputError when the database cannot be opened.
    """
    database = Database.open(settings.database_url)
    running = Jobs(database, workers=settings.workers, max_queued=settings.max_queued)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        try:
            async with running.running():
                yield
        finally:
            database.close()

    app = Service(
        title="autoplan",
        version=__version__,
        description="Describe a model and a cluster, get the fastest training plan that fits.",
        lifespan=lifespan,
        responses=problems(500),
        generate_unique_id_function=operation_id,
        redirect_slashes=False,
        docs_url=None,
        redoc_url=None,
    )
    app.state.settings, app.state.database, app.state.jobs = settings, database, running
    add_handlers(app)
    app.add_middleware(BodyLimit, max_bytes=settings.max_body_bytes)
    app.add_middleware(RequestLog)
    for part in (plan, jobs, plans, estimate, profiles, models, clusters, health):
        app.include_router(part.router)
    return app
