"""Jobs, plans, profiles and idempotency keys."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "jobs",
        sa.Column("sequence", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("id", sa.String, nullable=False, unique=True),
        sa.Column("request_hash", sa.String, nullable=False, index=True),
        sa.Column("defaults", sa.JSON, nullable=False),
        sa.Column("notices", sa.JSON, nullable=False),
        sa.Column("state", sa.String, nullable=False, index=True),
        sa.Column("progress", sa.JSON),
        sa.Column("problem", sa.JSON),
        sa.Column("plan_id", sa.String),
        sa.Column("created_at", sa.DateTime, nullable=False),
        sa.Column("started_at", sa.DateTime),
        sa.Column("finished_at", sa.DateTime),
    )
    op.create_table(
        "plans",
        sa.Column("sequence", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("id", sa.String, nullable=False, index=True),
        sa.Column("job_id", sa.String, sa.ForeignKey("jobs.id"), nullable=False, unique=True),
        sa.Column("content", sa.LargeBinary, nullable=False),
        sa.Column("model", sa.String, nullable=False),
        sa.Column("cluster", sa.String, nullable=False),
        sa.Column("step_seconds", sa.Double, nullable=False),
        sa.Column("runnable", sa.Boolean, nullable=False),
        sa.Column("created_at", sa.DateTime, nullable=False),
    )
    op.create_table(
        "profiles",
        sa.Column("sequence", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("id", sa.String, nullable=False, unique=True),
        sa.Column("content", sa.LargeBinary, nullable=False),
        sa.Column("cluster", sa.String, nullable=False),
        sa.Column("num_devices", sa.Integer, nullable=False),
        sa.Column("measured_at", sa.String, nullable=False),
        sa.Column("created_at", sa.DateTime, nullable=False),
    )
    op.create_table(
        "idempotency_keys",
        sa.Column("key", sa.String, primary_key=True),
        sa.Column("body_hash", sa.String, nullable=False),
        sa.Column("job_id", sa.String, sa.ForeignKey("jobs.id"), nullable=False),
        sa.Column("created_at", sa.DateTime, nullable=False),
    )


def downgrade() -> None:
    """Drop the tables."""
    for table in ("idempotency_keys", "profiles", "plans", "jobs"):
        op.drop_table(table)
