"""Runs get a name, a note and tags; candidates say when a redraw fell back to the target's distribution."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Adds ``runs.name``, ``runs.note``, the table ``tags`` and ``candidates.redraw_fallback`` (NULL: not recorded)."""
    op.add_column("runs", sa.Column("name", sa.String, nullable=True))
    op.add_column("runs", sa.Column("note", sa.String, nullable=True))
    op.create_table(
        "tags",
        sa.Column("run_id", sa.String, nullable=False),
        sa.Column("tag", sa.String, nullable=False),
    )
    op.add_column("candidates", sa.Column("redraw_fallback", sa.Boolean, nullable=True))
