"""flashspec as a peer, where it is installed: its n-gram drafter, one request at a time, greedy."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from core.bench.contender import Answer, Job
from core.bench.settings import Setting
from core.bench.transformers_peer import quiet_library, until_end
from core.errors import PeerUnavailable
from core.models.attention import library_attention
from core.models.packing import original_linears
from core.types import PromptLookupDrafter

if TYPE_CHECKING:
    from core.models.load import Pair

NAME = "flashspec"


class FlashspecPeer:
    """flashspec's engine on the pair's target with its own linear modules. It has no plain decoding and no early exit
    of the target. Raises PeerUnavailable when it isn't installed."""

    peer: str | None = NAME

    def __init__(self, pair: Pair) -> None:
        check_installed()
        self._pair = pair
        self._library: Any = importlib.import_module("flashspec")
        verifier: Any = importlib.import_module("flashspec.engine.verifier")
        self._ngram: Any = importlib.import_module("flashspec.engine.ngram")
        self._arms: Any = importlib.import_module("flashspec.engine.arms")
        self._target = verifier.TargetModel(pair.target.name, pair.device, pair.dtype, model=pair.target.network)

    def unsupported(self, setting: Setting) -> str:
        """Only prompt lookup of a single request is."""
        lookup = isinstance(setting.drafter, PromptLookupDrafter)
        return "" if lookup and setting.batch == 1 else "flashspec looks prompts up for single requests only"

    @contextmanager
    def ready(self, job: Job, watched: bool) -> Iterator[Callable[[], Answer]]:
        """An engine with one arm: this γ."""
        network = self._pair.target.network
        with (
            original_linears(network),
            library_attention(network),
            quiet_library(),
            _quiet_log(),
            warnings.catch_warnings(),
        ):
            # it still passes the cache under the name that transformers is about to drop
            warnings.filterwarnings("ignore", message="`past_key_values` is deprecated", category=FutureWarning)
            engine = self._engine(job)
            ids = torch.tensor([job.prompts[0]], device=self._pair.device)
            yield lambda: self._decode(job, engine, ids)

    def _engine(self, job: Job) -> Any:
        drafter, gamma = job.setting.drafter, job.setting.gamma
        assert isinstance(drafter, PromptLookupDrafter)
        library = self._library
        config = library.FlashSpecConfig(
            device=str(self._pair.device),
            dtype=self._pair.precision,
            sampling=library.SamplingConfig(gamma=gamma, temperature=0.0),
            bandit=library.BanditConfig(n_arms=1),
        )
        lookup = self._ngram.NgramDrafter(max_ngram=drafter.max_ngram, min_ngram=drafter.min_ngram)
        arm = self._arms.ArmSpec(drafter=0, gamma=gamma)
        return library.SpeculativeEngine(config, [lookup], self._target, arms=[arm])

    def _decode(self, job: Job, engine: Any, ids: torch.Tensor) -> Answer:
        eos = self._pair.text.eos
        result = engine.generate(ids, max_new_tokens=job.tokens, eos_token_ids=sorted(eos))
        new = result.output_ids[0, : result.n_tokens_generated].tolist()
        return Answer((until_end(new, eos),), rounds=len(result.arm_steps))


@contextmanager
def _quiet_log() -> Iterator[None]:
    """Its log tells, at every start, which of its paths runs."""
    log = logging.getLogger(NAME)
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)


def check_installed() -> None:
    """Raises PeerUnavailable, saying how to install it, when flashspec is not there."""
    if importlib.util.find_spec(NAME) is None:
        raise PeerUnavailable(
            "flashspec is not installed here: run `pip install -r requirements-bench.txt`, "
            "or leave it out of --against."
        )
