"""Rounds as rows of four tables, and read back equal to what was written, lone surrogates in texts apart."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import Connection, Table, select

from core.records import Distortion, Node, Position, Round, TopToken
from core.results.traces import Burst
from storage.database import insert_rows
from storage.schema import candidates, positions, rounds, top_tokens
from storage.values import ids_json, integer, number, required, text, texts_json

RowValues = tuple[Any, ...]
"""Values of a row in the order of its table's columns (``storage/schema.py``)."""


def insert_rounds(connection: Connection, batches: Iterable[tuple[str, Sequence[Round]]]) -> None:
    """Appends whole rounds, in batches of one run each, as one Arrow insert per table."""
    rows: dict[Table, list[RowValues]] = {rounds: [], candidates: [], positions: [], top_tokens: []}
    for run_id, batch in batches:
        for one in batch:
            index = integer(one.index)
            rows[rounds].append((run_id, index, *_round_values(one)))
            rows[candidates] += [(run_id, index, place, *_node_values(node)) for place, node in enumerate(one.nodes)]
            for place, position in enumerate(one.positions):
                rows[positions].append((run_id, index, place, *_position_values(position)))
                rows[top_tokens] += [
                    (run_id, index, place, rank, *_top_values(top)) for rank, top in enumerate(position.top)
                ]
    for table, content in rows.items():
        insert_rows(connection, table, content)


def _round_values(one: Round) -> RowValues:
    return (
        integer(one.request),
        text(one.source),
        one.drafted,
        one.accepted,
        one.count("rejected"),
        one.count("unreached"),
        one.count("cut"),
        integer(one.depth_offered),
        len(one.committed),
        ids_json(one.committed),
        texts_json(one.committed_text),
        number(one.draft_s),
        number(one.verify_s),
        number(one.state_s),
        number(one.other_s),
        number(one.wall_s),
        number(one.ended_at_s),
        number(one.distortion_s),
    )


def _node_values(node: Node) -> RowValues:
    return (
        integer(node.token),
        text(node.text),
        integer(node.parent),
        integer(node.depth),
        text(node.fate),
        number(node.p),
        number(node.q),
        number(node.score),
        number(node.accept_prob),
        number(node.u),
        bool(node.near_threshold),
        bool(node.redraw_fallback),
    )


def _position_values(position: Position) -> RowValues:
    found = position.distortion
    cells = (integer(position.node), number(position.p_rest), number(position.q_rest))
    if found is None:
        return (*cells, None, None, None, None, None)
    measured = (number(found.kl), number(found.tv), number(found.escaped_mass), number(found.overshoot))
    return (*cells, *measured, bool(found.conditional))


def _top_values(top: TopToken) -> RowValues:
    values = (number(value) for value in (top.p, top.q, top.residual, top.induced))
    return (integer(top.token), text(top.text), *values)


def read_rounds(connection: Connection, run_id: str, start: int = 0, limit: int | None = None) -> list[Round]:
    """The run's rounds from index ``start`` on, at most ``limit``, in order of index."""
    stop = None if limit is None else start + limit

    def rows(table: Table, *order: str) -> Iterable[Any]:
        query = select(table).where(table.c.run_id == run_id, table.c.round_index >= start)
        if stop is not None:
            query = query.where(table.c.round_index < stop)
        return connection.execute(query.order_by(*(table.c[name] for name in ("round_index", *order)))).all()

    tops: dict[tuple[int, int], list[TopToken]] = defaultdict(list)
    for row in rows(top_tokens, "position", "rank"):
        top = TopToken(row.token, row.text, required(row.p), row.q, row.residual, row.induced)
        tops[row.round_index, row.position].append(top)
    tables: dict[int, list[Position]] = defaultdict(list)
    for row in rows(positions, "position"):
        top = tuple(tops[row.round_index, row.position])
        tables[row.round_index].append(Position(row.node, top, required(row.p_rest), row.q_rest, _distortion(row)))
    nodes: dict[int, list[Node]] = defaultdict(list)
    for row in rows(candidates, "node"):
        nodes[row.round_index].append(_node(row))
    return [_round(row, nodes[row.round_index], tables[row.round_index]) for row in rows(rounds)]


def read_bursts(connection: Connection, run_id: str) -> list[Burst]:
    """What each round of a run committed and when, without candidates and positions: all that a comparison of long runs
    reads. In order of index; rounds that committed nothing are left out."""
    wanted = (rounds.c.round_index, rounds.c.committed_tokens, rounds.c.committed_texts, rounds.c.ended_at_s)
    query = select(*wanted).where(rounds.c.run_id == run_id, rounds.c.committed > 0).order_by(rounds.c.round_index)
    return [
        Burst(index, tuple(json.loads(tokens)), tuple(json.loads(texts)), required(ended_at_s))
        for index, tokens, texts, ended_at_s in connection.execute(query).all()
    ]


def _distortion(row: Any) -> Distortion | None:
    if row.conditional is None:
        return None
    return Distortion(row.kl, required(row.tv), required(row.escaped_mass), row.overshoot, row.conditional)


def _node(row: Any) -> Node:
    return Node(
        token=row.token,
        text=row.text,
        parent=row.parent,
        depth=row.depth,
        fate=row.fate,
        p=row.p,
        q=row.q,
        score=row.score,
        accept_prob=row.accept_prob,
        u=row.u,
        near_threshold=row.near_threshold,
        redraw_fallback=bool(row.redraw_fallback),  # NULL in rows of an older schema
    )


def _round(row: Any, nodes: Sequence[Node], tables: Sequence[Position]) -> Round:
    return Round(
        request=row.request,
        index=row.round_index,
        nodes=tuple(nodes),
        committed=tuple(json.loads(row.committed_tokens)),
        committed_text=tuple(json.loads(row.committed_texts)),
        source=row.source,
        positions=tuple(tables),
        draft_s=required(row.draft_s),
        verify_s=required(row.verify_s),
        state_s=required(row.state_s),
        other_s=required(row.other_s),
        wall_s=required(row.wall_s),
        ended_at_s=required(row.ended_at_s),
        distortion_s=row.distortion_s,
    )
