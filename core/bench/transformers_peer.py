"""transformers as a peer: ``generate``, alone and assisted by prompt lookup or by an early exit of the same network."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from transformers import GenerationConfig
from transformers.utils import logging as library_logging

from core.bench.contender import Answer, Workload
from core.bench.settings import Setting
from core.errors import EngineFault
from core.models.attention import library_attention
from core.models.packing import original_linears
from core.types import EarlyExitDrafter, PromptLookupDrafter

if TYPE_CHECKING:
    from core.models.pair import Pair

NAME = "transformers"
SAME_LINEARS = "transformers on our linears"


class TransformersPeer:
    """``generate`` of the pair's target on its own linear modules, or with ``same_linears`` on those of our engine.

    Its prompt lookup copies what followed the first occurrence of the longest n-gram, ours the last. Its early exit
    has a separate cache and computes the lower layers again.
    """

    def __init__(self, pair: Pair, same_linears: bool = False) -> None:
        self.peer: str | None = SAME_LINEARS if same_linears else NAME
        self._pair = pair
        self._network: Any = pair.target.network
        self._same_linears = same_linears

    def unsupported(self, setting: Setting) -> str:
        """Drafting for more than one request is unsupported."""
        assisted = setting.gamma and setting.batch > 1
        return "transformers assists single requests only" if assisted else ""

    @contextmanager
    def ready(self, workload: Workload, watched: bool) -> Iterator[Callable[[], Answer]]:
        """Puts the workload's generation settings in place of the model's own, whose penalties would count."""
        with ExitStack() as stack:
            if not self._same_linears:
                stack.enter_context(original_linears(self._network))
            stack.enter_context(library_attention(self._network))
            stack.enter_context(quiet_library())
            stack.enter_context(_all_layers(self._network))
            stack.enter_context(self._settings(workload))
            seen = stack.enter_context(passes(self._network)) if watched else None
            ids, mask = _padded(workload.prompts, self._pad, self._pair.device)
            yield lambda: self._decode(workload, ids, mask, seen)

    def _decode(
        self, workload: Workload, ids: torch.Tensor, mask: torch.Tensor, seen: list[NetworkPass] | None
    ) -> Answer:
        sequences = self._network.generate(
            ids, attention_mask=mask, do_sample=False, max_new_tokens=workload.tokens, **_assistance(workload.setting)
        )
        new = sequences[:, ids.shape[1] :].tolist()
        outputs = tuple(until_end(row, self._pair.text.eos) for row in new)
        return Answer(outputs, None if seen is None else self._rounds(workload, outputs, seen))

    @property
    def _pad(self) -> int:
        return min(self._pair.text.eos, default=0)

    @contextmanager
    def _settings(self, workload: Workload) -> Iterator[None]:
        """Sets the network's own generation settings, the only way for γ to reach the early exit, and restores them."""
        own = self._network.generation_config
        self._network.generation_config = GenerationConfig(
            eos_token_id=sorted(self._pair.text.eos) or None,
            pad_token_id=self._pad,
            num_assistant_tokens=workload.setting.gamma or None,
            num_assistant_tokens_schedule="constant",
            assistant_confidence_threshold=0.0,
        )
        try:
            yield
        finally:
            self._network.generation_config = own

    def _rounds(self, workload: Workload, outputs: Sequence[Sequence[int]], seen: Sequence[NetworkPass]) -> int:
        """Target passes, each of which emits for every running prompt. Raises EngineFault when γ was ignored."""
        whole = [one for one in seen if one.layers == self._network.config.num_hidden_layers]
        if not workload.setting.gamma:
            return sum(map(len, outputs))
        drafted = [one.width - (len(workload.prompts[0]) if at == 0 else 1) for at, one in enumerate(whole)]
        gamma, early = workload.setting.gamma, isinstance(workload.setting.drafter, EarlyExitDrafter)
        unlimited = list(zip(drafted, whole, strict=True))[: -(gamma + 1)]  # the last drafts may lack room
        short = any(n < gamma and one.last not in self._pair.text.eos for n, one in unlimited)
        if max(drafted) > gamma or (early and short):
            raise EngineFault(
                f"transformers drafted {drafted} tokens a round where γ is {gamma}: its settings did not take effect, "
                "so that the comparison would be unfair."
            )
        return len(whole)


def _assistance(setting: Setting) -> dict[str, Any]:
    match setting.drafter:
        case PromptLookupDrafter(max_ngram=longest):
            return {"prompt_lookup_num_tokens": setting.gamma, "max_matching_ngram_size": longest}
        case EarlyExitDrafter(layers=layers):
            return {"assistant_early_exit": layers}
        case _:
            return {}


def _padded(prompts: Sequence[Sequence[int]], pad: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids and mask [B, longest prompt], padded on the left."""
    width = max(map(len, prompts))
    ids = [[pad] * (width - len(prompt)) + list(prompt) for prompt in prompts]
    mask = [[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts]
    return torch.tensor(ids, device=device), torch.tensor(mask, device=device)


def until_end(tokens: Sequence[int], eos: frozenset[int]) -> tuple[int, ...]:
    """New tokens up to and including the first end token; the rest is padding."""
    ends = [at for at, token in enumerate(tokens) if token in eos]
    return tuple(tokens[: ends[0] + 1] if ends else tokens)


@contextmanager
def quiet_library() -> Iterator[None]:
    """Silences the library's warnings about its own arguments; errors are still reported."""
    before = library_logging.get_verbosity()
    library_logging.set_verbosity_error()
    try:
        yield
    finally:
        library_logging.set_verbosity(before)


@contextmanager
def _all_layers(network: Any) -> Iterator[None]:
    """Restores the network's number of layers, which the library changes while its early exit drafts."""
    config = network.base_model.config
    layers = config.num_hidden_layers
    try:
        yield
    finally:
        config.num_hidden_layers = layers


@dataclass(frozen=True, slots=True)
class NetworkPass:
    """One forward pass of the network: the number of ``layers`` that ran, its ``width`` (tokens a row) and the ``last``
    token of its first row."""

    layers: int
    width: int
    last: int


@contextmanager
def passes(network: Any) -> Iterator[list[NetworkPass]]:
    """Records the network's passes within the ``with`` block."""
    seen: list[NetworkPass] = []

    def note(module: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        ids = arguments[0] if arguments else keywords["input_ids"]
        seen.append(NetworkPass(module.config.num_hidden_layers, ids.shape[1], int(ids[0, -1])))

    handle = network.register_forward_pre_hook(note, with_kwargs=True)
    try:
        yield seen
    finally:
        handle.remove()
