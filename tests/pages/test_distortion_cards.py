"""What Live and Compare say of a run's distortion."""

from __future__ import annotations

from dataclasses import replace

import pytest

from core.results.comparison import changes
from core.types import RunSpec
from pages.ui.kit import numbers, parts
from tests.helpers.decoding import ask
from tests.helpers.records import summary

MEASURED = replace(
    summary(),
    distortion_kl=0.0123,
    distortion_tv=0.25,
    escaped_mass=0.0625,
    overshoot=0.5,
    distortion_positions=8,
    distortion_kl_undefined=2,
    distortion_conditional=0,
    distortion_s=0.003,
)


def asked(rule: str) -> RunSpec:
    return RunSpec(request=ask(drafter="model", shape="chain:4", rule=rule, temperature=1.0))


def test_the_notes_name_the_baseline_and_its_reason_what_escaped_and_what_measuring_cost():
    said = parts.distortion_notes(asked("spec_cascade:0.5"), MEASURED)
    assert "Against the lossless baseline. spec_cascade:0.5,redraw=target_in_set accepts only tokens with p ≥" in said
    assert "over 8 tested positions" in said
    assert "In 2 of them the rule can emit what the law never does: they have no KL; 6.2 % of all" in said
    assert "Overshoot: 50.0 % of tested tokens. Measuring took 3 ms, which no other time or rate contains." in said
    assert "conditional" not in said


def test_a_lossless_run_is_measured_against_the_target_itself():
    said = parts.distortion_notes(asked("lossless"), replace(MEASURED, distortion_kl_undefined=0))
    assert said.startswith("Against the target's own law: what is left is rounding.")
    assert "escapes" not in said


@pytest.mark.parametrize(
    ("value", "text"), [(None, "–"), (0.0, "0"), (3e-15, "≈ 0"), (2e-5, "2.0e-05"), (0.0123, "0.012"), (12.5, "12.500")]
)
def test_a_divergence_keeps_its_magnitude(value, text):
    assert numbers.nats(value) == text


def test_what_rounding_leaves_of_two_lossless_laws_is_no_difference():
    one, two = (replace(MEASURED, distortion_kl=value, distortion_tv=1e-7) for value in (2e-15, 5e-15))
    assert [change.change for change in changes("distortion_kl", (one, two), 0)] == [None, 0.0]
    lossy = replace(MEASURED, distortion_kl=0.5)
    assert changes("distortion_kl", (one, lossy), 0)[1].better is False
