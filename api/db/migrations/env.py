"""Alembic's environment; the connection comes from `api.db.engine.migrate`."""

from alembic import context

from api.db.rows import Row


def run() -> None:
    """Run the migrations on the connection that the caller gave."""
    context.configure(connection=context.config.attributes["connection"], target_metadata=Row.metadata)
    with context.begin_transaction():
        context.run_migrations()


run()
