"""The exported tables and their columns: kind, unit and definition. Metrics are defined in ``core/results`` alone."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Literal

from sqlalchemy import BigInteger, Boolean, DateTime, Double, Table

from core.errors import BadInput
from core.records import Fingerprint
from core.results.glossary import GLOSSARY
from storage.export.cells import Kind
from storage.schema import candidates, rounds, runs

TableName = Literal["runs", "rounds", "candidates"]

Format = Literal["csv", "parquet"]
"""File format of an exported table."""

FORMATS: tuple[Format, ...] = ("csv", "parquet")

TABLES: tuple[TableName, ...] = ("runs", "rounds", "candidates")


@dataclass(frozen=True, slots=True)
class ExportColumn:
    """One column of an export. ``source``: the table that it is read from, and its name in that table."""

    name: str
    kind: Kind
    unit: str
    definition: str
    source: tuple[str, str]


_OWN: dict[str, tuple[str, str]] = {
    # runs
    "run_id": ("", "The run; sorts by time of submission."),
    "session": ("", "The app process that took the run. Speed-ups compare runs of one session."),
    "status": ("", "queued, running, done, failed, cancelled or interrupted (the app died while it ran)."),
    "submitted_at": ("UTC", "When the run entered the queue."),
    "started_at": ("UTC", "When its prompt was in the cache."),
    "ended_at": ("UTC", "When it ended; for an interrupted run its last sign of life."),
    "pair": ("", "The target, or target+draft."),
    "precision": ("", "Number format that was asked for."),
    "device": ("", "Device that was asked for."),
    "drafter": ("", "What proposes candidates, in the grammar of the form."),
    "shape": ("", "The draft's shape: none, chain:γ or s{steps}_k{topk}_d{nodes}."),
    "rule": ("", "The verification rule, in the grammar of the form."),
    "prompt": ("", "The prompt as typed."),
    "chat": ("", "Whether the prompt was wrapped in the tokenizer's chat template."),
    "seed": ("", "Seed of the run's random streams."),
    "temperature": ("", "Sampling temperature; below 1e-5 it is greedy."),
    "top_k": ("tokens", "Top-k; 0 = off."),
    "top_p": ("", "Top-p; 1 = off."),
    "min_p": ("", "Min-p on the target; 0 = off."),
    "eta": ("", "η-sampling's ε on the target; 0 = off."),
    "epsilon": ("", "ε-sampling's cutoff on the target; 0 = off."),
    "repetition_penalty": ("", "Repetition penalty; 1 = off."),
    "min_new_tokens": ("tokens", "Fewest output tokens before an end token is allowed."),
    "truncate_draft": ("", "Whether min-p, η, ε and further allowed sets truncate the draft's distribution too."),
    "allowed": ("", "Further allowed sets of the target after all others, in the grammar of the form; empty: none."),
    "max_new_tokens": ("tokens", "Most output tokens."),
    "stop_strings": ("", "Texts that end the output: a JSON array."),
    "spec_json": ("", "Everything that was asked, as one JSON object."),
    "recomputed_share": ("share", "Early exit: share of the target's layers that verification computes again."),
    "error": ("", "Why a run failed, or what an interrupted one kept."),
    "stop_reason": ("", "eos, stop_string, max_new_tokens, context_end, cancelled, failed or interrupted."),
    "text": ("", "The output after stops cut it."),
    "peak_memory_kind": ("", "What peak_memory_bytes counts: cuda_allocated or process_rss."),
    "archived": ("", "Whether the run was taken out of the usual lists."),
    "rounds_missing": ("rounds", "Rounds at the end that could not be stored (full disk); empty: unknown."),
    "name": ("", "The name that somebody gave the run."),
    "note": ("", "What somebody noted about the run."),
    # rounds
    "round_index": ("", "The round within its run, from 0."),
    "request": ("", "The run's place in the batch it was decoded in, from 0."),
    "source": ("", "How the round's last token came: correction, bonus, or none (stopped inside the draft)."),
    "depth_offered": ("tokens", "Longest drafted path."),
    "committed": ("tokens", "What the round adds to the output: accepted and the correction or bonus, cut at a stop."),
    "committed_tokens": ("token ids", "The committed tokens: a JSON array."),
    "committed_texts": ("", "The text that each committed token completed: a JSON array."),
    "ended_at_s": ("s", "End of the round on the run's own clock, which starts at the request's acceptance."),
    # candidates
    "node": ("", "The candidate within its round, from 0."),
    "token": ("token id", "The drafted token."),
    "parent": ("", "Node that the candidate follows; -1: the last committed token."),
    "depth": ("tokens", "Length of the candidate's path, itself included."),
    "fate": ("", "accepted, rejected (tested, failed), unreached (never tested) or cut (accepted after a stop)."),
    "p": ("probability", "Target's probability of the token when it was tested; empty: never tested."),
    "q": ("probability", "Probability it was drafted with; 1 when the choice was deterministic."),
    "score": ("probability", "The drafter's own probability of the token."),
    "accept_prob": ("probability", "Probability with which the rule accepts it; empty: never tested."),
    "u": ("", "The coin: accepted when u < accept_prob; empty: never tested."),
    "near_threshold": ("", "u within 1e-5 of accept_prob: rounding could have decided otherwise."),
    "redraw_fallback": (
        "",
        "No draft mass in the rule's set: the redraw came from the target's instead; empty: not recorded.",
    ),
}

_FINGERPRINT: dict[str, str] = {
    "target": "The target model.",
    "target_hash": "Hash of the target's weights.",
    "draft": "The draft model.",
    "draft_hash": "Hash of the draft's weights.",
    "precision": "Number format that was used.",
    "tokenizer_hash": "Hash of the tokenizer.",
    "template_hash": "Hash of the chat template.",
    "sampling": "Sampling as it was applied.",
    "reference_law": "The law that the output is judged against.",
    "stops": "When the output ends.",
    "cache_policy": "How the caches follow accepted paths.",
    "drafting": "Drafter, shape, and whether candidates are sampled or deterministic.",
    "device": "The device that was used.",
    "versions": "Library versions: a JSON object.",
    "seed": "Seed.",
    "prompt_hash": "Hash of the prompt.",
    "rule": "The rule under test.",
    "prompt_ids_hash": "Hash of the prompt's tokens as the model read them; empty in runs of earlier versions.",
    "end_tokens": "Ids that end a run; empty in runs of earlier versions.",
    "batch": "Requests that were decoded together; empty in runs of earlier versions.",
}

_JSON = frozenset({"stop_strings", "spec_json", "committed_tokens", "committed_texts", "versions"})
_LISTS = ("acceptance_unconditional", "acceptance_conditional")


def check_table(table: str) -> None:
    """Raises BadInput when ``table`` is not one that can be exported."""
    if table not in TABLES:
        raise BadInput(f"{table!r} cannot be exported: choose one of {', '.join(TABLES)}.")


def columns(table: TableName) -> tuple[ExportColumn, ...]:
    """The table's columns in order. Raises KeyError for a column without a definition: every column is explained."""
    match table:
        case "rounds":
            return tuple(_column(rounds, column.name) for column in rounds.c)
        case "candidates":
            return tuple(_column(candidates, column.name) for column in candidates.c)
        case "runs":
            own = tuple(_column(runs, column.name) for column in runs.c if column.name != "summary_json")
            lists = tuple(
                ExportColumn(
                    name,
                    "json",
                    GLOSSARY[name].unit,
                    f"{GLOSSARY[name].definition} A JSON array from i = 1.",
                    ("summary", name),
                )
                for name in _LISTS
            )
            tagged = ExportColumn("tags", "json", "", "The run's tags: a JSON array.", ("tags", "tag"))
            environment = tuple(_environment(field.name) for field in dataclasses.fields(Fingerprint))
            return (*own, tagged, *lists, *environment)


def _column(table: Table, name: str) -> ExportColumn:
    source = (table.name, name)
    kind = _kind(table, name)
    if table is candidates and name == "text":
        return ExportColumn(name, "token", "", "The token as shown; ⟨e2⟩: part of a character.", source)
    if name in _OWN:
        return ExportColumn(name, kind, *_OWN[name], source)
    metric = GLOSSARY[name]
    return ExportColumn(name, kind, metric.unit, metric.definition, source)


def _environment(name: str) -> ExportColumn:
    kind: Kind = "integer" if name in ("seed", "batch") else "json" if name in _JSON else "text"
    return ExportColumn(f"fingerprint_{name}", kind, "", f"Fingerprint: {_FINGERPRINT[name]}", ("fingerprints", name))


def _kind(table: Table, name: str) -> Kind:
    if name in _JSON:
        return "json"
    match table.c[name].type:
        case BigInteger():
            return "integer"
        case Double():
            return "number"
        case Boolean():
            return "flag"
        case DateTime():
            return "moment"
        case _:
            return "text"


def definition(column: ExportColumn, format: Format) -> str:
    """The column's definition, including what the format does to its values."""
    return f"{column.definition} A JSON string." if column.kind == "token" and format == "csv" else column.definition
