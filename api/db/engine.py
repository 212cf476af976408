"""The database of one service: opened, locked and migrated at start."""

import asyncio
import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from alembic import command
from alembic.config import Config
from sqlalchemy import Engine, create_engine, event, make_url
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from autoplan.errors import InputError

WHERE = "AUTOPLAN_DATABASE_URL"
BUSY_SECONDS = 30

P = ParamSpec("P")
T = TypeVar("T")


class Database:
    """A migrated database; every call is one transaction."""

    def __init__(self, engine: Engine, lock: int | None) -> None:
        self._engine = engine
        self._lock = lock

    @classmethod
    def open(cls, url: str) -> "Database":
        """Open (and create or migrate) the database at `url`.

        A SQLite file serves one service at a time: at start it ends the searches that it finds running, and
        they must not be another's. Raises InputError when the URL cannot be used, or another service has it.
        """
        path = _sqlite_path(url)
        lock = None if path is None else _lock_file(path)
        try:
            engine = create_engine(url)
            if engine.dialect.name == "sqlite":
                event.listen(engine, "connect", _prepare_sqlite)
            migrate(engine)
        except (SQLAlchemyError, ImportError) as problem:
            if lock is not None:
                os.close(lock)
            raise InputError(f"the database cannot be opened: {_first_line(problem)}", where=WHERE) from None
        return cls(engine, lock)

    def close(self) -> None:
        """Close every connection and let go of the file."""
        self._engine.dispose()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def call(self, function: Callable[Concatenate[Session, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call `function` with a session of one transaction, committed when it returns."""
        with Session(self._engine, expire_on_commit=False) as session, session.begin():
            return function(session, *args, **kwargs)

    async def acall(self, function: Callable[Concatenate[Session, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Do `call` in a thread, so that the event loop goes on."""
        return await asyncio.to_thread(lambda: self.call(function, *args, **kwargs))


def migrate(engine: Engine) -> None:
    """Bring the schema to the newest version."""
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "head")


def _sqlite_path(url: str) -> Path | None:
    try:
        parsed = make_url(url)
    except SQLAlchemyError as problem:
        raise InputError(_first_line(problem), where=WHERE) from None
    if parsed.get_backend_name() != "sqlite" or parsed.database in (None, "", ":memory:"):
        return None
    return Path(str(parsed.database))


def _lock_file(path: Path) -> int:
    if path.is_dir():
        raise InputError(f"{path} is a folder", where=WHERE)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as problem:
        raise InputError(f"{problem.filename}: {problem.strerror}", where=WHERE) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise InputError(f"{path} is in use by another service", where=WHERE) from None
    return lock


def _prepare_sqlite(connection: Any, _record: Any) -> None:
    cursor = connection.cursor()
    for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON", f"busy_timeout={BUSY_SECONDS * 1000}"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _first_line(problem: Exception) -> str:
    return str(problem).splitlines()[0]
