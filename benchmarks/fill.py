"""A database of made-up runs in the form that the app stores, filled by bulk Arrow inserts.

The data has the structure of real runs: run ids that sort by time, chains and trees of several budgets and plain runs,
whole rounds with tested positions and their twenty top tokens, texts, summaries, names, tags and notes. The numbers are
random, from one seed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from duckdb_sqlalchemy import insert_from_arrow
from sqlalchemy import Table

from core.records import Ended, Fingerprint, Started, Summary
from core.run_id import RunIds
from core.types import (
    ChainShape,
    NoDrafter,
    NoShape,
    PairSpec,
    PromptLookupDrafter,
    Request,
    RunSpec,
    ShapeSpec,
    SmallModelDrafter,
    Stops,
    TreeShape,
)
from storage.database import Database, arrow_schema, insert_rows
from storage.run_rows import ended_row, fingerprint_row, started_row, submitted_row
from storage.schema import candidates, fingerprints, positions, rounds, runs, tags, top_tokens
from storage.writer import LOG_BYTES

PLAIN_ROUNDS = 40
"""Rounds of a plain run; every fifth run is one."""

TOP = 20
"""Top tokens of a position, as many as the engine records."""

BATCH = 200
"""Runs in one transaction."""

SHAPES: tuple[tuple[ShapeSpec, int], ...] = (
    (ChainShape(gamma=5), 1),
    (TreeShape(steps=3, topk=4, nodes=13), 4),
    (TreeShape(steps=5, topk=5, nodes=26), 5),
    (TreeShape(steps=6, topk=10, nodes=61), 10),
)
"""Shapes of the other runs in turn, each with its number of siblings per position."""

FIRST = datetime(2025, 1, 1, tzinfo=UTC)
APART = timedelta(minutes=7)


@dataclass(frozen=True, slots=True)
class Filled:
    """Rows per table, and how long the fill took in seconds."""

    rows: dict[str, int]
    seconds: float


@dataclass(slots=True)
class _Batch:
    """Arrays of the parts of runs, gathered run by run."""

    numbers: np.random.Generator
    words: pa.Array
    parts: dict[Table, list[dict[str, Any]]] = field(
        default_factory=lambda: {table: [] for table in (rounds, candidates, positions, top_tokens)}
    )
    rows: dict[Table, list[tuple[Any, ...]]] = field(
        default_factory=lambda: {table: [] for table in (runs, fingerprints, tags)}
    )

    def add(self, table: Table, run_id: str, count: int, **arrays: Any) -> None:
        """Adds ``count`` rows of a run's part; each column is an array or one value for all rows."""
        self.parts[table].append({"run_id": run_id, "count": count, **arrays})

    def arrow(self, table: Table) -> pa.Table:
        """The gathered rows as one Arrow table, columns in the order of the schema."""
        gathered = self.parts[table]
        counts = [part["count"] for part in gathered]
        columns: list[pa.Array] = []
        for one in arrow_schema(table):
            if one.name == "run_id":
                names = pa.array([part["run_id"] for part in gathered])
                columns.append(names.take(pa.array(np.repeat(np.arange(len(gathered)), counts))))
                continue
            pieces = [part[one.name] for part in gathered]
            if isinstance(pieces[0], list):
                columns.append(pa.array([item for piece in pieces for item in piece], type=one.type))
                continue
            whole = np.concatenate([np.broadcast_to(piece, count) for piece, count in zip(pieces, counts, strict=True)])
            if one.name == "text":
                columns.append(self.words.take(pa.array(whole)))
            elif one.name == "fate":
                columns.append(pa.array(["accepted", "rejected", "unreached"]).take(pa.array(whole)))
            else:
                columns.append(pa.array(whole, type=one.type, from_pandas=True))  # NaN: NULL
        return pa.Table.from_arrays(columns, schema=arrow_schema(table))


