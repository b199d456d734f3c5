"""Fingerprints say which tokens the model read, which end a run, and how many requests were decoded together."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Adds columns to ``fingerprints``; NULL: the run was stored before they were recorded."""
    for name, kind in (("prompt_ids_hash", sa.String), ("end_tokens", sa.String), ("batch", sa.BigInteger)):
        op.add_column("fingerprints", sa.Column(name, kind, nullable=True))
