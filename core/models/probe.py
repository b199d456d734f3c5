"""Admission by proof: a model's passes over cache slots are compared with the library's own forward, once per content.

Whatever an architecture derives from the whole pass (the longest position, the number of rows, a chunk's length)
instead of from each row shows up here as a figure, whatever the architecture is called. Two requests of different
lengths are prefilled in chunks, verified as trees in one pass, cut back to a branch and verified again; the same is
repeated one step past every border that the configuration declares: a sliding window (narrowed for the probe, so that
a few tokens step past it), the length from which rotary frequencies may switch (positions moved to it), and windows of
other names (by a prompt of that length). A model whose rotary frequencies differ past a border decodes up to it.

Where factors do switch (``core/cache/rotary.py``), the longer request begins past the border and the shorter stays
below: a request that grows over the border has rows of both kinds, or is read anew, and equals no single forward.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
import transformers
from pydantic import BaseModel, ConfigDict, ValidationError
from torch import Tensor

from core.cache.rotary import switches_with_length
from core.cache.slots import SlotTarget
from core.cache.target import Candidates
from core.errors import ModelUnavailable
from core.faults import free_memory, is_out_of_memory
from core.models.compatibility import NOT_CAUSAL, layer_types, text_config
from core.models.pair import LoadedModel
from core.pairs.folders import cache_dir
from core.records import ROOT

FORMAT = 3
"""Number of this probe: results of an earlier one are not taken over."""

LIMITS = {"float32": 0.01, "int8": 0.02, "float16": 0.1, "bfloat16": 0.4}
"""Largest difference of a row of logits (:func:`_difference`) that rounding may explain in each precision."""

CHUNK = 4
"""Prompt rows of a prefill pass here, so that nine tokens are three chunks."""

LONGEST = 4096
"""Tokens of the longest prompt that is worth computing to step past a border; a model keeps to a border beyond."""

CANDIDATES = 512
"""Rows that a round's candidates may take beyond the context."""

_WINDOWS_ELSEWHERE = ("sliding_window", "use_sliding_window", "max_window_layers")
"""Fields about the sliding window, which is narrowed instead."""

WINDOW = 4
"""Width of a sliding window here, in positions: shorter than the probe's prompt."""

PARENTS = (ROOT, ROOT, 1)
"""The probed tree: two candidates after the root, and one after the second."""

KEPT = (1, 2)
"""Its accepted path, which moves rows of the cache."""


class Proof(BaseModel):
    """Result for one model: ``context``, the positions within which its slots equal the library's forward (None: no
    border found), and ``worst``, the largest difference seen there, in standard deviations of the logits."""

    model_config = ConfigDict(frozen=True)

    context: int | None
    worst: float


def proven(model: LoadedModel, vocab: int, precision: str) -> LoadedModel:
    """``model``, with its context limited to the positions within which decoding from slots is right.

    The result is kept in the cache folder by content hash, precision, device and the libraries' versions. Raises
    ModelUnavailable with the largest difference when slots and the library's forward differ.
    """
    kept = _kept(model, precision)
    proof = _read(kept)
    if proof is None:
        proof = prove(model, vocab, precision)
        _write(kept, proof)
    return model if proof.context is None else replace(model, context=min(model.context, proof.context))


def prove(model: LoadedModel, vocab: int, precision: str) -> Proof:
    """Compare a model's slots with the library's forward; raises ModelUnavailable as :func:`proven` does."""
    limit = LIMITS[precision]
    worst = _compared(model, vocab, limit, 0, "")
    text = text_config(model.network.config)
    switches = any(map(switches_with_length, model.network.modules()))
    if "sliding_attention" in layer_types(text):
        with _narrowed(text):
            worst = max(worst, _compared(model, vocab, limit, 0, "one step past a sliding window "))
    for border, moved in _borders(text, model.context):
        if moved:
            start = border if switches else border - len(_PROMPTS[1]) - 1
            found = _worst(model, vocab, limit, start, 0)
            if not found <= limit:
                return Proof(context=border, worst=worst)
        elif border > LONGEST:
            return Proof(context=border - CANDIDATES, worst=worst)
        else:
            found = _compared(model, vocab, limit, border, f"one step past its window of {border:,} tokens ")
        worst = max(worst, found)
    return Proof(context=None, worst=worst)


