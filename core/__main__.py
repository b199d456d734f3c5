"""Headless SpecLens: ``python -m core generate …``, ``… rules``, ``… models`` and ``… bench`` (a composition root)."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from core.bench.command import bench
from core.errors import BadInput, SpecLensError, StorageUnavailable
from core.grammar import (
    ALLOWED_HELP,
    DRAFTER_HELP,
    RULE_HELP,
    SHAPE_HELP,
    parse_allowed,
    parse_drafter,
    parse_rule,
    parse_shape,
)
from core.streams import show_anything, standard_input
from core.types import (
    ChainShape,
    NoDrafter,
    NoShape,
    PairSpec,
    Request,
    Sampling,
    Stops,
    valid,
)
from core.waiting import wait_politely

app = typer.Typer(
    help="Speculative decoding, measured round by round.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

DEFAULT_SHAPE = ChainShape(gamma=4)

app.command()(bench)


@app.command()
def generate(
    prompt: Annotated[str | None, typer.Option(help="What to decode; '-' reads standard input.")] = None,
    batch: Annotated[
        Path | None,
        typer.Option(
            help="JSON lines decoded together: prompt, and fields that go over the options: chat, seed, drafter, "
            "shape, rule, max_new_tokens, stop_strings, sampling {…}."
        ),
    ] = None,
    pair: Annotated[str, typer.Option(help="embedded, a preset (see: models), TARGET or TARGET+DRAFT.")] = "embedded",
    drafter: Annotated[str | None, typer.Option(help=f"{DRAFTER_HELP}; default: the pair's.")] = None,
    shape: Annotated[str | None, typer.Option(help=f"{SHAPE_HELP}; default: chain:4.")] = None,
    rule: Annotated[str, typer.Option(help=RULE_HELP)] = "lossless",
    chat: Annotated[bool, typer.Option("--chat/--raw", help="Wrap the prompt in the chat template, or not.")] = True,
    max_new_tokens: Annotated[int, typer.Option(help="Longest answer, tokens.")] = 128,
    stop: Annotated[list[str] | None, typer.Option(help="Stop string; may be given several times.")] = None,
    temperature: Annotated[float, typer.Option(help="0 decodes greedily.")] = 0.0,
    top_k: Annotated[int, typer.Option(help="0 = off.")] = 0,
    top_p: Annotated[float, typer.Option(help="1 = off.")] = 1.0,
    min_p: Annotated[float, typer.Option(help="0 = off; truncates the target only.")] = 0.0,
    eta: Annotated[float, typer.Option(help="0 = off; truncates the target only.")] = 0.0,
    epsilon: Annotated[float, typer.Option(help="0 = off; truncates the target only.")] = 0.0,
    repetition_penalty: Annotated[float, typer.Option(help="1 = off.")] = 1.0,
    min_new_tokens: Annotated[int, typer.Option(help="No end token before this many tokens.")] = 0,
    truncate_draft: Annotated[bool, typer.Option(help="Let min-p, η and ε truncate the draft as well.")] = False,
    allowed: Annotated[str, typer.Option(help=f"Further allowed sets of the target: {ALLOWED_HELP}.")] = "",
    distortion: Annotated[
        bool, typer.Option("--distortion/--no-distortion", help="Measure what the rule emits at each tested position.")
    ] = True,
    seed: Annotated[int, typer.Option(help="Seeds the request's three random streams.")] = 0,
    precision: Annotated[
        str, typer.Option(help="auto, float32, bfloat16, float16, or int8 (CPU): another target.")
    ] = "auto",
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per round, then the summary.")] = False,
    save: Annotated[bool, typer.Option(help="Keep the run in the history (the app must be closed).")] = False,
) -> None:
    """Decode a prompt (or a batch) speculatively and show every round."""
    from core.pairs.presets import default_drafter

    chosen = parse_drafter(drafter) if drafter else default_drafter(pair)
    if isinstance(chosen, NoDrafter) and shape is None:
        shaped = NoShape()
    else:
        shaped = parse_shape(shape) if shape else DEFAULT_SHAPE
    if isinstance(shaped, NoShape) and drafter is None:
        chosen = NoDrafter()
    sampling = valid(
        Sampling,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        eta=eta,
        epsilon=epsilon,
        repetition_penalty=repetition_penalty,
        min_new_tokens=min_new_tokens,
        truncate_draft=truncate_draft,
        allowed=parse_allowed(allowed),
    )
    fields: dict[str, Any] = {
        "chat": chat,
        "sampling": sampling,
        "stops": valid(Stops, max_new_tokens=max_new_tokens, stop_strings=tuple(stop or ())),
        "drafter": chosen,
        "shape": shaped,
        "rule": parse_rule(rule),
        "seed": seed,
        "measure_distortion": distortion,
    }
    requests = _requests(prompt, batch, fields)
    spec = valid(PairSpec, name=pair, precision=precision, device=device)
    from core.cli.terminal import JsonLines, Terminal

    decode(spec, requests, JsonLines() if as_json else Terminal(), save)


def _requests(prompt: str | None, batch: Path | None, fields: dict[str, Any]) -> list[Request]:
    if (prompt is None) == (batch is None):
        raise BadInput("give either --prompt or --batch.")
    if batch is None:
        text = standard_input() if prompt == "-" else prompt
        return [valid(Request, prompt=text, **fields)]
    from core.cli.batch import read_batch

    return read_batch(batch, valid(Request, prompt="of the line", **fields))


def decode(spec: PairSpec, requests: list[Request], show: Any, save: bool) -> None:
    """Decode ``requests`` on the pair of ``spec``, showing and (with ``save``) storing every record.

    Exits with 1 if a request failed and with 130 after an interrupt; rounds so far are shown and stored. Raises
    StorageUnavailable if anything could not be stored.
    """
    from core.cli.decode import run
    from core.rules.effects import notices

    for sentence in dict.fromkeys(text for request in requests for text in notices(request)):
        typer.echo(f"Note: {sentence}", err=True)
    with _kept(save) as store:
        code = run(spec, requests, show, store)
        if store is not None:
            store.flush()
            if store.trouble:
                raise StorageUnavailable(store.trouble)
    raise typer.Exit(code)


def _kept(save: bool) -> Any:
    from contextlib import closing, nullcontext

    if not save:
        return nullcontext()
    from storage.connect import default_path
    from storage.store import Store

    return closing(Store(default_path()))


@app.command()
def rules(
    p: Annotated[str | None, typer.Option("--p", help="The target's probabilities, as .5,.3,.2.")] = None,
    q: Annotated[str | None, typer.Option("--q", help="The draft's, over the same tokens.")] = None,
    rule: Annotated[
        list[str] | None, typer.Option(help=f"{RULE_HELP}; may be given several times. Default: all, as in the table.")
    ] = None,
    test: Annotated[
        int | None,
        typer.Option(
            help="Draw this many tokens through the verifier and test each rule's law; exit code 1: one fails."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seeds the draws of --test.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per rule.")] = False,
) -> None:
    """Show what every rule accepts, redraws and emits for one pair of distributions, and its distance from p.

    Without --p and --q: the rules that there are.
    """
    from core.cli import terminal

    if p is None and q is None:
        if rule or test is not None or as_json:
            raise BadInput("give --p and --q, as --p .5,.3,.2 --q .6,.1,.3.")
        terminal.catalogue_table()
        return
    if p is None or q is None:
        raise BadInput("give both --p and --q, over the same tokens.")
    from core.lab.emission import TABLE, emissions
    from core.lab.losslessness import verdict
    from core.lab.vocabularies import parse_distribution

    target, draft = parse_distribution(p, "p"), parse_distribution(q, "q")
    texts = tuple(rule or TABLE)
    if test is None:
        rows = emissions(texts, target, draft)
        if not as_json:
            terminal.rule_table(rows)
        for row in rows if as_json else ():
            terminal.rule_json(row)
        return
    found = [verdict(text, target, draft, test, seed) for text in texts]
    for one in found:
        if as_json:
            terminal.verdict_json(one)
        else:
            typer.echo(f"{'✓' if one.follows else '✗'} {one.sentence}")
    if not all(one.follows for one in found):
        raise typer.Exit(1)


@app.command()
def models(as_json: Annotated[bool, typer.Option("--json", help="One JSON object per pair.")] = False) -> None:
    """List the pairs that are known here and what each still lacks."""
    from core.pairs.presets import list_pairs

    for status in list_pairs():
        if as_json:
            typer.echo(json.dumps(asdict(status), ensure_ascii=False))
            continue
        names = status.target + (f" + {status.draft}" if status.draft else "")
        typer.echo(f"{'✓' if status.available else '·'} {status.name:<14} {names}")
        typer.echo(f"  {status.note}" + (f"\n  {status.missing}" if status.missing else ""))


def main(run: Callable[[], Any] = app) -> NoReturn:
    """Run the command line: exit code 2 after bad input, 1 after any other error, each with one sentence."""
    wait_politely()
    show_anything(sys.stdout, sys.stderr)
    try:
        run()
        sys.stdout.flush()
    except BrokenPipeError:  # whoever read the output has gone, as after "| head"
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except BadInput as error:
        _leave(error, 2)
    except SpecLensError as error:
        _leave(error, 1)
    sys.exit(0)


def _leave(error: Exception, code: int) -> NoReturn:
    text = str(error)
    typer.echo(f"Error: {text[:1].upper()}{text[1:]}", err=True)
    sys.exit(code)


if __name__ == "__main__":
    main()
