"""Self-speculation: the target's first k layers draft, verification runs layers k…L only (article, LayerSkip).

Drafting and verification share the cache rows of the first k layers and the activations at the exit. If an architecture
can't continue from those activations, drafting has its own cache and verification computes all layers again;
``recomputed_share`` records how much is computed twice.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from core.cache.rows import Extension, ScratchRows
from core.cache.slots import SlotModel
from core.cache.target import Candidates, Scores
from core.drafting.base import DraftRequest, NoDraft
from core.drafting.draft import Draft
from core.drafting.growing import GrownDraft, grow_drafts
from core.errors import ModelUnavailable
from core.faults import is_out_of_memory
from core.records import ROOT


class Tap(nn.Module):
    """Layer wrapper that stores the layer's output: the activations at the exit, before the final norm."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer
        self.seen: Tensor | None = None

    def __getattr__(self, name: str) -> Any:
        """Return attributes that the model reads from its layers (the kind of attention, say) from the inner layer."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.layer, name)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the inner layer and store its output."""
        output = self.layer(*args, **kwargs)
        self.seen = output[0] if isinstance(output, tuple) else output
        return output


def layers_of(network: Any, start: int, stop: int) -> Any:
    """A causal LM of layers ``start`` … ``stop``−1 of ``network``, sharing its modules (embedding, norm and head too).

    Raises :class:`ModelUnavailable` if the decoder has no list of layers, or counts them differently (LongCat).
    """
    base = network.base_model
    layers = getattr(base, "layers", None)
    if not isinstance(layers, nn.ModuleList) or len(layers) != getattr(network.config, "num_hidden_layers", None):
        raise ModelUnavailable(
            f"{type(network).__name__} keeps its layers in a way early exit can't cut: choose another drafter."
        )
    config = copy.deepcopy(network.config)
    config.num_hidden_layers = stop - start
    if kinds := getattr(config, "layer_types", None):
        config.layer_types = list(kinds[start:stop])
    part = _copied(network)
    part.base_model.layers = nn.ModuleList(layers[start:stop])
    part.config = part.base_model.config = config
    return part


def _copied(network: Any) -> Any:
    """``network`` and its decoder as new modules with the same children, from which layers can be cut."""
    part, base = copy.copy(network), copy.copy(network.base_model)
    part._modules, base._modules = dict(network._modules), dict(network.base_model._modules)
    setattr(part, network.base_model_prefix, base)
    return part


_MEASURED: WeakKeyDictionary[Any, dict[int, bool]] = WeakKeyDictionary()
"""Results of :func:`shares_activations` by exit layer, kept as long as the network exists."""


def shares_activations(network: Any, layers: int) -> bool:
    """True if running the first ``layers`` layers, then the rest on their activations, equals the whole model.

    Measured once per network and exit on a short input, rather than assumed from the architecture's name.
    """
    known = _MEASURED.setdefault(network, {})
    if layers not in known:
        try:
            known[layers] = _continues_from_exit(network, layers)
        except RuntimeError as error:  # its modules count on all layers (Gemma 4's embeddings per layer)
            if is_out_of_memory(error):
                raise
            raise ModelUnavailable(
                f"{type(network).__name__} doesn't run with some of its layers alone, so early exit can't cut it: "
                "choose another drafter."
            ) from error
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
    """Drafter of a split target: its drafts use the target's own slots, so it only has to propose."""

    recomputed_share: float | None = 0.0

    def __init__(self, target: SplitTarget) -> None:
        self.target = target

    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """Drafts grown with the target's lower layers."""
        return self.target.propose(requests)


@dataclass(slots=True)
class _Scratch:
    """Results of the lower layers for one slot's scratch region, row by row; row 0 is the root.

    ``exits`` [rows, hidden] are the activations at the exit; ``row_of`` maps draft nodes to scratch rows: at first the
    nodes computed while drafting, and all nodes once the draft is scored.
    """

    exits: Tensor | None = None
    row_of: dict[int, int] = field(default_factory=dict)

    def add(self, exits: Tensor) -> None:
        """Append the activations [n, hidden] of n new rows."""
        self.exits = exits if self.exits is None else torch.cat([self.exits, exits])

    def rows(self, nodes: Iterable[int]) -> list[int]:
        """Scratch rows of the root and of ``nodes``."""
        return [0, *(self.row_of[node] for node in nodes)]


