"""Assembly of the target and the drafter that decode one batch of slots, from a pair's models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from core.cache.slots import SlotModel, SlotTarget
from core.cache.target import Target
from core.drafting.base import Drafter, NoDraft
from core.drafting.early_exit import ExitDrafter, SplitTarget, layers_of, shares_activations
from core.drafting.growers import scratch_rows
from core.drafting.prompt_lookup import PromptLookup
from core.drafting.small_model import SmallModel
from core.errors import BadInput
from core.types import (
    DrafterSpec,
    EarlyExitDrafter,
    NoDrafter,
    PromptLookupDrafter,
    Request,
    SmallModelDrafter,
)

if TYPE_CHECKING:
    from core.models.pair import Pair


def batch_drafter(requests: Sequence[Request]) -> DrafterSpec:
    """The one drafter of a batch, which may also hold plain requests. Raises :class:`BadInput` if there are two."""
    named = dict.fromkeys(request.drafter for request in requests if not isinstance(request.drafter, NoDrafter))
    if len(named) > 1:
        raise BadInput(
            f"One batch has one drafter, not {len(named)}: send requests with different drafters separately."
        )
    return next(iter(named), NoDrafter())


def assemble(pair: Pair, requests: Sequence[Request], prompts: Sequence[Sequence[int]]) -> tuple[Target, Drafter]:
    """Target and drafter with caches sized for these requests: prompt + new tokens (at most the context) + scratch.

    Raises :class:`BadInput` if the pair can't provide the requests' drafter.
    """
    longest = max(len(p) + r.stops.max_new_tokens for p, r in zip(prompts, requests, strict=True))
    capacity = min(longest, pair.target.context) + max(scratch_rows(request.shape) for request in requests)
    network, slots = pair.target.network, len(requests)
    drafter = batch_drafter(requests)
    match drafter:
        case EarlyExitDrafter(layers=layers):
            total = network.config.get_text_config(decoder=True).num_hidden_layers
            if layers > total:
                raise BadInput(f"early_exit:{layers} asks for more layers than {pair.target.name} has ({total}).")
            if shares_activations(network, layers):
                split = SplitTarget(network, layers, pair.vocab, slots, capacity)
                return split, ExitDrafter(split)
            lower = SlotModel(layers_of(network, 0, layers), pair.vocab, slots, capacity)
            own = SmallModel(lower, recomputed_share=layers / total)
            return SlotTarget(network, pair.vocab, slots, capacity), own
        case SmallModelDrafter():
            if pair.draft is None:
                raise BadInput(
                    f"The pair {pair.name} has no draft model: name one as TARGET+DRAFT, or choose prompt_lookup or "
                    "early_exit."
                )
            draft = SlotModel(pair.draft.network, pair.vocab, slots, capacity)
            return SlotTarget(network, pair.vocab, slots, capacity), SmallModel(draft)
        case PromptLookupDrafter():
            return SlotTarget(network, pair.vocab, slots, capacity), PromptLookup(drafter)
        case NoDrafter():
            return SlotTarget(network, pair.vocab, slots, capacity), NoDraft()
