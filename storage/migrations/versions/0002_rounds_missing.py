"""Runs say how many of their rounds could not be kept while the disk was full."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Adds ``runs.rounds_missing``; NULL means that it is unknown (runs stored under the first schema)."""
    op.add_column("runs", sa.Column("rounds_missing", sa.BigInteger, nullable=True))