class SplitTarget(SlotModel):
    """A target split at an exit: its lower layers draft in its own scratch region, its upper layers finish the pass.

    Scratch rows whose lower layers were computed while drafting come first, then the other rows.
    """

    def __init__(self, network: Any, layers: int, vocab: int, slots: int, capacity: int) -> None:
        super().__init__(network, vocab, slots, capacity)
        network, total = self.network, network.config.num_hidden_layers
        self.lower = layers_of(network, 0, layers)
        self.upper = layers_of(network, layers, total)
        self.tap = Tap(self.lower.base_model.layers[-1])
        self.lower.base_model.layers[-1] = self.tap
        self.body = layers_of(network, 0, layers)
        """The lower layers without the head, for rows whose draft logits nothing reads."""
        self.body.base_model.layers = self.lower.base_model.layers
        self.body.set_output_embeddings(nn.Identity())
        self._scratch = [_Scratch() for _ in range(slots)]

    # -- drafting -----------------------------------------------------------------------------------------------------

    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """Grow the requested shapes with the lower layers; scratch then holds the root and the computed candidates."""
        drafts = grow_drafts(requests, _root, self._draft_rows)
        for one in drafts:
            self._arrange(one)
        return [one.draft for one in drafts]

    def _draft_rows(self, batch: Sequence[Extension]) -> list[Tensor]:
        computed, wanted = self._run_lower(self.lower, batch)
        return self.logits(computed, wanted)

    def _run_lower(self, network: Any, batch: Sequence[Extension]) -> tuple[Tensor, list[ScratchRows]]:
        """Run ``network`` (the lower layers, with or without head) on new rows: its output, and these rows."""
        wanted = self.append(batch)
        computed, exits = self.outputs(network, wanted, [one.tokens for one in batch])
        for one, seen in zip(wanted, exits, strict=True):
            self._scratch[one.slot].add(seen[: len(one.rows)])
        return computed, wanted

    def forward(
        self, network: Any, now: Any, ids: Tensor | None, embeddings: Tensor | None, logits_to_keep: int
    ) -> tuple[Tensor, ...]:
        """Logits, and from the lower layers also the activations [B, N, hidden] at the exit."""
        outputs = super().forward(network, now, ids, embeddings, logits_to_keep)
        if network is self.upper or self.tap.seen is None:
            return outputs
        return *outputs, self.tap.seen

    def _arrange(self, grown: GrownDraft) -> None:
        """Reduce scratch to the root and the draft's computed candidates, in draft order."""
        scratch = self._scratch[grown.slot]
        computed = {node: row for node, row in enumerate(grown.rows) if row is not None}
        rows = [0, *computed.values()] if grown.fed else []
        self.cache.arrange(grown.slot, rows)
        scratch.row_of = {node: 1 + i for i, node in enumerate(computed)}
        if scratch.exits is not None:
            scratch.exits = _ordered(scratch.exits, rows)

    # -- verification -------------------------------------------------------------------------------------------------

    def score(self, batch: Sequence[Candidates]) -> list[Scores]:
        """Run the lower layers on the nodes that drafting didn't compute, then the upper layers on all nodes.

        For a chain decoded alone, the last row is deferred: computing it costs as much as another draft step. In a
        batch the requests share that pass, so it runs at once.
        """
        missing = [self._missing(one) for one in batch]
        if len(batch) == 1 and self._lacks_its_end_alone(batch[0], missing[0]):
            (rows,) = self._upper([ScratchRows(batch[0].slot, range(len(batch[0].tokens)))])
            return [Scores(rows, LastCandidate(self, missing[0]))]
        if extensions := [one for one in missing if len(one.tokens)]:
            self._run_lower(self.body, extensions)
        upper = self._upper([ScratchRows(one.slot, range(1 + len(one.tokens))) for one in batch])
        return [
            Scores(_ordered(rows, self._scratch[one.slot].rows(range(len(one.tokens)))))
            for one, rows in zip(batch, upper, strict=True)
        ]

    def finish(self, extension: Extension) -> Tensor:
        """Logits [n, V] of new rows through the lower and the upper layers."""
        _, wanted = self._run_lower(self.body, [extension])
        return self._upper(wanted)[0]

    def _upper(self, wanted: Sequence[ScratchRows]) -> list[Tensor]:
        """Logits [n, V] of rows whose activations at the exit are already computed."""
        width = max(len(one.rows) for one in wanted)
        exits = [nn.functional.pad(self._exits(one), (0, 0, 0, width - len(one.rows))) for one in wanted]
        return self.run(self.upper, wanted, None, embeddings=torch.stack(exits))

    def _exits(self, one: ScratchRows) -> Tensor:
        """Activations [n, hidden] at the exit of contiguous rows."""
        exits = self._scratch[one.slot].exits
        assert exits is not None
        return exits[one.rows[0] : one.rows[-1] + 1]

    def _lacks_its_end_alone(self, one: Candidates, missing: Extension) -> bool:
        """Whether the draft is a chain and drafting computed all of it but the last candidate."""
        chain = tuple(one.parents) == tuple(range(ROOT, len(one.parents) - 1))
        return chain and self._scratch[one.slot].exits is not None and len(missing.tokens) == 1

    def _missing(self, one: Candidates) -> Extension:
        """Candidates that the lower layers haven't computed yet; their rows follow the computed rows."""
        scratch = self._scratch[one.slot]
        rest = [node for node in range(len(one.tokens)) if node not in scratch.row_of]
        first = 1 + len(scratch.row_of)
        scratch.row_of |= {node: first + i for i, node in enumerate(rest)}
        row_of = {ROOT: 0} | scratch.row_of
        tokens = [one.tokens[node] for node in rest]
        parents = [row_of[one.parents[node]] for node in rest]
        if scratch.exits is None:
            return Extension(one.slot, [one.root, *tokens], [ROOT, *parents])
        return Extension(one.slot, tokens, parents)

    def keep(self, slot: int, path: Sequence[int]) -> None:
        """Commit the root and the accepted candidates."""
        self.cache.keep(slot, self._scratch[slot].rows(path))
        self._scratch[slot] = _Scratch()

    def open(self, slot: int, tokens: Sequence[int]) -> None:
        """Prefill the whole model."""
        self._scratch[slot] = _Scratch()
        super().open(slot, tokens)

    def close(self, slot: int) -> None:
        """Forget the slot's sequence."""
        self._scratch[slot] = _Scratch()
        super().close(slot)


@dataclass(frozen=True, slots=True)
class LastCandidate:
    """Deferred row of a chain's last candidate, which drafting didn't run through the lower layers."""

    target: SplitTarget
    missing: Extension

    def compute(self) -> Tensor:
        """Run one node through the lower and the upper layers: logits [1, V]."""
        return self.target.finish(self.missing)


def _root(request: DraftRequest) -> Sequence[int]:
    """The root: the only committed token that the target's cache lacks."""
    return request.prefix[-1:]


def _ordered(rows: Tensor, order: list[int]) -> Tensor:
    """``rows`` [n, …] in this order, without a copy if they are in order already (as a chain's always are)."""
    return rows[: len(order)] if order == list(range(len(order))) else rows[order]
