from concurrent.futures import ThreadPoolExecutor

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import create_engine, text

from api.db.engine import Database, migrate
from api.db.rows import Row
from autoplan.errors import InputError


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/deep/er/autoplan.db"


@pytest.fixture
def database(url):
    database = Database.open(url)
    yield database
    database.close()


def test_the_migrations_make_the_tables_that_the_rows_describe(tmp_path):
    engine = create_engine(f"sqlite:///{tmp_path}/x.db")
    migrate(engine)
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), Row.metadata) == []
    engine.dispose()


def test_a_database_can_be_opened_again_once_it_is_closed(url):
    for _ in range(2):
        Database.open(url).close()


def test_one_service_at_a_time(url, database):
    with pytest.raises(InputError, match="another service"):
        Database.open(url)


def test_it_writes_ahead_and_keeps_references(database):
    def pragmas(session):
        return [session.scalar(text(f"PRAGMA {name}")) for name in ("journal_mode", "foreign_keys")]

    assert database.call(pragmas) == ["wal", 1]


def test_a_failed_call_leaves_nothing(database):
    database.call(lambda session: session.execute(text("CREATE TABLE half (a)")))

    def fail(session):
        session.execute(text("INSERT INTO half VALUES (1)"))
        raise RuntimeError

    with pytest.raises(RuntimeError):
        database.call(fail)
    assert database.call(lambda session: session.scalar(text("SELECT count(*) FROM half"))) == 0


def test_writers_wait_for_each_other(database):
    database.call(lambda session: session.execute(text("CREATE TABLE counter (n)")))
    database.call(lambda session: session.execute(text("INSERT INTO counter VALUES (0)")))

    def add(_):
        database.call(lambda session: session.execute(text("UPDATE counter SET n = n + 1")))

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(add, range(64)))
    assert database.call(lambda session: session.scalar(text("SELECT n FROM counter"))) == 64


@pytest.mark.parametrize("url", ["nonsense", "nothing://x", "sqlite:////proc/nothing/x.db", "sqlite:////tmp"])
def test_a_url_that_cannot_be_used_names_its_setting(url):
    with pytest.raises(InputError) as caught:
        Database.open(url)
    assert caught.value.where == "AUTOPLAN_DATABASE_URL"


def test_a_file_that_is_no_database_is_an_input_error(tmp_path):
    path = tmp_path / "x.db"
    path.write_text("no database " * 100)
    with pytest.raises(InputError, match="not a database"):
        Database.open(f"sqlite:///{path}")
    assert path.read_text() == "no database " * 100
