"""A coin accepts below the threshold and nowhere else, for every rule and every kind of siblings."""

from __future__ import annotations

import pytest
import torch

from core.decoding.verify import walk
from core.drafting.draft import Draft, Drawing
from core.grammar import parse_rule
from core.records import ROOT, Verdict
from core.rules.table import token_rule
from tests.helpers.fakes import scripted
from tests.helpers.rule_texts import RULES

ONLY_POSSIBLE = [rule for rule in RULES if rule.startswith(("lossless", "spec_cascade", "typical", "truncation"))]
"""Rules under which a token of probability 0 is never accepted."""

P = torch.tensor([0.5, 0.3, 0.2, 0.0])
Q = torch.tensor([0.1, 0.2, 0.3, 0.4])
DRAWINGS: tuple[Drawing, ...] = ("deterministic", "with_replacement", "without_replacement")
HIGH = 1.0 - 2.0**-40
"""The largest coin that is tossed here: it fails every threshold but 1."""


def siblings(tokens: tuple[int, ...], drawing: Drawing) -> Draft:
    """Candidates after the root."""
    parents = (ROOT,) * len(tokens)
    if drawing == "deterministic":
        return Draft.chosen(tokens, parents)
    return Draft.drawn(tokens, parents, [Q] * len(tokens), drawing=drawing)


def walked(rule: str, draft: Draft, coins: list[float]) -> Verdict:
    """The walk with these coins, then high ones."""
    streams = scripted(coin=[*coins, *[HIGH] * len(draft.tokens)], redraw=[0.5])
    return walk(draft, lambda _: P, token_rule(parse_rule(rule)), streams)


@pytest.mark.parametrize("drawing", DRAWINGS)
@pytest.mark.parametrize("rule", RULES)
def test_a_coin_on_the_threshold_rejects_and_one_below_accepts(rule: str, drawing: Drawing) -> None:
    for tokens in [(0,), (1,), (2,), (3,), (2, 1), (3, 2), (3, 1, 2)]:
        draft, coins = siblings(tokens, drawing), []
        for place in range(len(tokens)):
            threshold = walked(rule, draft, coins).trials[place].accept_prob
            assert not walked(rule, draft, [*coins, threshold]).trials[place].accepted
            if threshold > 0.0:
                assert walked(rule, draft, [*coins, threshold * HIGH]).trials[place].accepted
            coins.append(threshold)


@pytest.mark.parametrize("drawing", DRAWINGS)
@pytest.mark.parametrize(
    "rule", ["lossless", *(rule for rule in RULES if rule.startswith(("spec", "typical", "trunc")))]
)
def test_a_coin_of_zero_does_not_accept_a_token_of_probability_zero(rule: str, drawing: Drawing) -> None:
    verdict = walked(rule, siblings((3,), drawing), [0.0])
    assert verdict.trials[0].accept_prob == 0.0
    assert not verdict.trials[0].accepted
    assert verdict.source == "correction"


def test_a_blocks_coins_on_their_thresholds_reject_the_whole_chain() -> None:
    draft = Draft.drawn((2, 2), (ROOT, 0), [Q] * 2)
    thresholds = [trial.accept_prob for trial in walked("block", draft, []).trials]
    assert all(0.0 < threshold < 1.0 for threshold in thresholds)
    assert walked("block", draft, thresholds).path == ()
    assert walked("block", draft, [thresholds[0], thresholds[1] * HIGH]).path == (0, 1)
