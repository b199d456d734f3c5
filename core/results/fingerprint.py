"""The fixed-target fingerprint of a run: what must be equal for two runs to be compared (design.md)."""

from __future__ import annotations

import hashlib
import platform
from importlib.metadata import version
from typing import TYPE_CHECKING

import torch

from core.grammar import format_drafter, format_rule, format_shape, sampling_text
from core.records import Fingerprint, Started
from core.results.matching import reference_sampling
from core.types import NoDrafter, Request, SmallModelDrafter, TreeShape

if TYPE_CHECKING:
    from core.models.pair import Pair

LIBRARIES = ("torch", "transformers", "tokenizers")

CACHE_POLICY = "slot cache: committed and scratch regions, precision of the weights"
INT8_CACHE_POLICY = "slot cache: committed and scratch regions, float32"


def fingerprint(pair: Pair, request: Request, started: Started) -> Fingerprint:
    """Fingerprint of a run of ``request`` on ``pair``; ``started`` says what the engine made of the prompt."""
    drafts = pair.draft if isinstance(request.drafter, SmallModelDrafter) else None
    return Fingerprint(
        target=pair.target.name,
        target_hash=pair.target.content_hash,
        draft=drafts.name if drafts else None,
        draft_hash=drafts.content_hash if drafts else None,
        precision=pair.precision,
        tokenizer_hash=pair.text.tokenizer_hash,
        template_hash=pair.text.template_hash if request.chat else "none",
        sampling=sampling_text(request.sampling),
        reference_law=sampling_text(reference_sampling(request)),
        stops=f"max_new_tokens={request.stops.max_new_tokens} stop_strings={list(request.stops.stop_strings)!r}",
        cache_policy=INT8_CACHE_POLICY if pair.precision == "int8" else CACHE_POLICY,
        drafting=drafting_text(request),
        device=device_text(pair.device, pair.target.linears),
        versions={"python": platform.python_version()} | {name: version(name) for name in LIBRARIES},
        seed=request.seed,
        prompt_hash=hashlib.sha256(request.prompt.encode("utf-8", "surrogatepass")).hexdigest()[:16],
        rule=format_rule(request.rule),
        prompt_ids_hash=started.prompt_ids_hash,
        end_tokens=" ".join(map(str, sorted(pair.text.eos))) or "none",
        batch=started.batch,
    )


def drafting_text(request: Request) -> str:
    """Drafter and shape, and whether candidates are sampled or deterministic."""
    if isinstance(request.drafter, NoDrafter):
        return "none"
    mode = "sampled" if request.samples_candidates else "deterministic"
    kind = "tree" if isinstance(request.shape, TreeShape) and request.shape.topk > 1 else "chain"
    return f"{format_drafter(request.drafter)} {format_shape(request.shape)}: {mode} {kind}"


def device_text(device: torch.device, linears: str = "torch") -> str:
    """The device's name; on the CPU also the number of threads and the layout of linear layers if not torch's own."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    packed = "" if linears == "torch" else f", {linears} linears"
    return f"CPU {platform.machine()}, {torch.get_num_threads()} threads{packed}"
