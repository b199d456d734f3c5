"""``python -m core bench …``: the benchmark's command line. No torch is imported until a benchmark runs."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from core.errors import BadInput, EngineFault

AGAINST = ("transformers", "flashspec")


def bench(
    pair: Annotated[str, typer.Option(help="embedded, a preset (see: models) or TARGET.")] = "embedded",
    against: Annotated[str, typer.Option(help="transformers and flashspec, or none.")] = "transformers",
    prompts: Annotated[str, typer.Option(help="humaneval or chat.")] = "humaneval",
    drafters: Annotated[
        str, typer.Option(help="Some of plain, prompt_lookup, early_exit.")
    ] = "plain,prompt_lookup,early_exit",
    gammas: Annotated[str, typer.Option(help="Candidates a round.")] = "2,4,8",
    batches: Annotated[str, typer.Option(help="Requests decoded together; drafters use the smallest γ there.")] = (
        "1,4,16"
    ),
    exit_layers: Annotated[int | None, typer.Option(help="Layers that draft; default: 26 of 30 of them.")] = None,
    tokens: Annotated[int, typer.Option(help="New tokens a prompt.")] = 64,
    runs: Annotated[int, typer.Option(help="Timed turns of every contender.")] = 5,
    count: Annotated[int, typer.Option(help="Prompts a turn, at least a batch.")] = 2,
    precision: Annotated[str, typer.Option(help="auto, float32, bfloat16, float16 or int8 (CPU).")] = "auto",
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per row.")] = False,
) -> None:
    """Measure this engine's speed beside other engines, interleaved, and check that all give the same tokens."""
    from core.bench.prompts import prompts as look_up
    from core.bench.settings import grid
    from core.types import PairSpec, valid

    peers = () if against.strip() == "none" else _names(against, "--against")
    for name in peers:
        if name not in AGAINST:
            raise BadInput(f"{name!r} is no engine to compare with: write {' or '.join(AGAINST)}, or none.")
    asked = {"--tokens": tokens, "--runs": runs, "--count": count}
    asked |= {} if exit_layers is None else {"--exit-layers": exit_layers}
    for option, value in asked.items():
        if value < 1:
            raise BadInput(f"{option} is {value}: write 1 or more.")
    spec = valid(PairSpec, name=pair, precision=precision, device=device)
    chosen = (_names(drafters, "--drafters"), _numbers(gammas, "--gammas"), _numbers(batches, "--batches"))
    # what can be refused is refused before the weights are read
    grid(*chosen, exit_layers or 1)
    look_up(prompts, 1)
    from core.bench.flashspec_peer import check_installed

    if "flashspec" in peers:
        check_installed()
    from core.bench.rows import show
    from core.bench.run import Plan
    from core.bench.run import bench as measured
    from core.models.load import load_pair

    loaded = load_pair(spec, lambda message, share: typer.echo(f"{share:4.0%} {message}", err=True))
    plan = Plan(*chosen, exit_layers, peers, prompts, count, tokens, runs)
    rows, machine = measured(loaded, plan, lambda message: typer.echo(message, err=True))
    if as_json:
        for row in rows:
            typer.echo(json.dumps(row.plain() | {"machine": machine}, ensure_ascii=False, allow_nan=False))
    else:
        show(rows, machine)
    if errors := [f"{row.name}: {row.error}" for row in rows if row.error]:
        more = f" ({len(errors) - 1} more, see the rows)" if len(errors) > 1 else ""
        raise EngineFault(errors[0] + more)


def _names(text: str, option: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not names:
        raise BadInput(f"{option} is empty: name at least one.")
    return names


def _numbers(text: str, option: str) -> tuple[int, ...]:
    names = _names(text, option)
    if wrong := next((name for name in names if not (name.isascii() and name.isdigit() and 1 <= int(name) <= 256)), ""):
        raise BadInput(f"{wrong!r} in {option} is no whole number from 1 to 256.")
    return tuple(dict.fromkeys(map(int, names)))
