"""flashspec as a peer, if installed: its n-gram drafter, one request at a time, greedy."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from core.bench.contender import Answer, Workload
from core.bench.settings import Setting
from core.bench.transformers_peer import quiet_library, until_end
from core.errors import PeerUnavailable
from core.models.attention import library_attention
from core.models.packing import original_linears
from core.types import PromptLookupDrafter

if TYPE_CHECKING:
    from core.models.pair import Pair

NAME = "flashspec"


class FlashspecPeer:
    """flashspec's engine on the pair's target with its own linear modules. It has neither plain decoding nor early
    exit. Raises PeerUnavailable when flashspec isn't installed."""

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
        """Everything but prompt lookup of a single request is unsupported."""
        lookup = isinstance(setting.drafter, PromptLookupDrafter)
        return "" if lookup and setting.batch == 1 else "flashspec looks prompts up for single requests only"

    @contextmanager
    def ready(self, workload: Workload, watched: bool) -> Iterator[Callable[[], Answer]]:
        """Prepares an engine with a single arm: prompt lookup at this γ."""
        network = self._pair.target.network
        with (
            original_linears(network),
            library_attention(network),
            quiet_library(),
            _quiet_log(),
            warnings.catch_warnings(),
        ):
            # flashspec passes the cache under a name that transformers deprecates
            warnings.filterwarnings("ignore", message="`past_key_values` is deprecated", category=FutureWarning)
            engine = self._engine(workload)
            ids = torch.tensor([workload.prompts[0]], device=self._pair.device)
            yield lambda: self._decode(workload, engine, ids)

    def _engine(self, workload: Workload) -> Any:
        drafter, gamma = workload.setting.drafter, workload.setting.gamma
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

    def _decode(self, workload: Workload, engine: Any, ids: torch.Tensor) -> Answer:
        eos = self._pair.text.eos
        result = engine.generate(ids, max_new_tokens=workload.tokens, eos_token_ids=sorted(eos))
        new = result.output_ids[0, : result.n_tokens_generated].tolist()
        return Answer((until_end(new, eos),), rounds=len(result.arm_steps))


@contextmanager
def _quiet_log() -> Iterator[None]:
    """Silences flashspec's log, which reports its choice of code path at every start."""
    log = logging.getLogger(NAME)
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)


def check_installed() -> None:
    """Raises PeerUnavailable, with how to install flashspec, when it isn't installed."""
    if importlib.util.find_spec(NAME) is None:
        raise PeerUnavailable(
            "flashspec is not installed here: run `pip install -r requirements-bench.txt`, "
            "or leave it out of --against."
        )