def _borders(text: Any, context: int) -> list[tuple[int, bool]]:
    """Lengths within the context from which a model may compute otherwise, in order.

    True: only positions matter (rotary frequencies), so a few tokens at such positions show the difference; False: a
    window of another name, which takes that many tokens.
    """
    windows = {
        value
        for name, value in text.to_dict().items()
        if "window" in name and name not in _WINDOWS_ELSEWHERE and type(value) is int
    }
    declared: set[int] = set()

    def collect(values: Any) -> None:
        if isinstance(values, dict):
            for name, value in values.items():
                if name == "original_max_position_embeddings" and isinstance(value, int):
                    declared.add(value)
                collect(value)

    collect(getattr(text, "rope_parameters", None))
    collect({"original_max_position_embeddings": getattr(text, "original_max_position_embeddings", None)})
    return [
        *((border, True) for border in sorted(declared) if len(_PROMPTS[1]) < border < context),
        *((border, False) for border in sorted(windows) if 0 < border < context),
    ]


@contextmanager
def _narrowed(text: Any) -> Iterator[None]:
    """Give ``text`` a sliding window of :data:`WINDOW` positions for a while; both sides read it in every pass."""
    width = text.sliding_window
    text.sliding_window = WINDOW
    try:
        yield
    finally:
        text.sliding_window = width


def _compared(model: LoadedModel, vocab: int, limit: float, more: int, where: str) -> float:
    """The largest difference; raises ModelUnavailable beyond ``limit``."""
    worst = _worst(model, vocab, limit, 0, more)
    if worst <= limit:
        return worst
    raise ModelUnavailable(
        f"{model.name} can't decode here: {where}its logits over cache slots differ from the library's own forward by "
        f"{worst:.2g} standard deviations, and rounding explains {limit:g} at most. Its attention depends on the whole "
        "pass (row numbers, the longest request …), so batches and trees would be wrong: choose another model."
    )


# -- one comparison -------------------------------------------------------------------------------------------------


_STRIDE = 1031
"""Spreads the tokens below over the vocabulary: the first ids are control tokens, on which some models are unsteady."""

_PROMPTS = ((5, 2, 6), (11, 3, 14, 7, 2, 8, 10, 4, 9))
_DRAFTS = ((12, 4, 9), (6, 13, 3))
_ROOTS = ((8, 5), (5, 12))


class _Shifted(SlotTarget):
    """A target whose slots begin at positions other than 0."""

    def __init__(self, network: Any, vocab: int, starts: Sequence[int], more: int) -> None:
        super().__init__(network, vocab, len(starts), capacity=len(_PROMPTS[1]) + more + 8)
        self.starts = starts

    def forward(
        self, network: Any, now: Any, ids: Tensor | None, embeddings: Tensor | None, logits_to_keep: int
    ) -> tuple[Tensor, ...]:
        moved = torch.tensor(self.starts, device=self.device)[now.slots][:, None]
        shifted = replace(
            now,
            positions=now.positions + moved,
            lengths=now.lengths + moved,
            key_positions=now.key_positions + moved,
        )
        return super().forward(network, shifted, ids, embeddings, logits_to_keep)


def _worst(model: LoadedModel, vocab: int, limit: float, start: int, more: int) -> float:
    """Largest difference between slots and the library's forward; the longer request starts at position ``start`` and
    its prompt is longer by ``more`` tokens.

    Raises ModelUnavailable for a forward that fails, is not causal, or has no finite logits.
    """
    try:
        with torch.inference_mode():
            return _walked(model, vocab, limit, (0, start), more)
    except ModelUnavailable:
        raise
    except Exception as error:
        if is_out_of_memory(error):
            free_memory()
            raise ModelUnavailable(
                f"Memory ran out while the first tokens of {model.name} were computed: choose a smaller pair or a "
                "shorter precision, or free the device."
            ) from None
        said = " ".join(str(error).split())[:160]
        raise ModelUnavailable(
            f"{model.name} can't decode here: its forward over cache slots fails ({type(error).__name__}: {said}). "
            "Choose another model."
        ) from error


