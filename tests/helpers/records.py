"""Hand-made records, and hypothesis strategies for rounds with hostile text."""

from __future__ import annotations

import re
import string
from datetime import UTC, datetime, timedelta

from hypothesis import strategies as st

from core.records import (
    ROOT,
    Distortion,
    Ended,
    Fingerprint,
    Node,
    Position,
    Round,
    Started,
    StopReason,
    Summary,
    TopToken,
)
from core.types import (
    ChainShape,
    NoDrafter,
    NoShape,
    PairSpec,
    PromptLookupDrafter,
    Request,
    RunSpec,
    Sampling,
    Stops,
)

NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)

HOSTILE = (
    "=1+1",
    "+cmd|' /C calc'!A0",
    "-2",
    "@SUM(A1)",
    "\tx",
    "\rlone",
    "\nnew",
    "a\rb",
    "a\r\nb",
    'say "hi", then; go',
    "'=quoted already",
    "'plain apostrophe",
    "null",
    "NaN",
    "None",
    "007",
    "1e5",
    "",
    " ",
    "👩‍👩‍👧‍👦",
    "مرحبا\u202eabc",
    "nul\x00inside",
    "\ufeffbom",
    "⟨e2⟩",
    "</script><img src=x>",
)
"""Texts that CSV readers, spreadsheets and databases are known to misread."""

PROMPTS = [text for text in HOSTILE if text.strip()]
"""The hostile texts that a request accepts as its prompt."""


def original(cell: str) -> str:
    """The text behind an exported cell: without the apostrophe that keeps a spreadsheet from running it."""
    return cell[1:] if re.match(r"'+[=+\-@\t\r\n]", cell) else cell


def at(seconds: float) -> datetime:
    """The moment ``seconds`` after noon."""
    return NOON + timedelta(seconds=seconds)


def run_id(number: int) -> str:
    """26 characters that sort by ``number``, as the ids of ``core.jobs.jobs`` do."""
    return f"{number:026d}"


def spec(
    prompt: str = "Say hello.", *, plain: bool = False, temperature: float = 0.7, pair: str = "embedded"
) -> RunSpec:
    """A chain of four by prompt lookup, or plain decoding of the same prompt."""
    return RunSpec(
        pair=PairSpec(name=pair),
        request=Request(
            prompt=prompt,
            sampling=Sampling(temperature=temperature, top_k=20, top_p=0.8),
            stops=Stops(max_new_tokens=64, stop_strings=("\n\n",)),
            drafter=NoDrafter() if plain else PromptLookupDrafter(),
            shape=NoShape() if plain else ChainShape(gamma=4),
            seed=2**63 - 1,
        ),
    )


def fingerprint(
    drafting: str = "prompt_lookup chain:4 lossless", prompt_hash: str = "p0", seed: int = 7
) -> Fingerprint:
    """The fingerprint of a run on a small CPU model."""
    return Fingerprint(
        target="smol",
        target_hash="t0",
        draft=None,
        draft_hash=None,
        precision="float32",
        tokenizer_hash="k0",
        template_hash="c0",
        sampling="temperature=0.7",
        reference_law="processed target",
        stops="max_new_tokens=64",
        cache_policy="slots",
        drafting=drafting,
        device="cpu",
        versions={"torch": "2.13.0", "transformers": "5.24.0"},
        seed=seed,
        prompt_hash=prompt_hash,
        prompt_ids_hash="i0",
        end_tokens="2",
        batch=1,
    )


def started() -> Started:
    """The start of a run: a prompt of eleven tokens, in the cache after 0.25 s."""
    return Started(request=0, prompt_tokens=11, prefill_s=0.25, recomputed_share=0.25, fingerprint=fingerprint())


def ended(reason: StopReason = "eos", text: str = "hello", error: str | None = None) -> Ended:
    """The end of a run after 1.5 s."""
    return Ended(0, reason, text, 1.5, peak_memory_bytes=3 * 2**30, peak_memory_kind="process_rss", error=error)


def round_(index: int, text: str = "to", committed: int = 2) -> Round:
    """A round of a chain of two: one accepted, one rejected, then a correction."""
    first = Node(100 + index, text, ROOT, 1, "accepted", 0.5, 0.25, 0.25, 1.0, 0.125)
    second = Node(7, "x", 0, 2, "rejected", 0.1, 0.8, 0.8, 0.125, 0.1250001, near_threshold=True)
    top = (TopToken(100 + index, text, 0.5, 0.25, 0.75, 0.625), TopToken(7, "x", 0.1, 0.8, 0.0, None))
    places = (
        Position(ROOT, top, 0.4, 0.0, Distortion(0.25, 0.125, 0.0, 1.0)),
        Position(0, (TopToken(9, "y", 1.0, None),), 0.0, None),
    )
    return Round(
        request=0,
        index=index,
        nodes=(first, second),
        committed=tuple(range(100 + index, 100 + index + committed)),
        committed_text=(text,) * committed,
        source="correction",
        positions=places,
        draft_s=0.001,
        verify_s=0.015,
        state_s=0.0001,
        other_s=0.0002,
        wall_s=0.0163,
        ended_at_s=0.25 + 0.02 * (index + 1),
        distortion_s=0.00005,
    )


