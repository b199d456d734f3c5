"""What a lossy rule means for a comparison, signed changes, and groups by prompt."""

from __future__ import annotations

from dataclasses import replace

import pytest

from core.grammar import parse_rule, parse_shape
from core.records import Fate, Summary
from core.results.comparison import (
    Change,
    Compared,
    by_prompt,
    changed,
    changes,
    lossy_notices,
    scaled,
)
from core.results.metrics import summarise
from core.types import Request, Sampling
from tests.helpers import sample

CHAIN = sample.spec().request


def summary(*fates: list[Fate], text: str = " the") -> Summary:
    rounds = [sample.chain(one, index, text) for index, one in enumerate(fates)]
    return summarise(sample.started(), rounds, sample.ended(rounds))


# -- lossy


def lossy(rule: str, law: str = "p"):
    request = CHAIN.model_copy(update={"rule": parse_rule(rule)})
    return request, replace(sample.fingerprint(), rule=rule, reference_law=law)


LOSSLESS = (CHAIN, sample.fingerprint())


def test_two_lossless_runs_need_no_notice():
    assert lossy_notices(LOSSLESS, LOSSLESS) == []


@pytest.mark.parametrize("turned", [False, True])
def test_a_lossy_run_beside_its_matched_baseline_says_what_the_difference_means(turned: bool):
    sides = (lossy("lenience:0.4"), LOSSLESS) if turned else (LOSSLESS, lossy("lenience:0.4"))
    (said,) = lossy_notices(*sides)
    assert said.startswith("lenience:0.4 changes the law of the output")


@pytest.mark.parametrize("turned", [False, True])
def test_a_lossless_run_of_another_law_is_no_baseline(turned: bool):
    cascade = lossy("spec_cascade:0.5", law="T=1 min_p=0.5")
    (said,) = lossy_notices(*((cascade, LOSSLESS) if turned else (LOSSLESS, cascade)))
    assert "not the matched baseline of spec_cascade:0.5: it samples p, while the rule is judged by T=1 min_p=" in said


def test_two_lossy_runs_are_no_baseline_for_each_other():
    (said,) = lossy_notices(lossy("lenience:0.4"), lossy("lenience:0.8"))
    assert "lenience:0.4 and lenience:0.8" in said
    assert "same lossy rule" in lossy_notices(lossy("lenience:0.4"), lossy("lenience:0.4"))[0]


# -- changes


def test_a_change_is_signed_and_judged_by_the_metrics_direction():
    assert changed("tokens_per_round", [10.0, 15.0, 5.0], 0) == (
        Change(10.0),
        Change(15.0, 5.0, 0.5, True),
        Change(5.0, -5.0, -0.5, False),
    )
    assert changed("target_calls_per_token", [1.0, 0.5], 0)[1] == Change(0.5, -0.5, -0.5, True)


def test_a_metric_without_direction_is_never_judged_and_neither_is_no_change():
    assert changed("drafted", [10, 15], 0)[1].better is None
    assert changed("ttft_s", [1.0, 1.0], 0)[1] == Change(1.0, 0.0, 0.0, None)


@pytest.mark.parametrize("name", ["tokens_per_second", "ttft_s", "draft_s", "speed_up"])
def test_times_of_single_runs_are_neither_better_nor_worse(name):
    assert changed(name, [1.0, 2.0], 0)[1] == Change(2.0, 1.0, 1.0, None)


def test_a_negligible_change_is_not_judged():
    found = changed("tokens_per_round", [1000.0, 1000.4, 1000.6], 0)
    assert [change.better for change in found] == [None, None, True]


def test_a_missing_value_or_a_baseline_of_nothing_gives_no_made_up_change():
    assert changed("tokens_per_second", [None, 3.0], 0)[1] == Change(3.0)
    assert changed("tokens_per_second", [3.0, None], 0)[1] == Change(None)
    assert changed("draft_s", [0.0, 2.0], 0)[1] == Change(2.0, 2.0, None, None)


def test_the_baseline_can_be_any_run():
    found = changed("tokens_per_second", [10.0, 20.0], 1)
    assert found == (Change(10.0, -10.0, -0.5, None), Change(20.0))


def test_peak_memory_of_a_process_is_not_compared():
    one, other = summary(["accepted"]), replace(summary(["accepted"]), peak_memory_bytes=1)
    assert changes("peak_memory_bytes", [one, other], 0)[1] == Change(1)
    device = [replace(each, peak_memory_kind="cuda_allocated") for each in (one, other)]
    assert changes("peak_memory_bytes", device, 0)[1].better is True
    assert changes("peak_memory_bytes", [device[0], one], 0)[1].change is None


def test_a_parallel_axis_has_the_better_end_up():
    assert scaled("tokens_per_second", [10.0, 20.0, None, 15.0]) == (0.0, 1.0, None, 0.5)
    assert scaled("ttft_s", [10.0, 20.0]) == (1.0, 0.0)
    assert scaled("ttft_s", [10.0, 10.0]) == (0.5, 0.5)
    assert scaled("ttft_s", [None, None]) == (None, None)


# -- by prompt


def run(prompt: str, speed: float, seed: int = 0, shape: str = "chain:4", temperature: float = 0.0) -> Compared:
    request = Request(
        prompt=prompt, seed=seed, drafter=CHAIN.drafter, shape=parse_shape(shape),
        sampling=Sampling(temperature=temperature),
    )  # fmt: skip
    print_ = replace(sample.fingerprint(), prompt_hash=prompt, seed=seed)
    return Compared(request, print_, replace(summary(["accepted"]), tokens_per_second=speed))


def test_runs_are_grouped_by_prompt_and_a_prompt_of_one_run_is_left_out():
    runs = [run("x", 10), run("y", 20), run("x", 15, shape="chain:5"), run("y", 10, shape="chain:5"), run("z", 1)]
    rows = by_prompt(runs, 0, "tokens_per_second")
    assert [(row.prompt, row.members, row.base) for row in rows] == [("x", (0, 2), 0), ("y", (1, 3), 1)]
    assert rows[0].changes[1].share == 0.5
    assert (rows[0].widest, rows[1].widest) == (0.5, 0.5)


def test_each_prompts_baseline_is_the_run_set_as_the_chosen_one():
    runs = [run("y", 1, shape="chain:5"), run("x", 10, seed=3), run("y", 20, seed=2), run("y", 30, seed=3)]
    (row,) = by_prompt(runs, 1, "tokens_per_second")
    assert row.base == 3  # same settings and seed
    (row,) = by_prompt(runs[:3], 1, "tokens_per_second")
    assert row.base == 2  # same settings, another seed
    (row,) = by_prompt([*runs[:2], run("y", 2, shape="chain:6")], 1, "tokens_per_second")
    assert row.base == 0  # none is set so


def test_a_group_whose_changes_cannot_be_taken_has_no_widest():
    runs = [run("x", 10), run("x", 15)]
    runs[0] = replace(runs[0], summary=replace(runs[0].summary, tokens_per_second=None))
    (row,) = by_prompt(runs, 0, "tokens_per_second")
    assert row.widest is None
