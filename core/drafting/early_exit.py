"""Self-speculation: the target's first k layers draft, verification runs layers k…L only (article, LayerSkip).

Drafting and verification share the cache rows of the first k layers and the activations at the exit. Where an
architecture can't continue from those activations, drafting has its own cache and verification computes all layers
again; ``recomputed_share`` says so.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from core.cache.slots import SlotModel
from core.cache.target import Candidates, Scores
from core.drafting.base import NoDraft, Want, grow_together
from core.drafting.draft import Draft
from core.drafting.growers import Grower
from core.errors import ModelUnavailable
from core.records import ROOT


class Tap(nn.Module):
    """A layer that remembers its output: the activations at the exit, before the final norm."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer
        self.seen: Tensor | None = None

    def __getattr__(self, name: str) -> Any:
        """Attributes that the model reads off its layers (their kind of attention, say) are the inner layer's."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.layer, name)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The inner layer's output, remembered."""
        output = self.layer(*args, **kwargs)
        self.seen = output[0] if isinstance(output, tuple) else output
        return output


def layers_of(network: Any, start: int, stop: int) -> Any:
    """A causal LM of layers ``start`` … ``stop``−1 of ``network``, sharing its modules (embedding, norm and head too).

    Raises :class:`ModelUnavailable` where the decoder has no list of layers.
    """
    base = network.base_model
    if not isinstance(getattr(base, "layers", None), nn.ModuleList):
        raise ModelUnavailable(
            f"{type(network).__name__} keeps its layers in a way early exit can't cut: choose another drafter."
        )
    config = copy.deepcopy(network.config)
    config.num_hidden_layers = stop - start
    if kinds := getattr(config, "layer_types", None):
        config.layer_types = list(kinds[start:stop])
    with torch.device("meta"):
        part = type(network)(config)
    for name, child in base.named_children():
        setattr(part.base_model, name, child)
    for name, child in network.named_children():
        if name != network.base_model_prefix:
            setattr(part, name, child)
    part.base_model.layers = nn.ModuleList(base.layers[start:stop])
    return part.eval()


_MEASURED: WeakKeyDictionary[Any, dict[int, bool]] = WeakKeyDictionary()
"""What :func:`shares_activations` found, while the network lives."""


def shares_activations(network: Any, layers: int) -> bool:
    """True when running the first ``layers`` layers and then the rest from their activations equals the whole model.

    Measured once per network and exit on a short input, rather than assumed from the architecture's name.
    """
    known = _MEASURED.setdefault(network, {})
    if layers not in known:
        known[layers] = _continues_from_exit(network, layers)
    return known[layers]


def _continues_from_exit(network: Any, layers: int) -> bool:
    ids = torch.arange(5, device=network.device)[None] % network.config.vocab_size
    lower, upper = (
        layers_of(network, 0, layers),
        layers_of(network, layers, network.config.num_hidden_layers),
    )
    tap = Tap(lower.base_model.layers[-1])
    lower.base_model.layers[-1] = tap
    with torch.no_grad():
        whole = network(input_ids=ids, use_cache=False).logits.float()
        lower(input_ids=ids, use_cache=False)
        split = upper(inputs_embeds=tap.seen, use_cache=False).logits.float()
    scale = float(whole.abs().max()) or 1.0
    return float((whole - split).abs().max()) <= 1e-3 * scale


class ExitDrafter(NoDraft):
    """The drafter's side of a split target: drafts live in the target's own slots, so only proposing is left."""

    recomputed_share: float | None = 0.0

    def __init__(self, target: SplitTarget) -> None:
        self.target = target

    def propose(self, wants: Sequence[Want]) -> list[Draft]:
        """Drafts grown with the target's lower layers."""
        return self.target.propose(wants)


