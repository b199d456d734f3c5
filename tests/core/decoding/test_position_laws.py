"""Every rule at every kind of position: what the engine's walk emits, enumerated, against what is measured and stated.

All draws and coins of one position are enumerated through ``core.decoding.verify.walk`` (:mod:`tests.helpers.explore`).
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
import torch
from torch import Tensor

import core.decoding.verify
from core.decoding.distortion import induced_law
from core.decoding.siblings import position_of
from core.decoding.verify import walk
from core.drafting.draft import Draft
from core.grammar import parse_rule
from core.records import ROOT, Verdict
from core.rules.table import induced, token_rule
from core.rules.target_law import TargetLawRule
from core.sampling.probability import without
from core.sampling.randomness import Streams
from tests.helpers.explore import Branching, branches, first_token_law
from tests.helpers.fakes import scripted
from tests.helpers.rule_texts import RULES, TARGET_LAWS, TRUNCATIONS

P = torch.tensor([0.5, 0.3, 0.15, 0.05])
Q = torch.tensor([0.4, 0.1, 0.3, 0.2])

Drawing = Literal["deterministic", "with_replacement", "without_replacement"]


def drafted(tokens, drawing: Drawing, q: Tensor = Q) -> Draft:
    return Draft.siblings(tokens, q, drawing)


def sampling(count: int, drawing: Drawing, q: Tensor = Q):
    def make(one: Branching) -> Draft:
        tokens, left = [], q
        for _ in range(count):
            tokens.append(one.draw(left, 0.5))
            if drawing == "without_replacement":
                left = without(left, tokens[-1])
        return drafted(tokens, drawing, q)

    return make


def measured(draft: Draft, rule: str, p: Tensor = P) -> tuple[list[float], bool]:
    made = token_rule(parse_rule(rule))
    found = induced_law(draft, draft.children(ROOT), position_of(draft, ROOT, p, made))
    return found.law.tolist(), found.conditional


@pytest.mark.parametrize("rule", RULES)
def test_a_sampled_candidate_emits_the_stated_law_and_is_measured_so(rule, monkeypatch):
    law = first_token_law(sampling(1, "with_replacement"), P, rule, monkeypatch)
    assert law == pytest.approx(induced(token_rule(parse_rule(rule)), P, Q).tolist(), abs=1e-6)
    for token in range(4):
        assert measured(drafted((token,), "with_replacement"), rule) == (pytest.approx(law, abs=1e-6), False)


@pytest.mark.parametrize("rule", RULES)
def test_deterministic_siblings_are_measured_as_the_walk_emits_them(rule, monkeypatch):
    for tokens in (t for n in (1, 2, 3) for t in itertools.permutations(range(4), n)):
        draft = drafted(tokens, "deterministic")
        law = first_token_law(lambda one, draft=draft: draft, P, rule, monkeypatch)
        assert sum(law) == pytest.approx(1.0, abs=1e-6)
        assert measured(draft, rule) == (pytest.approx(law, abs=1e-6), False)


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule not in TRUNCATIONS])
@pytest.mark.parametrize("count", [2, 3])
def test_siblings_drawn_with_replacement_are_measured_exactly_where_no_rejected_token_is_zeroed(
    rule, count, monkeypatch
):
    law = first_token_law(sampling(count, "with_replacement"), P, rule, monkeypatch)
    for tokens in ((0, 1, 2), (3, 3, 3), (2, 0, 2)):
        assert measured(drafted(tokens[:count], "with_replacement"), rule) == (pytest.approx(law, abs=1e-6), False)


def rejected(q: Tensor, accepts: Tensor) -> Tensor:
    """The law of a candidate drawn from q, given that it was rejected; q itself where nothing is ever rejected."""
    mass = q * (1.0 - accepts)
    return mass / mass.sum() if float(mass.sum()) > 0.0 else q


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("drawing", ["with_replacement", "without_replacement"])
def test_conditional_laws_average_to_the_law_of_the_walk(rule, drawing, monkeypatch):
    """Each is the law given that these tokens were tried and rejected, so they are weighted by how often they are."""
    law = first_token_law(sampling(2, drawing), P, rule, monkeypatch)
    mean = np.zeros(4)
    for first, second in itertools.product(range(4), repeat=2):
        draft = drafted((first, second), drawing)
        walked = position_of(draft, ROOT, P, token_rule(parse_rule(rule))).siblings()
        weight = float(rejected(Q, walked.accepts(Q))[first])
        walked.reject(first, Q)
        left = draft.left_of(Q, 0)
        weight *= float(rejected(left, walked.accepts(left))[second])
        if weight > 0.0:
            one, conditional = measured(draft, rule)
            assert conditional == (drawing == "without_replacement" or rule in TRUNCATIONS)
            mean += weight * np.array(one)
    assert sum(law) == pytest.approx(1.0, abs=1e-6)
    assert mean == pytest.approx(law, abs=2e-6)


@pytest.mark.parametrize("rule", ["lossless", *TARGET_LAWS])
@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("drawing", ["with_replacement", "without_replacement"])
def test_sampled_siblings_emit_the_rules_own_law_however_many_they_are(rule, count, drawing, monkeypatch):
    made = token_rule(parse_rule(rule))
    wanted = made.law(P, Q) if isinstance(made, TargetLawRule) else P
    law = first_token_law(sampling(count, drawing), P, rule, monkeypatch)
    assert law == pytest.approx(wanted.tolist(), abs=2e-6)


@pytest.mark.parametrize("rule", ["lossless", *TARGET_LAWS])
def test_deterministic_siblings_emit_the_law_that_is_formed_of_the_first_candidate(rule, monkeypatch):
    made = token_rule(parse_rule(rule))
    for tokens in (t for n in (1, 2, 3) for t in itertools.permutations(range(4), n)):
        one_hot = torch.zeros(4)
        one_hot[tokens[0]] = 1.0
        wanted = made.law(P, one_hot) if isinstance(made, TargetLawRule) else P
        law = first_token_law(lambda one, tokens=tokens: drafted(tokens, "deterministic"), P, rule, monkeypatch)
        assert law == pytest.approx(wanted.tolist(), abs=1e-6)


@pytest.mark.parametrize("rule", [rule for rule in TRUNCATIONS if "hard=false" not in rule and "recompute" not in rule])
def test_the_first_sibling_inside_the_allowed_set_is_taken(rule, monkeypatch):
    allowed = token_rule(parse_rule(rule)).accept(P, Q).bool().tolist()
    taken = 0
    for tokens in itertools.permutations(range(4), 3):
        inside = [token for token in tokens if allowed[token]]
        law = first_token_law(lambda one, tokens=tokens: drafted(tokens, "deterministic"), P, rule, monkeypatch)
        taken += bool(inside)
        if inside:
            assert law == pytest.approx([float(token == inside[0]) for token in range(4)])
    assert taken > 0


def test_soft_typical_acceptance_tests_what_is_left_of_p_against_the_threshold_of_the_whole(monkeypatch):
    entropy = float(-(P * P.log()).sum())
    tau = min(0.9, 0.7 * np.exp(-entropy))
    first, second = 0.05 / tau, min(1.0, (0.15 / 0.95) / tau)
    draft = drafted((3, 2), "deterministic")
    law = first_token_law(lambda one: draft, P, "typical:0.9,delta=0.7,hard=false,redraw=target", monkeypatch)
    rest = (1 - first) * (1 - second)
    expected = [rest * 0.5 / 0.8, rest * 0.3 / 0.8, (1 - first) * second, first]
    assert law == pytest.approx(expected, abs=1e-6)


def test_a_hybrid_ceiling_takes_the_first_sibling_of_the_original_set(monkeypatch):
    """min-p 0.9 holds token 0 alone; token 1 has the ceiling p/ℓ, and its rejection doesn't make token 2 a member."""
    draft = drafted((1, 2), "deterministic")
    law = first_token_law(lambda one: draft, P, "min_p_ceiling:0.9,ell=0.5", monkeypatch)
    second = 0.4 * (0.15 / 0.7) / 0.5
    rest = 0.4 - second
    assert law == pytest.approx([rest * 0.5 / 0.55, 0.6, second, rest * 0.05 / 0.55], abs=1e-6)


