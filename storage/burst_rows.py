"""What a run emitted, read without its candidates: a comparison of long runs needs nothing else of their rounds."""

from __future__ import annotations

import json

from sqlalchemy import Connection, select

from core.results.traces import Burst
from storage.schema import rounds
from storage.values import required


def read_bursts(connection: Connection, run_id: str) -> list[Burst]:
    """The run's bursts by round; rounds that committed nothing are left out."""
    wanted = (rounds.c.round_index, rounds.c.committed_tokens, rounds.c.committed_texts, rounds.c.ended_at_s)
    query = select(*wanted).where(rounds.c.run_id == run_id, rounds.c.committed > 0).order_by(rounds.c.round_index)
    return [
        Burst(index, tuple(json.loads(tokens)), tuple(json.loads(texts)), required(ended_at_s))
        for index, tokens, texts, ended_at_s in connection.execute(query).all()
    ]
