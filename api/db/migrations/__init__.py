"""Migrations of the database, run at start: Alembic's environment and one file per change of the schema."""
