"""The grid of decoding settings that are measured, and the requests of each. No torch here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from core.bench.prompts import Prompt
from core.errors import BadInput
from core.grammar import format_drafter, format_shape
from core.types import (
    ChainShape,
    DrafterSpec,
    EarlyExitDrafter,
    NoDrafter,
    NoShape,
    PromptLookupDrafter,
    Request,
    Sampling,
    Stops,
    valid,
)

DRAFTERS = ("plain", "prompt_lookup", "early_exit")
PLAIN = NoDrafter()


@dataclass(frozen=True, slots=True)
class Setting:
    """A drafter, its chain's γ (0: plain decoding) and how many requests decode together."""

    drafter: DrafterSpec = PLAIN
    gamma: int = 0
    batch: int = 1

    @property
    def name(self) -> str:
        """The name in rows: ``plain``, ``prompt_lookup chain:4``, ``early_exit:26 chain:2 batch 4``."""
        plain = isinstance(self.drafter, NoDrafter)
        what = "plain" if plain else f"{format_drafter(self.drafter)} {format_shape(self.shape)}"
        return what if self.batch == 1 else f"{what} batch {self.batch}"

    @property
    def shape(self) -> ChainShape | NoShape:
        """The chain that is drafted."""
        return ChainShape(gamma=self.gamma) if self.gamma else NoShape()

    def request(self, prompt: Prompt, tokens: int) -> Request:
        """A request that decodes ``prompt`` greedily for at most ``tokens`` tokens, without measuring distortion."""
        return valid(
            Request,
            prompt=prompt.text,
            chat=prompt.chat,
            sampling=Sampling(temperature=0.0),
            stops=valid(Stops, max_new_tokens=tokens),
            drafter=self.drafter,
            shape=self.shape,
            measure_distortion=False,
        )


def grid(drafters: Sequence[str], gammas: Sequence[int], batches: Sequence[int], exit_layers: int) -> list[Setting]:
    """Plain decoding at every batch size; each drafter at every γ for single requests and at the smallest γ in larger
    batches, where verification already takes batch · (1 + γ) rows. Raises BadInput for an unknown drafter."""
    for name in drafters:
        if name not in DRAFTERS:
            raise BadInput(f"{name!r} is no drafter that is measured: write some of {', '.join(DRAFTERS)}.")
    specs: dict[str, DrafterSpec] = {"prompt_lookup": PromptLookupDrafter()}
    if "early_exit" in drafters:
        specs["early_exit"] = valid(EarlyExitDrafter, layers=exit_layers)
    settings = [Setting(batch=batch) for batch in batches] if "plain" in drafters else []
    for name in drafters:
        if name == "plain":
            continue
        for batch in batches:
            used = gammas if batch == 1 else (min(gammas),)
            settings += [Setting(specs[name], valid(ChainShape, gamma=gamma).gamma, batch) for gamma in used]
    return settings