@pytest.mark.parametrize("drawing", ["deterministic", "with_replacement"])
@pytest.mark.parametrize("rule", RULES)
def test_two_levels_emit_the_law_of_each_position_one_after_the_other(rule, drawing, monkeypatch):
    """A tree of best candidates, or a sampled chain of two, whose p and q differ after every node."""
    made = token_rule(parse_rule(rule))
    rows = {ROOT: P, 0: P.roll(1), 1: P.roll(2), 2: P.flip(0), 3: P, 4: P}
    tree = Draft.chosen((1, 0, 2, 0, 3), (ROOT, ROOT, 0, 0, 1))

    def draft_of(one: Branching) -> Draft:
        if drawing == "deterministic":
            return tree
        qs = (Q, Q.roll(1))
        return Draft.drawn([one.draw(q, 0.5) for q in qs], (ROOT, 0), qs)

    def run(one: Branching) -> tuple[Verdict, Draft]:
        monkeypatch.setattr(core.decoding.verify, "draw", one.draw)
        draft = draft_of(one)
        return walk(draft, rows.__getitem__, made, Streams(lambda: 0.5, one.coin, lambda: 0.5)), draft

    seen: dict[int, np.ndarray] = {}
    first = np.zeros(4)
    for (verdict, draft), one in branches(run):
        weight = one.weight
        for trial in verdict.trials:
            weight *= trial.accept_prob if trial.u == 0.0 else 1.0 - trial.accept_prob
        tokens = [*(draft.tokens[node] for node in verdict.path), verdict.next_token]
        first[tokens[0]] += weight
        if len(tokens) > 1:
            seen.setdefault(verdict.path[0], np.zeros(4))[tokens[1]] += weight

    def law(draft: Draft, node: int) -> list[float]:
        if not draft.children(node):
            return made.bonus(rows[node]).tolist()
        return induced_law(draft, draft.children(node), position_of(draft, node, rows[node], made)).law.tolist()

    sample = draft_of(Branching([]))
    assert first == pytest.approx(law(sample, ROOT), abs=2e-6)
    assert seen
    for node, weights in seen.items():
        if weights.sum() > 0.0:
            assert weights / weights.sum() == pytest.approx(law(sample, node), abs=5e-6)


@pytest.mark.parametrize("rule", TARGET_LAWS)
@pytest.mark.parametrize("drawing", ["deterministic", "with_replacement"])
def test_greedy_rules_with_a_law_of_their_own_take_its_argmax_of_the_untempered_distributions(rule, drawing):
    made = token_rule(parse_rule(rule))
    assert isinstance(made, TargetLawRule)
    for p, q in ((P, Q), (Q, P), (torch.tensor([0.3, 0.4, 0.2, 0.1]), torch.tensor([0.05, 0.05, 0.1, 0.8]))):
        best = int(made.law(p, q).argmax())
        greedy = torch.nn.functional.one_hot(p.argmax(), 4).float()
        candidate = torch.nn.functional.one_hot(q.argmax(), 4).float()
        draft = replace(Draft.siblings([int(q.argmax())], candidate, drawing), growth=(q,))
        streams = scripted(coin=[0.999999], redraw=[0.5])
        verdict = walk(draft, lambda node, row=greedy: row, made, streams, lambda node, row=p: row)
        emitted_token = draft.tokens[0] if verdict.path else verdict.next_token
        assert emitted_token == best
        assert bool(verdict.path) == (best == int(q.argmax()))