def _walked(model: LoadedModel, vocab: int, limit: float, starts: Sequence[int], more: int) -> float:
    target = _Shifted(model.network, vocab, starts, more)
    size = min(vocab, model.vocab)
    longer = [(5 * n + 3) % 17 for n in range(more)] + [*_PROMPTS[1]]
    given = ((_PROMPTS[0], longer), _DRAFTS, _ROOTS)
    prompts, drafts, roots = ([[token * _STRIDE % size for token in one] for one in part] for part in given)
    branches = [
        _branches(model, vocab, limit, start, prompt, draft, ends)
        for start, prompt, draft, ends in zip(starts, prompts, drafts, roots, strict=True)
    ]
    for slot, prompt in enumerate(prompts):
        target.chunk = max(CHUNK, len(prompt) // 3)
        target.open(slot, prompt)
    slots = range(len(prompts))
    first = target.score([Candidates(slot, roots[slot][0], drafts[slot], PARENTS) for slot in slots])
    for slot in slots:
        target.keep(slot, KEPT)
    second = target.score([Candidates(slot, roots[slot][1], drafts[slot][:1], (ROOT,)) for slot in slots])
    worst = 0.0
    for slot in slots:
        (whole, aside), at = branches[slot], len(prompts[slot])
        tree, chain = first[slot].rows, second[slot].rows
        got = torch.cat([tree[[0, 2, 3]], chain, tree[[1]]])
        wanted = torch.cat([whole[at : at + 5], aside[[at + 1]]])
        worst = max(worst, _difference(got, wanted))
    return worst


def _branches(
    model: LoadedModel, vocab: int, limit: float, start: int, prompt: list[int], draft: list[int], roots: list[int]
) -> tuple[Tensor, Tensor]:
    """Logits [n, V] of the kept branch with the round after it, and of the branch left aside, by a forward each.

    What both begin with must have the same logits in both: otherwise the model reads both ways.
    """
    kept = [draft[node] for node in KEPT]
    whole = _forward(model, vocab, start, [*prompt, roots[0], *kept, roots[1], draft[0]])
    aside = _forward(model, vocab, start, [*prompt, roots[0], draft[0]])
    shared = len(prompt) + 1
    if not start and not _difference(aside[:shared], whole[:shared]) <= limit:
        raise ModelUnavailable(f"The model {model.name} {NOT_CAUSAL.format(kind=model.network.config.model_type)}")
    return whole, aside


def _forward(model: LoadedModel, vocab: int, start: int, tokens: list[int]) -> Tensor:
    """Logits [n, ≤ V] of tokens at positions ``start`` … by the library's own forward without a cache."""
    device = model.network.device
    positions = torch.arange(start, start + len(tokens), device=device)[None]
    ids = torch.tensor([tokens], device=device)
    logits = model.network(input_ids=ids, position_ids=positions, use_cache=False).logits[0, :, :vocab]
    if not torch.isfinite(logits).any(-1).all():
        raise ModelUnavailable(
            f"{model.name} computes no finite logits for ordinary tokens: its weights are damaged, or its numbers "
            "don't fit the precision (choose float32 or bfloat16)."
        )
    return logits


def _difference(got: Tensor, wanted: Tensor) -> float:
    """Largest difference between rows [n, V] and [n, ≤ V]: the root mean square over a row's finite logits, in standard
    deviations of the wanted row. Infinite where only one of the two is finite."""
    got, wanted = got[:, : wanted.shape[-1]].double(), wanted.double()
    finite = torch.isfinite(wanted)
    if not torch.equal(finite, torch.isfinite(got)):
        return float("inf")
    worst = 0.0
    for ours, theirs, at in zip(got, wanted, finite, strict=True):
        spread = float(theirs[at].std(correction=0))
        worst = max(worst, float((ours - theirs)[at].square().mean().sqrt()) / (spread or 1.0))
    return worst


# -- what is kept ---------------------------------------------------------------------------------------------------


def _kept(model: LoadedModel, precision: str) -> Path:
    """The file of a model's proof, by everything that the proof depends on."""
    network = model.network
    parts = (FORMAT, model.content_hash, precision, network.device.type, network.config._attn_implementation)
    versions = (torch.__version__, transformers.__version__, model.linears)
    return cache_dir() / "proofs" / sha256("|".join(map(str, (*parts, *versions))).encode()).hexdigest()


def _read(file: Path) -> Proof | None:
    try:
        return Proof.model_validate_json(file.read_bytes())
    except (FileNotFoundError, ValidationError):
        return None  # never made, or torn: it is made again


def _write(file: Path, proof: Proof) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_suffix(f".{os.getpid()}")
    part.write_text(proof.model_dump_json(), "utf-8")
    part.replace(file)
