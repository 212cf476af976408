"""Jobs that come to a front of plans instead of one plan."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Let jobs say what they come to; those that are there come to a plan."""
    with op.batch_alter_table("jobs") as table:
        table.add_column(sa.Column("kind", sa.String, nullable=False, server_default="plan"))


def downgrade() -> None:
    """Let all jobs come to plans."""
    with op.batch_alter_table("jobs") as table:
        table.drop_column("kind")
