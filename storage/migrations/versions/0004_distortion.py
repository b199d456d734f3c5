"""Positions say what their rule emits against the reference law; runs say it on average, and their further sets."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_RUNS = (
    ("allowed", sa.String),
    ("distortion_kl", sa.Double),
    ("distortion_tv", sa.Double),
    ("escaped_mass", sa.Double),
    ("overshoot", sa.Double),
    ("distortion_positions", sa.BigInteger),
    ("distortion_kl_undefined", sa.BigInteger),
    ("distortion_conditional", sa.BigInteger),
    ("distortion_s", sa.Double),
)
_POSITIONS = (
    ("kl", sa.Double),
    ("tv", sa.Double),
    ("escaped_mass", sa.Double),
    ("overshoot", sa.Double),
    ("conditional", sa.Boolean),
)
_TOP_TOKENS = (("residual", sa.Double), ("induced", sa.Double))


def upgrade() -> None:
    """Adds columns to ``runs``, ``rounds``, ``positions`` and ``top_tokens``; NULL: not measured."""
    for table, columns in (
        ("runs", _RUNS),
        ("rounds", (("distortion_s", sa.Double),)),
        ("positions", _POSITIONS),
        ("top_tokens", _TOP_TOKENS),
    ):
        for name, kind in columns:
            op.add_column(table, sa.Column(name, kind, nullable=True))
