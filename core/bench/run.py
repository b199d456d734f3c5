"""A whole benchmark: load the pair, prepare jobs and contenders, take the turns, make rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from core.bench.agreement import Agreement
from core.bench.contender import Contender, Job
from core.bench.flashspec_peer import FlashspecPeer
from core.bench.machine import machine
from core.bench.measuring import measure, schedule
from core.bench.ours import Ours
from core.bench.peak import peak
from core.bench.prompts import Prompt, prompts
from core.bench.rows import Row, rows
from core.bench.settings import Setting, grid
from core.bench.transformers_peer import NAME, SAME_LINEARS, TransformersPeer
from core.device import device_clock
from core.errors import BadInput


@dataclass(frozen=True, slots=True)
class Plan:
    """What was asked for. ``exit_layers``: None takes 26 of 30 of the model's layers; ``count``: prompts a turn, at
    least a batch."""

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
    """Rows, and the machine they are from. Raises BadInput where the plan and the pair don't fit."""
    layers = pair.target.network.config.num_hidden_layers
    exit_layers = plan.exit_layers or max(1, layers * 26 // 30)
    if "early_exit" in plan.drafters and exit_layers >= layers:
        raise BadInput(
            f"an early exit after {exit_layers} layers is none: {pair.target.name} has {layers}. "
            "Choose fewer with --exit-layers, or other --drafters."
        )
    settings = grid(plan.drafters, plan.gammas, plan.batches, exit_layers)
    counts = {batch: -(-plan.count // batch) * batch for batch in plan.batches}
    texts = prompts(plan.prompts, max(counts.values()))
    jobs = {one: _jobs(pair, one, texts[: counts[one.batch]], plan.tokens) for one in settings}
    series = measure(
        jobs,
        _contenders(pair, plan.against),
        schedule(plan.runs, pair.device.type == "cuda"),
        Agreement(pair),
        clock=device_clock(pair.device),
        peak=lambda: peak(pair.device),
        progress=progress,
    )
    return rows(series, counts, NAME, SAME_LINEARS), machine(pair) | {
        "prompts": plan.prompts,
        "date": time.strftime("%Y-%m-%d"),
    }


def _jobs(pair: Any, setting: Setting, texts: Sequence[Prompt], tokens: int) -> list[Job]:
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
    return [Job(setting, tuple(requests[at : at + size]), tuple(ids[at : at + size]), tokens) for at in batches]


def _contenders(pair: Any, against: Sequence[str]) -> list[Contender]:
    made: list[Contender] = [Ours(pair)]
    if "transformers" in against:
        made += [TransformersPeer(pair), TransformersPeer(pair, same_linears=True)]
    if "flashspec" in against:
        made.append(FlashspecPeer(pair))
    return made
