"""The tables. ``migrations/`` builds the same tables step by step; a test compares the two.

DuckDB's limits shape them: no foreign keys and no secondary indexes (both break updates and deletes), strings without
length, and rows of rounds, candidates and top tokens that are only appended. Rows arrive in order of time and run ids
sort by time, so DuckDB's per-block minima and maxima find a run without an index. Moments are UTC without a zone;
seconds are DOUBLE; JSON is stored as text, which any database can store.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, DateTime, Double, MetaData, String, Table

metadata = MetaData()


def _text(name: str, *, null: bool = True) -> Column[str]:
    return Column(name, String, nullable=null)


def _whole(name: str, *, null: bool = True) -> Column[int]:
    return Column(name, BigInteger, nullable=null)


def _real(name: str, *, null: bool = True) -> Column[float]:
    return Column(name, Double, nullable=null)


def _flag(name: str, *, null: bool = False) -> Column[bool]:
    return Column(name, Boolean, nullable=null)


def _moment(name: str, *, null: bool = True) -> Column:
    return Column(name, DateTime, nullable=null)


runs = Table(
    "runs",
    metadata,
    Column("run_id", String, primary_key=True),
    _text("session", null=False),
    _text("status", null=False),
    _moment("submitted_at", null=False),
    _moment("started_at"),
    _moment("ended_at"),
    # the settings, one column each, so that filtering and sorting are plain SQL
    _text("pair", null=False),
    _text("precision", null=False),
    _text("device", null=False),
    _text("drafter", null=False),
    _text("shape", null=False),
    _text("rule", null=False),
    _text("prompt", null=False),
    _flag("chat"),
    _whole("seed", null=False),
    _real("temperature", null=False),
    _whole("top_k", null=False),
    _real("top_p", null=False),
    _real("min_p", null=False),
    _real("eta", null=False),
    _real("epsilon", null=False),
    _real("repetition_penalty", null=False),
    _whole("min_new_tokens", null=False),
    _flag("truncate_draft"),
    _whole("max_new_tokens", null=False),
    _text("stop_strings", null=False),
    _text("spec_json", null=False),
    _real("recomputed_share"),
    # how it ended
    _text("error"),
    _text("stop_reason"),
    _text("text"),
    # the scalar fields of core.records.Summary, as they stand there
    _whole("prompt_tokens"),
    _whole("output_tokens"),
    _whole("rounds"),
    _whole("rounds_without_draft"),
    _whole("drafted"),
    _whole("accepted"),
    _whole("rejected"),
    _whole("unreached"),
    _whole("cut"),
    _real("tokens_per_round"),
    _real("accepted_length"),
    _real("draft_acceptance_rate"),
    _real("path_acceptance"),
    _real("target_calls_per_token"),
    _real("draft_s"),
    _real("verify_s"),
    _real("state_s"),
    _real("other_s"),
    _real("prefill_s"),
    _real("decode_s"),
    _real("ttft_s"),
    _real("tpot_s"),
    _real("e2e_s"),
    _real("gap_p50_s"),
    _real("gap_p95_s"),
    _real("gap_max_s"),
    _real("burst_gap_p50_s"),
    _real("burst_gap_p95_s"),
    _real("burst_gap_max_s"),
    _real("tokens_per_second"),
    _whole("peak_memory_bytes"),
    _text("peak_memory_kind"),
    _text("summary_json"),
    _flag("archived"),
    _whole("rounds_missing"),
    # labels
    _text("name"),
    _text("note"),
    # since schema 0004: further allowed sets of the sampling, and the distortion of the summary
    _text("allowed"),
    _real("distortion_kl"),
    _real("distortion_tv"),
    _real("escaped_mass"),
    _real("overshoot"),
    _whole("distortion_positions"),
    _whole("distortion_kl_undefined"),
    _whole("distortion_conditional"),
    _real("distortion_s"),
)
"""One row per run, from its submission on."""

fingerprints = Table(
    "fingerprints",
    metadata,
    Column("run_id", String, primary_key=True),
    _text("target", null=False),
    _text("target_hash", null=False),
    _text("draft"),
    _text("draft_hash"),
    _text("precision", null=False),
    _text("tokenizer_hash", null=False),
    _text("template_hash", null=False),
    _text("sampling", null=False),
    _text("reference_law", null=False),
    _text("stops", null=False),
    _text("cache_policy", null=False),
    _text("drafting", null=False),
    _text("device", null=False),
    _text("versions", null=False),
    _whole("seed", null=False),
    _text("prompt_hash", null=False),
    _text("rule", null=False),
    _text("prompt_ids_hash"),
    _text("end_tokens"),
    _whole("batch"),
)
"""The environment of a run: one row per run that started; ``versions`` is a JSON object."""

rounds = Table(
    "rounds",
    metadata,
    Column("run_id", String, primary_key=True),
    Column("round_index", BigInteger, primary_key=True, autoincrement=False),
    _whole("request", null=False),
    _text("source", null=False),
    _whole("drafted", null=False),
    _whole("accepted", null=False),
    _whole("rejected", null=False),
    _whole("unreached", null=False),
    _whole("cut", null=False),
    _whole("depth_offered", null=False),
    _whole("committed", null=False),
    _text("committed_tokens", null=False),
    _text("committed_texts", null=False),
    _real("draft_s"),
    _real("verify_s"),
    _real("state_s"),
    _real("other_s"),
    _real("wall_s"),
    _real("ended_at_s"),
    _real("distortion_s"),
)
"""One row per round: counts and seconds, and its committed ids and texts as JSON arrays."""

candidates = Table(
    "candidates",
    metadata,
    _text("run_id", null=False),
    _whole("round_index", null=False),
    _whole("node", null=False),
    _whole("token", null=False),
    _text("text", null=False),
    _whole("parent", null=False),
    _whole("depth", null=False),
    _text("fate", null=False),
    _real("p"),
    _real("q"),
    _real("score"),
    _real("accept_prob"),
    _real("u"),
    _flag("near_threshold"),
    _flag("redraw_fallback", null=True),
)
"""One row per drafted node, in node order."""

positions = Table(
    "positions",
    metadata,
    _text("run_id", null=False),
    _whole("round_index", null=False),
    _whole("position", null=False),
    _whole("node", null=False),
    _real("p_rest"),
    _real("q_rest"),
    _real("kl"),
    _real("tv"),
    _real("escaped_mass"),
    _real("overshoot"),
    _flag("conditional", null=True),
)
"""One row per visited position of a round: the masses outside its top tokens, and its distortion (``conditional`` is
NULL where none was measured)."""

top_tokens = Table(
    "top_tokens",
    metadata,
    _text("run_id", null=False),
    _whole("round_index", null=False),
    _whole("position", null=False),
    _whole("rank", null=False),
    _whole("token", null=False),
    _text("text", null=False),
    _real("p"),
    _real("q"),
    _real("residual"),
    _real("induced"),
)
"""Up to 20 rows per position, in descending order of max(p, q)."""

tags = Table("tags", metadata, _text("run_id", null=False), _text("tag", null=False))
"""One row per tag of a run. The single writer makes sure that a run has a tag only once."""

CHILDREN = (top_tokens, positions, candidates, rounds, fingerprints, tags)
"""Tables with parts of a run, in the order of deletion: rounds, fingerprints and tags last, so that an interrupted
deletion is found in these three small tables."""
