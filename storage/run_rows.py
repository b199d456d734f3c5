"""Runs, fingerprints and summaries as rows, and back."""

from __future__ import annotations

import dataclasses
import json
from datetime import datetime
from typing import Any

from core.grammar import format_allowed, format_drafter, format_rule, format_shape
from core.records import UNKNOWN, Ended, Fingerprint, Started, Summary, status_of
from core.types import RunSpec
from storage.schema import runs
from storage.values import integer, naive_utc, number, required, text, text_or_none, texts_json

ColumnValues = dict[str, Any]
"""Values of a row by column."""

_SUMMARY_FIELDS = dataclasses.fields(Summary)

SUMMARY_COLUMNS = tuple(field.name for field in _SUMMARY_FIELDS if field.name in runs.c)
"""Fields of a Summary that are columns of ``runs``: the scalar ones. The others live in ``summary_json`` alone."""


def submitted_row(run_id: str, spec: RunSpec, session: str, at: datetime) -> ColumnValues:
    """The row of a run that waits in the queue."""
    request = spec.request
    return {
        "run_id": run_id,
        "session": text(session),
        "status": "queued",
        "submitted_at": naive_utc(at),
        "pair": text(spec.pair.name),
        "precision": spec.pair.precision,
        "device": spec.pair.device,
        "drafter": text(format_drafter(request.drafter)),
        "shape": text(format_shape(request.shape)),
        "rule": text(format_rule(request.rule)),
        "prompt": text(request.prompt),
        "chat": request.chat,
        "seed": request.seed,
        **request.sampling.model_dump(),
        "allowed": format_allowed(request.sampling.allowed),
        "max_new_tokens": request.stops.max_new_tokens,
        "stop_strings": texts_json(request.stops.stop_strings),
        "spec_json": spec.model_dump_json(),
        "archived": False,
    }


def started_row(started: Started, at: datetime) -> ColumnValues:
    """What changes in a run's row when its prompt is in the cache."""
    return {
        "status": "running",
        "started_at": naive_utc(at),
        "prompt_tokens": integer(started.prompt_tokens),
        "prefill_s": number(started.prefill_s),
        "recomputed_share": number(started.recomputed_share),
    }


def ended_row(ended: Ended, summary: Summary | None, at: datetime, missing: int | None) -> ColumnValues:
    """What changes in a run's row at its end; ``missing``: rounds that could not be kept, None when it is unknown."""
    row: dict[str, Any] = {
        "status": status_of(ended.stop_reason),
        "ended_at": naive_utc(at),
        "error": text_or_none(ended.error),
        "rounds_missing": missing,
        "stop_reason": ended.stop_reason,
        "text": text(ended.text),
        "e2e_s": number(ended.e2e_s),
        "peak_memory_bytes": None if ended.peak_memory_bytes is None else integer(ended.peak_memory_bytes),
        "peak_memory_kind": text_or_none(ended.peak_memory_kind),
    }
    if summary is not None:
        plain = {field.name: _plain(getattr(summary, field.name)) for field in _SUMMARY_FIELDS}
        row |= {name: plain[name] for name in SUMMARY_COLUMNS}
        row["summary_json"] = json.dumps(plain, ensure_ascii=False)
    return row


def _plain(value: Any) -> Any:
    match value:
        case None | bool():
            return value
        case str():
            return text(value)
        case tuple() | list():
            return [_plain(item) for item in value]
        case int():
            return value
        case _:
            return integer(value) if hasattr(value, "__index__") else number(value)


def summary_from(summary_json: str | None) -> Summary | None:
    """The stored summary. A required number that was not finite reads back as NaN; a field that its version did not
    have yet keeps its default."""
    if summary_json is None:
        return None
    plain = json.loads(summary_json)
    for field in _SUMMARY_FIELDS:
        if field.name not in plain and field.default is not dataclasses.MISSING:
            continue
        value = plain[field.name]
        if field.type == "float":
            plain[field.name] = required(value)
        elif isinstance(value, list):
            plain[field.name] = tuple(value)
    return Summary(**plain)


_FINGERPRINT_FIELDS = tuple(field.name for field in dataclasses.fields(Fingerprint))


def fingerprint_row(run_id: str, fingerprint: Fingerprint) -> ColumnValues:
    """The row of a run's environment."""
    values = {name: getattr(fingerprint, name) for name in _FINGERPRINT_FIELDS}
    versions = json.dumps({text(name): text(version) for name, version in fingerprint.versions.items()})
    return {"run_id": run_id, **{name: _plain(value) for name, value in values.items() if name != "versions"}} | {
        "versions": versions
    }


def fingerprint_from(row: Any) -> Fingerprint | None:
    """The fingerprint of a row that has its columns; None when they are NULL (an outer join without a match)."""
    if row["target"] is None:
        return None
    fields: dict[str, Any] = {name: row[name] for name in _FINGERPRINT_FIELDS}
    fields["versions"] = json.loads(row["versions"])
    for name in ("prompt_ids_hash", "end_tokens"):
        fields[name] = UNKNOWN if fields[name] is None else fields[name]
    return Fingerprint(**fields)
