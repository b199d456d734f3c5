"""The made-up database of the benchmarks is like one that the app writes."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.fill import fill
from core.records import Round
from storage.queries import Runs
from storage.store import Store


def test_a_filled_database_is_one_that_the_app_could_have_written(tmp_path: Path) -> None:
    path = tmp_path / "speclens.duckdb"
    made = fill(path, 60, 20_000)
    assert (made.rows["runs"], made.rows["candidates"] >= 20_000) == (60, True)
    with Store(path) as store:
        assert store.interrupted == ()
        stored = Runs(store)
        runs = stored.list(limit=None, sort="run_id", descending=False)
        assert [run.submitted_at for run in runs] == sorted(run.submitted_at for run in runs)
        assert {run.shape for run in runs} == {"none", "chain:5", "s3_k4_d13", "s5_k5_d26", "s6_k10_d61"}
        for run in runs[:5]:
            assert run.summary is not None
            rounds = stored.rounds(run.run_id)
            assert [one.index for one in rounds] == list(range(run.summary.rounds))
            assert sum(one.accepted for one in rounds) == run.summary.accepted
            for one in rounds:
                _sensible(one)
        with store.database.read() as connection:
            wrong = connection.exec_driver_sql(
                "SELECT count(*) FROM rounds WHERE drafted <> accepted + rejected + unreached + cut "
                "OR committed <> len(CAST(committed_tokens AS INTEGER[]))"
            )
            assert wrong.scalar() == 0


def _sensible(one: Round) -> None:
    """Checks that parents and depths agree, tested candidates have p and u, and positions have their top tokens."""
    assert len(one.committed) == len(one.committed_text) == len(one.positions) == one.accepted + 1
    for node in one.nodes:
        assert node.depth == (1 if node.parent == -1 else one.nodes[node.parent].depth + 1)
        assert (node.p is None) == (node.u is None) == (node.fate == "unreached")
        if node.fate == "accepted" and node.parent != -1:
            assert one.nodes[node.parent].fate == "accepted"
    assert all(len(position.top) == 20 for position in one.positions)
    assert json.dumps(one.committed)