def fill(
    path: Path, run_count: int, candidate_count: int, say: Callable[[str], object] = lambda _: None, seed: int = 7
) -> Filled:
    """Creates the database ``path`` with ``run_count`` ended runs and at least ``candidate_count`` candidates.

    Raises StorageUnavailable when the file cannot be opened or the disk is full.
    """
    begun = time.perf_counter()
    numbers = np.random.default_rng(seed)
    words = pa.array([" " + "".join(numbers.choice(list("etaoinshrdlu"), size=1 + at % 9)) for at in range(8000)])
    clock = iter(range(run_count))
    ids = RunIds(clock_ms=lambda: int((FIRST + next(clock) * APART).timestamp() * 1000))
    speculative = max(1, run_count - -(-run_count // (len(SHAPES) + 1)))
    budget = -(-candidate_count // speculative)
    total: dict[str, int] = {}
    database = Database(path)
    try:
        for first in range(0, run_count, BATCH):
            batch = _Batch(numbers, words)
            for number in range(first, min(first + BATCH, run_count)):
                _run(batch, number, ids.next(), budget)
            with database.write() as connection:
                for table, content in batch.rows.items():
                    insert_rows(connection, table, content)
                    total[table.name] = total.get(table.name, 0) + len(content)
                for table in batch.parts:
                    made = batch.arrow(table)
                    insert_from_arrow(connection, table, made)
                    total[table.name] = total.get(table.name, 0) + made.num_rows
            if database.log_bytes > LOG_BYTES:
                database.checkpoint()
            say(f"{total['runs']:,} runs, {total['candidates']:,} candidates, {time.perf_counter() - begun:.0f} s")
        database.checkpoint()
    finally:
        database.close()
    return Filled(total, time.perf_counter() - begun)


def _run(batch: _Batch, number: int, run_id: str, budget: int) -> None:
    kind = number % (len(SHAPES) + 1)
    if kind == len(SHAPES):
        shape, siblings, made = NoShape(), 1, PLAIN_ROUNDS
    else:
        shape, siblings = SHAPES[kind]
        made = -(-budget // shape.drafted)
    accepted = _rounds(batch, run_id, shape.drafted, siblings, shape.depth, made)
    _row(batch, number, run_id, shape, accepted)


def _rounds(batch: _Batch, run_id: str, drafted: int, siblings: int, depth: int, made: int) -> np.ndarray:
    """Adds the rounds of a run and their parts; returns the number of accepted tokens of each round."""
    draw = batch.numbers
    accepted = np.minimum(draw.geometric(0.4, made) - 1, depth)
    round_index = np.repeat(np.arange(made), drafted)
    node = np.tile(np.arange(drafted), made)
    level = node // siblings
    taken = accepted[round_index]
    fate = np.where(level > taken, 2, np.where((level < taken) & (node % siblings == 0), 0, 1))
    tested = fate != 2
    p, q, u = draw.random((3, made * drafted))
    token = draw.integers(0, len(batch.words), made * drafted)
    if drafted:
        batch.add(
            candidates,
            run_id,
            made * drafted,
            round_index=round_index,
            node=node,
            token=token,
            text=token,
            parent=np.where(level == 0, -1, (level - 1) * siblings),
            depth=level + 1,
            fate=fate,
            p=np.where(tested, p, np.nan),
            q=q,
            score=q,
            accept_prob=np.where(tested, np.minimum(1, p / q), np.nan),
            u=np.where(tested, u, np.nan),
            near_threshold=False,
            redraw_fallback=False,
        )
    committed = draw.integers(0, len(batch.words), (made, depth + 1))
    words = batch.words
    batch.add(
        rounds,
        run_id,
        made,
        round_index=np.arange(made),
        request=0,
        source=["correction" if count < depth else "bonus" for count in accepted],
        drafted=drafted,
        accepted=accepted,
        rejected=np.bincount(round_index[fate == 1], minlength=made),
        unreached=np.bincount(round_index[fate == 2], minlength=made),
        cut=0,
        depth_offered=depth,
        committed=accepted + 1,
        committed_tokens=[
            json.dumps(row[: count + 1].tolist()) for row, count in zip(committed, accepted, strict=True)
        ],
        committed_texts=[
            json.dumps([words[int(one)].as_py() for one in row[: count + 1]])
            for row, count in zip(committed, accepted, strict=True)
        ],
        draft_s=draw.random(made) / 100,
        verify_s=draw.random(made) / 10,
        state_s=draw.random(made) / 1000,
        other_s=draw.random(made) / 1000,
        wall_s=draw.random(made) / 10,
        ended_at_s=np.arange(1, made + 1) / 10,
        distortion_s=draw.random(made) / 1000,
    )
    at_round = np.repeat(np.arange(made), accepted + 1)
    place = np.arange(len(at_round)) - np.repeat(np.cumsum(accepted + 1) - accepted - 1, accepted + 1)
    rest = draw.random((2, len(at_round)))
    batch.add(
        positions,
        run_id,
        len(at_round),
        round_index=at_round,
        position=place,
        node=np.where(place == 0, -1, (place - 1) * siblings),
        p_rest=rest[0],
        q_rest=rest[1],
        kl=rest[0],
        tv=rest[1],
        escaped_mass=0.0,
        overshoot=rest[0],
        conditional=False,
    )
    top = len(at_round) * TOP
    token = draw.integers(0, len(words), top)
    p, q = draw.random((2, top))
    batch.add(
        top_tokens,
        run_id,
        top,
        round_index=np.repeat(at_round, TOP),
        position=np.repeat(place, TOP),
        rank=np.tile(np.arange(TOP), len(at_round)),
        token=token,
        text=token,
        p=p,
        q=q,
        residual=p,
        induced=q,
    )
    return accepted


def _row(batch: _Batch, number: int, run_id: str, shape: ShapeSpec, accepted: np.ndarray) -> None:
    draw = batch.numbers
    plain = isinstance(shape, NoShape)
    said = "".join(batch.words.take(pa.array(draw.integers(0, len(batch.words), 60))).to_pylist())
    asked = RunSpec(
        pair=PairSpec(name=("embedded", "small+smaller", "large+small")[number % 3]),
        request=Request(
            prompt=f"Question {number % 500}: what is{said[:200]}?",
            stops=Stops(max_new_tokens=256),
            drafter=NoDrafter() if plain else (PromptLookupDrafter(), SmallModelDrafter())[number % 2],
            shape=shape,
            seed=number,
        ),
    )
    begun = FIRST + number * APART
    made, tokens = len(accepted), int(accepted.sum()) + len(accepted)
    text = "".join(batch.words.take(pa.array(draw.integers(0, len(batch.words), tokens))).to_pylist())
    ended = Ended(0, ("eos", "max_new_tokens", "cancelled")[number % 3], text, made / 10, 2**30, "process_rss")
    summary = replace(
        SUMMARY,
        output_tokens=tokens,
        rounds=made,
        drafted=shape.drafted * made,
        accepted=int(accepted.sum()),
        text=text,
        tokens_per_round=tokens / made,
        tokens_per_second=float(draw.random() * 100),
        e2e_s=made / 10,
    )
    row = (
        submitted_row(run_id, asked, f"session {number // 50}", begun)
        | started_row(Started(0, 40, 0.3), begun + timedelta(seconds=1))
        | ended_row(ended, summary, begun + timedelta(seconds=1 + made / 10), 0)
        | {"name": f"Trial {number}" if number % 10 == 0 else None}
        | {"note": f"Looks odd after round {number % 40}." if number % 20 == 0 else None}
    )
    batch.rows[runs].append(tuple(row.get(column.name) for column in runs.c))
    environment = replace(FINGERPRINT, prompt_hash=f"{number % 500:064x}", seed=number)
    values = fingerprint_row(run_id, environment)
    batch.rows[fingerprints].append(tuple(values[column.name] for column in fingerprints.c))
    if number % 5 == 0:
        batch.rows[tags] += [(run_id, f"tag {number % 15}"), (run_id, f"week {number // 1440}")]


_VALUES: dict[str, Any] = {entry.name: 0.25 if "float" in str(entry.type) else 7 for entry in fields(Summary)} | {
    "acceptance_unconditional": (0.8, 0.6, 0.5, 0.4, 0.3),
    "acceptance_conditional": (0.8, 0.75, 0.8, 0.8, 0.75),
    "text": "",
    "stop_reason": "eos",
    "peak_memory_kind": "process_rss",
}

SUMMARY = Summary(**_VALUES)

FINGERPRINT = Fingerprint(
    target="target",
    target_hash="0" * 64,
    draft="draft",
    draft_hash="1" * 64,
    precision="float32",
    tokenizer_hash="2" * 64,
    template_hash="3" * 64,
    sampling="temperature=1.0",
    reference_law="processed target",
    stops="max_new_tokens=256",
    cache_policy="slots",
    drafting="model lossless",
    device="cpu",
    versions={"torch": "2.13.0", "transformers": "5.24.0"},
    seed=0,
    prompt_hash="",
)