class SplitTarget(SlotModel):
    """A target cut at an exit: its lower layers draft in its own scratch region, its upper layers finish the pass.

    Scratch row 0 is the root. Rows whose lower layers were computed while drafting come first, then the others.
    """

    def __init__(self, network: Any, layers: int, vocab: int, slots: int, capacity: int) -> None:
        super().__init__(network, vocab, slots, capacity)
        total = network.config.num_hidden_layers
        self.lower = layers_of(network, 0, layers)
        self.upper = layers_of(network, layers, total)
        self.tap = Tap(self.lower.base_model.layers[-1])
        self.lower.base_model.layers[-1] = self.tap
        self.body = layers_of(network, 0, layers)
        """The lower layers without the head, for rows whose next token nobody drafts."""
        self.body.base_model.layers = self.lower.base_model.layers
        self.body.set_output_embeddings(nn.Identity())
        self._exits: dict[int, Tensor] = {}
        self._computed: dict[int, list[int]] = {}
        self._row_of: dict[int, dict[int, int]] = {}

    # -- drafting -----------------------------------------------------------------------------------------------------

    def propose(self, wants: Sequence[Want]) -> list[Draft]:
        """Grow the wished shapes with the lower layers."""
        growers = {want.slot: want.grower() for want in wants}
        roots = {want.slot: want.prefix[-1] for want in wants}
        row_of: dict[int, dict[int, int]] = {slot: {} for slot in growers}

        def score(
            frontier: Mapping[int, Sequence[int]],
        ) -> Mapping[int, Sequence[Tensor]]:
            batch = [
                self._lower_tokens(slot, nodes, growers[slot], roots[slot], row_of[slot])
                for slot, nodes in frontier.items()
            ]
            logits, wanted = self._run_lower(self.lower, batch)
            return {slot: list(rows) for slot, rows in zip(frontier, self.rows(logits, wanted), strict=True)}

        grow_together(growers, score)
        return [self._arranged(slot, one, row_of[slot]) for slot, one in growers.items()]

    def _lower_tokens(
        self,
        slot: int,
        nodes: Sequence[int],
        one: Grower,
        root: int,
        row_of: dict[int, int],
    ) -> tuple[int, Sequence[int] | Tensor, list[int]]:
        first = len(self.cache.slots[slot].depths)
        row_of.update({node: first + i for i, node in enumerate(nodes)})
        if list(nodes) == [ROOT]:
            return slot, [root], [ROOT]
        return (
            slot,
            one.ids(nodes),
            [row_of[one.parents[node]] for node in nodes],
        )

    def _run_lower(
        self, network: Any, batch: Sequence[tuple[int, Sequence[int] | Tensor, list[int]]]
    ) -> tuple[Tensor, list[tuple[int, list[int]]]]:
        """What ``network`` (the lower layers with or without head) gives for new rows, and which rows these are."""
        wanted = [(slot, self.cache.append(slot, parents)) for slot, _, parents in batch]
        logits, exits = self.passed(network, wanted, [tokens for _, tokens, _ in batch])
        for (slot, rows), seen in zip(wanted, exits, strict=True):
            known = [self._exits[slot]] if slot in self._exits else []
            self._exits[slot] = torch.cat([*known, seen[: len(rows)]])
        return logits, wanted

    def forward(
        self, network: Any, now: Any, ids: Tensor | None, embeddings: Tensor | None, logits_to_keep: int
    ) -> tuple[Tensor, ...]:
        """Logits; from the lower layers also the activations [B, N, hidden] at the exit."""
        outputs = super().forward(network, now, ids, embeddings, logits_to_keep)
        if network is self.upper or self.tap.seen is None:
            return outputs
        return *outputs, self.tap.seen

    def _arranged(self, slot: int, one: Grower, row_of: dict[int, int]) -> Draft:
        """The finished draft; scratch keeps the root and the draft's computed nodes only."""
        draft, created = one.finish()
        self._computed[slot] = [node for node, number in enumerate(created) if number in row_of]
        rows = [row_of[ROOT], *(row_of[created[node]] for node in self._computed[slot])] if row_of else []
        self.cache.arrange(slot, rows)
        if rows:
            self._exits[slot] = _ordered(self._exits[slot], rows)
        return draft

    # -- verification -------------------------------------------------------------------------------------------------

    def score(self, batch: Sequence[Candidates]) -> list[Scores]:
        """Lower layers for the nodes that drafting didn't compute, then the upper layers for all.

        A chain decoded alone has its last row deferred: computing it costs as much as another draft step. In a batch
        that pass is shared, and taken.
        """
        missing = [self._missing(one) for one in batch]
        if len(batch) == 1 and self._lacks_its_end_alone(batch[0], missing[0]):
            (rows,) = self._upper([(batch[0].slot, list(range(len(batch[0].tokens))))])
            return [Scores(rows, LastCandidate(self, *missing[0]))]
        if extensions := [one for one in missing if one[1]]:
            self._run_lower(self.body, extensions)
        wanted = [(one.slot, list(range(1 + len(one.tokens)))) for one in batch]
        return [
            Scores(_ordered(rows, self._rows(one.slot, range(len(one.tokens)))))
            for one, rows in zip(batch, self._upper(wanted), strict=True)
        ]

    def finish(self, slot: int, tokens: list[int], parents: list[int]) -> Tensor:
        """Logits [n, V] of candidates after scratch rows ``parents``, through the lower and the upper layers."""
        _, wanted = self._run_lower(self.body, [(slot, tokens, parents)])
        return self._upper(wanted)[0]

    def _upper(self, wanted: Sequence[tuple[int, list[int]]]) -> list[Tensor]:
        """Logits [n, V] of rows whose activations at the exit are known."""
        width = max(len(rows) for _, rows in wanted)
        exits = [
            nn.functional.pad(self._exits[slot][rows[0] : rows[-1] + 1], (0, 0, 0, width - len(rows)))
            for slot, rows in wanted
        ]
        return self.run(self.upper, wanted, None, embeddings=torch.stack(exits))

    def _lacks_its_end_alone(self, one: Candidates, missing: tuple[int, list[int], list[int]]) -> bool:
        """Whether the draft is a chain of which drafting computed all but the last candidate."""
        chain = one.parents == tuple(range(ROOT, len(one.parents) - 1))
        return chain and one.slot in self._exits and len(missing[1]) == 1

    def _missing(self, one: Candidates) -> tuple[int, list[int], list[int]]:
        """What the lower layers haven't seen of this draft; notes the scratch row of every node."""
        computed = self._computed.get(one.slot, [])
        row_of = {ROOT: 0} | {node: 1 + i for i, node in enumerate(computed)}
        rest = [node for node in range(len(one.tokens)) if node not in row_of]
        row_of |= {node: 1 + len(computed) + i for i, node in enumerate(rest)}
        self._row_of[one.slot] = row_of
        tokens = [one.tokens[node] for node in rest]
        parents = [row_of[one.parents[node]] for node in rest]
        if one.slot not in self._exits:
            return one.slot, [one.root, *tokens], [ROOT, *parents]
        return one.slot, tokens, parents

    def _rows(self, slot: int, nodes: Sequence[int]) -> list[int]:
        return [0, *(self._row_of[slot][node] for node in nodes)]

    def keep(self, slot: int, path: Sequence[int]) -> None:
        """Commit the root and the accepted candidates."""
        self.cache.keep(slot, self._rows(slot, path))
        self._forget(slot)

    def open(self, slot: int, tokens: Sequence[int]) -> None:
        """Prefill the whole model."""
        self._forget(slot)
        super().open(slot, tokens)

    def close(self, slot: int) -> None:
        """Forget the slot's sequence."""
        self._forget(slot)
        super().close(slot)

    def _forget(self, slot: int) -> None:
        for known in (self._exits, self._computed, self._row_of):
            known.pop(slot, None)


@dataclass(frozen=True, slots=True)
class LastCandidate:
    """The deferred row of a chain's last candidate, which drafting didn't run through the lower layers."""

    target: SplitTarget
    slot: int
    tokens: list[int]
    parents: list[int]

    def compute(self) -> Tensor:
        """Logits [1, V], by a pass of one node through the lower and the upper layers."""
        return self.target.finish(self.slot, self.tokens, self.parents)


def _ordered(rows: Tensor, order: list[int]) -> Tensor:
    """``rows`` [n, …] in this order; the first ones as they lie (a chain's always) without a copy."""
    return rows[: len(order)] if order == list(range(len(order))) else rows[order]
