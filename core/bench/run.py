"""A whole benchmark: load the pair, prepare workloads and contenders, take the turns, make rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from core.bench.agreement import OutputCheck
from core.bench.contender import Contender, Ours, Workload
from core.bench.flashspec_peer import FlashspecPeer
from core.bench.machine import machine, peak
from core.bench.measuring import measure, schedule
from core.bench.prompts import Prompt, prompts
from core.bench.rows import Row, rows
from core.bench.settings import Setting, grid
from core.bench.transformers_peer import NAME, SAME_LINEARS, TransformersPeer
from core.device import device_clock
from core.errors import BadInput


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure. ``exit_layers``: None means 26 of 30 of the model's layers; ``count``: prompts a turn, at least
    a batch."""

    drafters: tuple[str, ...]
    gammas: tuple[int, ...]
    batches: tuple[int, ...]
    exit_layers: int | None
    against: tuple[str, ...]
    prompts: str
    count: int
    tokens: int
    runs: int


def bench(pair: Any, plan: Plan, progress: Callable[[str], object]) -> tuple[list[Row], dict[str, str]]:
    """Measures ``plan`` on the pair; returns the rows and facts about the machine. Raises BadInput where the plan does
    not suit the pair."""
    layers = pair.target.network.config.get_text_config(decoder=True).num_hidden_layers
    exit_layers = plan.exit_layers or max(1, layers * 26 // 30)
    if "early_exit" in plan.drafters and exit_layers >= layers:
        raise BadInput(
            f"an early exit after {exit_layers} layers is none: {pair.target.name} has {layers}. "
            "Choose fewer with --exit-layers, or other --drafters."
        )
    settings = grid(plan.drafters, plan.gammas, plan.batches, exit_layers)
    counts = {batch: -(-plan.count // batch) * batch for batch in plan.batches}
    texts = prompts(plan.prompts, max(counts.values()))
    workloads = {one: _workloads(pair, one, texts[: counts[one.batch]], plan.tokens) for one in settings}
    series = measure(
        workloads,
        _contenders(pair, plan.against),
        schedule(plan.runs, pair.device.type == "cuda"),
        OutputCheck(pair),
        clock=device_clock(pair.device),
        peak=lambda: peak(pair.device),
        progress=progress,
    )
    return rows(series, counts, NAME, SAME_LINEARS), machine(pair) | {
        "prompts": plan.prompts,
        "date": time.strftime("%Y-%m-%d"),
    }


def _workloads(pair: Any, setting: Setting, texts: Sequence[Prompt], tokens: int) -> list[Workload]:
    requests = [setting.request(prompt, tokens) for prompt in texts]
    ids = [tuple(pair.text.encode(request)) for request in requests]
    room = pair.target.context - max(map(len, ids))
    if room < tokens:
        raise BadInput(
            f"{tokens} new tokens after the longest prompt do not fit into the context of {pair.target.name} "
            f"({pair.target.context:,} tokens): choose fewer --tokens."
        )
    batches = range(0, len(requests), setting.batch)
    size = setting.batch
    return [Workload(setting, tuple(requests[at : at + size]), tuple(ids[at : at + size]), tokens) for at in batches]


def _contenders(pair: Any, against: Sequence[str]) -> list[Contender]:
    made: list[Contender] = [Ours(pair)]
    if "transformers" in against:
        made += [TransformersPeer(pair), TransformersPeer(pair, same_linears=True)]
    if "flashspec" in against:
        made.append(FlashspecPeer(pair))
    return made
