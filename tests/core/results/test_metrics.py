"""Metrics against the worked cases of metrics.md: exact values, None of nothing, laws that catch every break."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from core.decoding.verify import walk
from core.drafting.draft import Draft
from core.records import ROOT, Ended, Round, Started, Summary
from core.results.glossary import GLOSSARY
from core.results.metrics import (
    acceptance_by_position,
    percentile,
    progress,
    speed_up,
    summarise,
    token_gaps,
    violations,
)
from core.rules.token_rule import LosslessRule
from tests.helpers import sample
from tests.helpers.fakes import scripted
from tests.helpers.sample import counted

STARTED = Started(request=0, prompt_tokens=5, prefill_s=0.5)
ENDED = Ended(request=0, stop_reason="eos", text="text", e2e_s=9.0, peak_memory_bytes=7, peak_memory_kind="process_rss")


def of(rounds: Sequence[Round]) -> Summary:
    return summarise(STARTED, rounds, ENDED)


# -- the worked cases of metrics.md ---------------------------------------------------------------------------------


def test_flags_raised_after_the_first_rejection_do_not_count():
    """Accept flags [[1,0,1],[1,1,1]] → accepted 1 and 3, committed 2 and 4, draft acceptance 4/6."""
    p, q = torch.tensor([0.5, 0.5]), torch.tensor([0.0, 1.0])
    draft = Draft.drawn((1, 1, 1), (ROOT, 0, 1), (q, q, q), (1.0, 1.0, 1.0))
    rounds = []
    for flags in ([1, 0, 1], [1, 1, 1]):
        coins = [0.4 if flag else 0.6 for flag in flags]
        verdict = walk(draft, lambda at: p, LosslessRule(), scripted(coin=coins, redraw=[0.0]))
        accepted = len(verdict.path)
        assert len(verdict.trials) == min(accepted + 1, 3)
        rounds.append(counted(accepted, 3, source=verdict.source))
    summary = of(rounds)
    assert [one.accepted for one in rounds] == [1, 3]
    assert [len(one.committed) for one in rounds] == [2, 4]
    assert [one.source for one in rounds] == ["correction", "bonus"]
    assert (summary.accepted, summary.drafted, summary.output_tokens) == (4, 6, 6)
    assert summary.draft_acceptance_rate == 4 / 6
    assert summary.accepted_length == 2.0
    assert summary.tokens_per_round == 3.0
    assert summary.target_calls_per_token == 2 / 6
    assert (summary.rejected, summary.unreached, summary.cut) == (1, 1, 0)


@pytest.mark.parametrize(("accepted", "rate"), [(0, 0.0), (1, 1 / 3), (2, 2 / 3), (3, 1.0)])
def test_three_candidates_with_m_accepted_have_a_rate_of_m_thirds(accepted, rate):
    assert of([counted(accepted, 3)]).draft_acceptance_rate == rate


def test_rates_pool_their_counts_rather_than_average_over_rounds():
    assert of([counted(1, 1), counted(0, 9)]).draft_acceptance_rate == 1 / 10


def test_three_hits_in_a_hundred_lookup_rounds_show_how_many_rounds_had_no_draft():
    rounds = [counted(4, 4, index=i) if i in (10, 50, 90) else counted(0, 0, index=i) for i in range(100)]
    summary = of(rounds)
    assert summary.draft_acceptance_rate == 1.0
    assert (summary.rounds, summary.rounds_without_draft) == (100, 97)
    assert summary.drafted / summary.rounds == 0.12
    assert summary.tokens_per_round == 1.12


def test_plain_decoding_commits_one_token_a_round_and_has_no_acceptance():
    summary = of([counted(0, 0, index=i, at=i + 1.0) for i in range(4)])
    assert summary.tokens_per_round == 1.0
    assert summary.accepted_length == 0.0
    assert summary.target_calls_per_token == 1.0
    assert summary.draft_acceptance_rate is None
    assert summary.path_acceptance is None
    assert summary.acceptance_unconditional == ()
    assert summary.acceptance_conditional == ()


def test_a_trees_acceptance_is_over_the_depth_that_it_offered_not_over_its_nodes():
    tree = replace(
        counted(0, 0),
        nodes=(
            sample.node("rejected", parent=ROOT, depth=1),
            sample.node("accepted", parent=ROOT, depth=1),
            sample.node("unreached", parent=0, depth=2),
            sample.node("accepted", parent=1, depth=2),
            sample.node("rejected", parent=3, depth=3),
        ),
        committed=(1, 1, 1),
        committed_text=("b",) * 3,
        source="correction",
    )
    summary = of([tree])
    assert summary.path_acceptance == 2 / 3
    assert summary.draft_acceptance_rate == 2 / 5
    assert summary.acceptance_unconditional == (1.0, 1.0, 0.0)
    assert violations(summary, [tree]) == []


# -- empty denominators ---------------------------------------------------------------------------------------------


def test_every_rate_of_a_run_without_rounds_is_none():
    summary = of([])
    assert summary.output_tokens == 0
    for name in (
        "tokens_per_round",
        "accepted_length",
        "draft_acceptance_rate",
        "path_acceptance",
        "target_calls_per_token",
        "ttft_s",
        "tpot_s",
        "gap_p50_s",
        "gap_p95_s",
        "gap_max_s",
        "burst_gap_p50_s",
        "burst_gap_p95_s",
        "burst_gap_max_s",
        "tokens_per_second",
    ):
        assert getattr(summary, name) is None, name
    assert summary.e2e_s == ENDED.e2e_s
    assert violations(summary, []) == []


def test_one_token_has_a_first_token_time_but_no_time_per_output_token_and_no_gaps():
    summary = of([counted(0, 0, at=1.5)])
    assert (summary.ttft_s, summary.e2e_s) == (1.5, 1.5)
    assert summary.tpot_s is None
    assert summary.gap_max_s is None


def test_a_speed_up_needs_both_rates():
    run = replace(of([counted(0, 0)]), tokens_per_second=30.0)
    plain = replace(run, tokens_per_second=20.0)
    assert speed_up(run, plain) == 1.5
    assert speed_up(run, replace(plain, tokens_per_second=None)) is None
    assert speed_up(replace(run, tokens_per_second=None), plain) is None
    assert speed_up(run, replace(plain, tokens_per_second=0.0)) is None


# -- acceptance by position -----------------------------------------------------------------------------------------


def test_acceptance_by_position_has_both_definitions():
    rounds = [counted(*counts) for counts in ((3, 3), (1, 3), (0, 3), (2, 2), (1, 1))]
    assert acceptance_by_position(rounds, conditional=False) == (4 / 5, 2 / 4, 1 / 3)
    assert acceptance_by_position(rounds, conditional=True) == (4 / 5, 2 / 3, 1 / 1)


def test_a_position_that_no_round_reached_has_no_conditional_acceptance():
    rounds = [counted(0, 3), counted(0, 3)]
    assert acceptance_by_position(rounds, conditional=False) == (0.0, 0.0, 0.0)
    assert acceptance_by_position(rounds, conditional=True) == (0.0, None, None)


@given(st.lists(st.integers(0, 6).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))), max_size=12))
def test_conditional_acceptances_multiply_to_the_unconditional_ones_when_all_rounds_draft_alike(counts):
    rounds = [counted(min(accepted, 4), 4) for accepted, _ in counts]
    product = 1.0
    pairs = zip(
        acceptance_by_position(rounds, conditional=False),
        acceptance_by_position(rounds, conditional=True),
        strict=True,
    )
    for unconditional, conditional in pairs:
        product *= 0.0 if conditional is None else conditional
        assert unconditional == pytest.approx(product)


# -- gaps and times -------------------------------------------------------------------------------------------------


def test_the_tokens_of_a_round_come_as_a_burst_of_zero_gaps():
    rounds = [counted(3, 4, at=2.0), counted(0, 4, at=2.5), counted(1, 4, at=4.0)]
    assert token_gaps(rounds) == [0.0, 0.0, 0.0, 0.5, 1.5, 0.0]


def test_a_round_whose_tokens_were_all_cut_makes_no_gap():
    rounds = [counted(0, 0, at=1.0), counted(0, 2, cut=2, at=3.0), counted(0, 0, at=4.0)]
    assert token_gaps(rounds) == [3.0]


def test_gap_percentiles_count_zeros_and_burst_percentiles_do_not():
    rounds = [counted(3, 3, at=at) for at in (1.0, 2.0, 4.0)]
    summary = of(rounds)
    assert (summary.gap_p50_s, summary.gap_max_s) == (0.0, 2.0)
    assert summary.gap_p95_s == pytest.approx(1.5)
    assert (summary.burst_gap_p50_s, summary.burst_gap_max_s) == (1.5, 2.0)
    assert summary.burst_gap_p95_s == pytest.approx(1.95)


@pytest.mark.parametrize(
    ("values", "percent", "expected"),
    [([], 50, None), ([3.0], 95, 3.0), ([1.0, 2.0], 50, 1.5), ([4.0, 1.0, 3.0, 2.0], 50, 2.5), ([0.0, 10.0], 95, 9.5)],
)
def test_percentiles_interpolate_and_nothing_has_none(values, percent, expected):
    assert percentile(values, percent) == expected


def test_times_per_token_come_from_the_first_and_the_last_token():
    rounds = [counted(1, 2, at=1.5), counted(2, 2, at=2.5), counted(0, 2, at=4.5)]
    summary = of(rounds)
    assert (summary.ttft_s, summary.e2e_s) == (1.5, 4.5)
    assert summary.tpot_s == 3.0 / 5
    assert summary.decode_s == 3.0
    assert summary.tokens_per_second == 6 / 3.0
    assert (summary.draft_s, summary.verify_s, summary.state_s, summary.other_s) == (0.75, 1.5, 0.375, 0.375)
    assert (summary.prefill_s, summary.peak_memory_bytes, summary.peak_memory_kind) == (0.5, 7, "process_rss")


def test_a_run_that_goes_on_is_summarised_up_to_its_last_whole_round():
    summary = progress(STARTED, [counted(1, 2, at=1.5), counted(0, 2, at=2.5)])
    assert (summary.text, summary.output_tokens, summary.e2e_s) == ("bbb", 3, 2.5)
    assert progress(STARTED, []).e2e_s == STARTED.prefill_s


# -- conservation laws ----------------------------------------------------------------------------------------------

SOUND = [counted(2, 4, index=0, at=1.0), counted(4, 4, index=1, at=2.0), counted(1, 4, cut=2, index=2)]


def test_a_sound_run_breaks_no_law():
    assert violations(of(SOUND), SOUND) == []


def broken_round(**changes: object) -> list[Round]:
    return [SOUND[0], replace(SOUND[1], **changes), SOUND[2]]


@pytest.mark.parametrize(
    ("summary", "rounds", "sentence"),
    [
        (replace(of(SOUND), output_tokens=8), SOUND, "the committed tokens of the rounds are not the output's length"),
        (replace(of(SOUND), drafted=13), SOUND, "drafted is not accepted + rejected + unreached + cut"),
        (replace(of(SOUND), unreached=7), SOUND, "drafted is not accepted + rejected + unreached + cut"),
        (of(SOUND), broken_round(wall_s=1.002), "round 2: the stages do not add up to its wall time"),
        (of(SOUND), broken_round(other_s=0.0), "round 2: the stages do not add up to its wall time"),
        (of(SOUND), broken_round(source="none"), "round 2: committed is not accepted plus its correction or bonus"),
        (replace(of(SOUND), draft_acceptance_rate=1.1), SOUND, "a rate lies outside 0 … 1"),
        (replace(of(SOUND), path_acceptance=-0.1), SOUND, "a rate lies outside 0 … 1"),
        (replace(of(SOUND), acceptance_unconditional=(1.0, 1.5)), SOUND, "a rate lies outside 0 … 1"),
        (replace(of(SOUND), acceptance_conditional=(1.0, None, 1.5)), SOUND, "a rate lies outside 0 … 1"),
        (replace(of(SOUND), draft_acceptance_rate=float("nan")), SOUND, "a rate lies outside 0 … 1"),
    ],
)
def test_every_planted_break_of_a_law_is_found_and_named(summary, rounds, sentence):
    assert violations(summary, rounds) == [sentence]


def test_stages_may_miss_the_wall_time_by_less_than_a_millisecond():
    assert violations(of(SOUND), broken_round(wall_s=1.0009)) == []


def test_a_token_lost_from_one_round_breaks_two_laws():
    rounds = broken_round(committed=(1,) * 4)
    assert violations(of(SOUND), rounds) == [
        "the committed tokens of the rounds are not the output's length",
        "round 2: committed is not accepted plus its correction or bonus",
    ]


# -- the glossary ---------------------------------------------------------------------------------------------------


def test_every_number_of_a_summary_and_the_speed_up_has_a_definition():
    described = set(Summary.__dataclass_fields__) - {"text", "stop_reason", "peak_memory_kind"}
    assert described | {"wall_s", "speed_up"} == set(GLOSSARY)
    for name, metric in GLOSSARY.items():
        assert metric.name == name
        assert metric.unit
        assert metric.definition.endswith(".")