def summary(text: str = "hello", tokens_per_second: float | None = 40.5) -> Summary:
    """A summary with every kind of value in it."""
    return Summary(
        prompt_tokens=11,
        output_tokens=6,
        rounds=3,
        rounds_without_draft=1,
        drafted=6,
        accepted=3,
        rejected=2,
        unreached=1,
        cut=0,
        text=text,
        stop_reason="eos",
        tokens_per_round=2.0,
        accepted_length=1.0,
        draft_acceptance_rate=0.5,
        path_acceptance=None,
        target_calls_per_token=0.5,
        acceptance_unconditional=(1.0, 1 / 3, None),
        acceptance_conditional=(1.0, 0.5, None),
        draft_s=0.003,
        verify_s=0.045,
        state_s=0.0003,
        other_s=0.0006,
        prefill_s=0.25,
        decode_s=1.25,
        ttft_s=0.3,
        tpot_s=None,
        e2e_s=1.5,
        gap_p50_s=0.01,
        gap_p95_s=0.02,
        gap_max_s=0.03,
        burst_gap_p50_s=0.01,
        burst_gap_p95_s=0.02,
        burst_gap_max_s=0.03,
        tokens_per_second=tokens_per_second,
        peak_memory_bytes=3 * 2**30,
        peak_memory_kind="process_rss",
        distortion_kl=0.25,
        distortion_tv=0.125,
        escaped_mass=0.0,
        overshoot=None,
        distortion_positions=6,
        distortion_kl_undefined=0,
        distortion_conditional=0,
        distortion_s=0.0001,
    )


# -- hypothesis ------------------------------------------------------------------------------------------------------

texts = st.one_of(
    st.text(alphabet=st.characters(exclude_categories=()), max_size=12),
    st.text(alphabet=string.printable, max_size=6),
    st.sampled_from(HOSTILE),
)
"""Any text at all: control characters, NUL, surrogates, right-to-left marks."""

_ids = st.integers(0, 2**31)
_unit = st.floats(0.0, 1.0, width=32)
_seconds = st.floats(0.0, 1e6)
_maybe = st.none() | _unit

_nodes = st.builds(
    Node,
    token=_ids,
    text=texts,
    parent=st.integers(ROOT, 8),
    depth=st.integers(1, 9),
    fate=st.sampled_from(["accepted", "rejected", "unreached", "cut"]),
    p=_maybe,
    q=_maybe,
    score=_maybe,
    accept_prob=_maybe,
    u=_maybe,
    near_threshold=st.booleans(),
    redraw_fallback=st.booleans(),
)
_tops = st.builds(TopToken, token=_ids, text=texts, p=_unit, q=_maybe, residual=_maybe, induced=_maybe)
_distortions = st.builds(
    Distortion, kl=_maybe, tv=_unit, escaped_mass=_unit, overshoot=_maybe, conditional=st.booleans()
)
_positions = st.builds(
    Position,
    node=st.integers(ROOT, 8),
    top=st.lists(_tops, max_size=4).map(tuple),
    p_rest=_unit,
    q_rest=_maybe,
    distortion=st.none() | _distortions,
)


@st.composite
def rounds(draw: st.DrawFn, most: int = 3) -> list[Round]:
    """Rounds numbered from 0: valid types, arbitrary values."""
    made: list[Round] = []
    for index in range(draw(st.integers(1, most))):
        pieces = draw(st.lists(st.tuples(_ids, texts), max_size=4))
        made.append(
            Round(
                request=draw(st.integers(0, 3)),
                index=index,
                nodes=tuple(draw(st.lists(_nodes, max_size=4))),
                committed=tuple(token for token, _ in pieces),
                committed_text=tuple(text for _, text in pieces),
                source=draw(st.sampled_from(["correction", "bonus", "none"])),
                positions=tuple(draw(st.lists(_positions, max_size=3))),
                draft_s=draw(_seconds),
                verify_s=draw(_seconds),
                state_s=draw(_seconds),
                other_s=draw(_seconds),
                wall_s=draw(_seconds),
                ended_at_s=draw(_seconds),
                distortion_s=draw(st.none() | _seconds),
            )
        )
    return made
