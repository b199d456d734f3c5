"""The Live page: what it shows of a run in each state, and what it asks of the queue."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from html import escape

import pytest
from streamlit.testing.v1 import AppTest

from core.grammar import parse_drafter, parse_rule, parse_shape
from core.results.glossary import GLOSSARY
from core.results.matching import plain_counterpart
from core.results.metrics import summarise
from core.types import EarlyExitDrafter, NoDrafter, RunSpec, Sampling, SpecCascade
from pages.ui.kit.notices import EARLY_EXIT, LOSSY
from storage.queries import StoredRun
from storage.store import Store
from tests.helpers import fake_app, sample
from tests.helpers.fake_app import FakeJobs, NoRuns, fake_services
from tests.pages.conftest import Open, html

ROUNDS = [sample.chain(["accepted", "accepted", "rejected", "unreached"], 0), sample.chain(("accepted",) * 4, 1)]


def clean(at: AppTest) -> AppTest:
    """The page, which raised nothing."""
    assert not at.exception
    return at


def edit(spec: RunSpec, drafter: str = "prompt_lookup", shape: str = "chain:4", rule: str = "lossless") -> RunSpec:
    """The spec with another drafter, shape or rule."""
    request = spec.request.model_copy(
        update={"drafter": parse_drafter(drafter), "shape": parse_shape(shape), "rule": parse_rule(rule)}
    )
    return spec.model_copy(update={"request": request})


def test_an_empty_page_says_what_to_do_and_runs_nothing_by_itself(open_page: Open) -> None:
    jobs = FakeJobs()
    at = clean(open_page("live", fake_services(jobs, NoRuns())))
    assert "No run yet" in html(at)
    assert jobs.submitted == []
    assert at.button(key="stop").disabled
    assert not at.button(key="run").disabled


def test_run_submits_the_default_example_with_prompt_lookup_and_puts_its_id_into_the_address(open_page: Open) -> None:
    jobs = FakeJobs()
    at = open_page("live", fake_services(jobs, NoRuns()))
    clean(at.button(key="run").click().run())
    (asked,) = jobs.submitted
    assert asked.request.drafter == parse_drafter("prompt_lookup")
    assert asked.request.shape == parse_shape("chain:8")
    assert asked.request.prompt.startswith("Correct the spelling mistakes")
    assert asked.request.sampling.greedy
    assert at.query_params["run"] == f"{1:026d}"
    assert 'data-status="queued"' in html(at)


def test_the_form_submits_what_its_fields_say(open_page: Open) -> None:
    jobs = FakeJobs()
    at = open_page("live", fake_services(jobs, NoRuns()))
    at.text_area(key="live_prompt").set_value("Say hello.")
    at.selectbox(key="live_drafter").set_value("early_exit").run()
    at.number_input(key="live_layers").set_value(20)
    at.get("button_group")[0].set_value("tree").run()  # type: ignore[attr-defined]
    at.selectbox(key="live_rule").set_value("spec_cascade").run()
    at.number_input(key="live_p_base").set_value(0.3)
    at.number_input(key="live_temperature").set_value(0.7)
    at.text_area(key="live_stop_strings").set_value("END\n\\n\\n")
    clean(at.button(key="run").click().run())
    request = jobs.submitted[0].request
    assert request.prompt == "Say hello."
    assert request.drafter == EarlyExitDrafter(layers=20)
    assert request.shape == parse_shape("s3_k2_d6")
    assert request.rule == SpecCascade(p_base=0.3)
    assert request.sampling.temperature == 0.7
    assert request.stops.stop_strings == ("END", "\n\n")


def test_plain_decoding_hides_shape_and_rule_and_submits_neither(open_page: Open) -> None:
    jobs = FakeJobs()
    at = open_page("live", fake_services(jobs, NoRuns()))
    at.selectbox(key="live_drafter").set_value("none").run()
    assert len(at.get("button_group")) == 0
    clean(at.button(key="run").click().run())
    assert jobs.submitted[0].request == plain_counterpart(jobs.submitted[0].request)


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("nodes", 100, "The shape s3_k2 reaches at most 10 candidates, so d can be at most 11, not 100"),
        ("min_ngram", 5, "shortest n-gram 5 is longer than its longest 3"),
        ("top_p", 0.0, "Top-p is 0.0: input should be greater than 0"),
    ],
)
def test_a_combination_that_cannot_be_is_said_beside_the_form_and_run_is_off(
    open_page: Open, field: str, value: float, sentence: str
) -> None:
    jobs = FakeJobs()
    at = open_page("live", fake_services(jobs, NoRuns()))
    if field == "nodes":
        at.get("button_group")[0].set_value("tree").run()  # type: ignore[attr-defined]
    at.number_input(key=f"live_{field}").set_value(value)
    clean(at.run())
    assert sentence in html(at)
    assert at.button(key="run").disabled


def test_an_empty_prompt_and_a_seed_that_is_no_number_are_said_in_a_sentence(open_page: Open) -> None:
    at = open_page("live", fake_services(FakeJobs(), NoRuns()))
    at.text_area(key="live_prompt").set_value("  \n ").run()
    assert "The prompt is empty: type something to decode." in html(at)
    at.text_area(key="live_prompt").set_value("Hello")
    at.text_input(key="live_seed").set_value("seven").run()
    assert "Seed is &#x27;seven&#x27;" in html(clean(at))
    assert at.button(key="run").disabled


def test_a_pair_that_is_not_here_says_what_is_missing(open_page: Open) -> None:
    at = open_page("live", fake_services(FakeJobs(), NoRuns()))
    at.selectbox(key="live_pair").set_value("big").run()
    assert "org/big is not on this machine: download it." in html(clean(at))


def test_an_example_fills_the_prompt_and_its_limits(open_page: Open) -> None:
    at = open_page("live", fake_services(FakeJobs(), NoRuns()))
    at.button(key="example_Continue a story").click().run()
    assert str(at.text_area(key="live_prompt").value).startswith("The lighthouse keeper")
    assert at.toggle(key="live_chat").value is False
    assert at.number_input(key="live_max_new_tokens").value == 128


def test_queued_loading_and_running_tell_where_the_run_stands(open_page: Open) -> None:
    jobs = FakeJobs()
    app = fake_services(jobs, NoRuns())
    jobs.put(fake_app.queued(position=3))
    assert "number 3 in the queue" in html(clean(open_page("live", app, run=sample.RUN_ID)))
    jobs.put(fake_app.loading("loading weights …", 0.25))
    drawn = html(clean(open_page("live", app, run=sample.RUN_ID)))
    assert "loading weights …" in drawn
    assert 'aria-valuenow="25"' in drawn
    jobs.put(fake_app.running(ROUNDS), ROUNDS)
    at = clean(open_page("live", app, run=sample.RUN_ID))
    assert "8 of at most 64 tokens" in html(at)
    assert not at.button(key="stop").disabled


def test_stop_cancels_the_run_that_is_shown(open_page: Open) -> None:
    jobs = FakeJobs()
    jobs.put(fake_app.running(ROUNDS), ROUNDS)
    at = open_page("live", fake_services(jobs, NoRuns()), run=sample.RUN_ID)
    clean(at.button(key="stop").click().run())
    assert jobs.cancelled == [sample.RUN_ID]


def test_a_failed_and_a_cancelled_run_say_so_and_keep_their_rounds(open_page: Open) -> None:
    jobs = FakeJobs()
    app = fake_services(jobs, NoRuns())
    why = "The logits of round 2 are not finite: try precision float32."
    jobs.put(fake_app.over(ROUNDS, status="failed", reason="failed", error=why), ROUNDS)
    drawn = html(clean(open_page("live", app, run=sample.RUN_ID)))
    assert why in drawn
    assert drawn.count('class="sl-round"') == 2
    why = "The run was paused for 10 minutes and nobody resumed it, so it was ended to give its memory back."
    jobs.put(fake_app.over(ROUNDS, status="cancelled", reason="cancelled", error=why), ROUNDS)
    drawn = html(clean(open_page("live", app, run=sample.RUN_ID)))
    assert f"<b>The run was cancelled.</b> {why}" in drawn
    assert "The run failed" not in drawn
    jobs.put(fake_app.over([], status="cancelled", reason="cancelled"))
    assert "Stopped before the first round" in html(clean(open_page("live", app, run=sample.RUN_ID)))


def test_a_run_that_another_window_begins_takes_no_place_of_what_is_being_typed_here(open_page: Open) -> None:
    jobs = FakeJobs()
    at = clean(open_page("live", fake_services(jobs, NoRuns())))
    jobs.submit(sample.spec(max_new_tokens=5000, prompt="Another person's."))
    clean(at.text_area(key="live_prompt").set_value("My own.").run())
    assert "No run yet" in html(at)
    clean(at.button(key="run").click().run())
    assert [asked.request.prompt for asked in jobs.submitted] == ["Another person's.", "My own."]


def test_without_an_address_the_newest_active_run_of_the_app_is_found_again(open_page: Open) -> None:
    jobs = FakeJobs()
    jobs.put(fake_app.running(ROUNDS), ROUNDS)
    jobs.put(replace(fake_app.queued("z" * 26, position=1), submitted_at=fake_app.NOON + timedelta(seconds=1)))
    at = clean(open_page("live", fake_services(jobs, NoRuns())))
    assert at.query_params["run"] == "z" * 26


@pytest.mark.parametrize("run_id", ["nonsense", "<script>", "0" * 26, "../../etc/passwd"])
def test_a_link_to_no_run_is_answered_with_a_sentence(open_page: Open, run_id: str) -> None:
    at = clean(open_page("live", fake_services(FakeJobs(), NoRuns()), run=run_id))
    assert "names a run that is not here" in html(at)


def test_the_fields_take_the_settings_of_the_run_in_the_link(open_page: Open) -> None:
    jobs = FakeJobs()
    spec = edit(sample.spec(prompt="Other prompt"), "early_exit:11", "s3_k2_d6", "lenience:0.25")
    jobs.put(fake_app.over(ROUNDS, spec), ROUNDS)
    at = clean(open_page("live", fake_services(jobs, NoRuns()), run=sample.RUN_ID))
    assert at.text_area(key="live_prompt").value == "Other prompt"
    assert at.number_input(key="live_layers").value == 11
    assert at.number_input(key="live_ell").value == 0.25
    at.button(key="run").click().run()
    assert jobs.submitted == [spec]


def test_every_number_has_its_definition_from_the_glossary(open_page: Open) -> None:
    jobs = FakeJobs()
    jobs.put(fake_app.over(ROUNDS), ROUNDS)
    drawn = html(open_page("live", fake_services(jobs, NoRuns()), run=sample.RUN_ID))
    for name in (
        "tokens_per_second",
        "tokens_per_round",
        "draft_acceptance_rate",
        "accepted_length",
        "ttft_s",
        "speed_up",
    ):
        assert f'data-metric="{name}"' in drawn
        assert escape(GLOSSARY[name].definition, quote=True) in drawn
    assert "300 MiB" in drawn
    assert "peak resident memory" in drawn


def test_a_tree_shows_path_acceptance_instead_of_the_draft_acceptance_rate(open_page: Open) -> None:
    jobs = FakeJobs()
    rounds = [sample.tree(0)]
    jobs.put(fake_app.over(rounds, edit(sample.spec(), shape="s3_k2_d6")), rounds)
    drawn = html(open_page("live", fake_services(jobs, NoRuns()), run=sample.RUN_ID))
    assert 'data-metric="path_acceptance"' in drawn
    assert 'data-metric="draft_acceptance_rate"' not in drawn


def test_the_speed_up_is_a_dash_until_plain_is_measured_and_the_button_measures_it(open_page: Open) -> None:
    jobs = FakeJobs()
    run = jobs.put(fake_app.over(ROUNDS), ROUNDS)
    at = open_page("live", fake_services(jobs, NoRuns()), run=sample.RUN_ID)
    assert "<dt>Decode speed-up</dt><dd>–</dd>" in html(at)
    clean(at.button(key="measure_plain").click().run())
    assert jobs.submitted == [RunSpec(pair=run.spec.pair, request=plain_counterpart(run.spec.request))]
    assert "Measuring plain decoding of the same prompt" in html(at)
    assert at.query_params["run"] == sample.RUN_ID


def test_the_speed_up_is_the_ratio_to_the_matched_plain_run_of_this_session(open_page: Open, store: Store) -> None:
    jobs = FakeJobs()
    jobs.put(fake_app.over(ROUNDS), ROUNDS)
    slow = [replace(sample.plain(i), draft_s=0.0, verify_s=0.1, state_s=0.0, other_s=0.0, wall_s=0.1) for i in range(8)]
    fake_app.keep(store, "p" * 26, slow, edit(sample.spec(), "none", "none"))
    plain: StoredRun | None = fake_app.stored_services(store).runs.get("p" * 26)  # type: ignore[union-attr]
    at = clean(open_page("live", fake_services(jobs, NoRuns(plain)), run=sample.RUN_ID))
    ours = summarise(sample.started(), ROUNDS, sample.ended(ROUNDS)).tokens_per_second
    assert ours is not None
    assert f"<dd>{ours / 10:.2f} ×</dd>" in html(at)
    assert "measure_plain" not in [button.key for button in at.button]


def test_a_plain_run_has_no_speed_up_and_neutral_tokens(open_page: Open) -> None:
    jobs = FakeJobs()
    rounds = [sample.plain(i) for i in range(3)]
    spec = edit(sample.spec(), "none", "none")
    assert isinstance(spec.request.drafter, NoDrafter)
    jobs.put(fake_app.over(rounds, spec), rounds)
    drawn = html(clean(open_page("live", fake_services(jobs, NoRuns()), run=sample.RUN_ID)))
    assert 'data-metric="speed_up"' not in drawn
    assert "sl-bonus" not in drawn.split("sl-legend")[0].split("</style>")[-1]
    assert 'class="sl-chip sl-plain"' in drawn


def test_early_exit_and_lossy_rules_carry_their_notice(open_page: Open) -> None:
    jobs = FakeJobs()
    app = fake_services(jobs, NoRuns())
    spec = edit(sample.spec(), "early_exit:26", rule="lenience:0.4")
    view = fake_app.over(ROUNDS, spec)
    jobs.put(replace(view, started=replace(sample.started(), recomputed_share=0.0)), ROUNDS)
    drawn = html(clean(open_page("live", app, run=sample.RUN_ID)))
    assert EARLY_EXIT in drawn
    assert escape(LOSSY, quote=True) not in drawn  # at temperature 0 lenience changes nothing
    request = spec.request.model_copy(update={"sampling": Sampling(temperature=1.0)})
    warm = spec.model_copy(update={"request": request})
    jobs.put(fake_app.over(ROUNDS, warm), ROUNDS)
    assert escape(LOSSY, quote=True) in html(clean(open_page("live", app, run=sample.RUN_ID)))


def test_a_line_names_the_run_that_is_shown_and_marks_a_form_that_asks_for_another(open_page: Open) -> None:
    jobs = FakeJobs()
    spec = edit(sample.spec(), "prompt_lookup", "chain:4", "lenience:0.4")
    jobs.put(fake_app.over(ROUNDS, spec), ROUNDS)
    at = clean(open_page("live", fake_services(jobs, NoRuns()), run=sample.RUN_ID))
    assert "<b>prompt_lookup chain:4 lenience:0.4</b>" in html(at)
    assert "data-changed" not in html(at)
    clean(at.number_input(key="live_gamma").set_value(5).run())
    assert "data-changed" in html(at)
    clean(at.number_input(key="live_gamma").set_value(4).run())
    assert "data-changed" not in html(at)


def test_thousands_of_rounds_are_drawn_as_a_window_with_pages(open_page: Open) -> None:
    jobs = FakeJobs()
    rounds = [sample.chain(["accepted", "rejected"], i) for i in range(2000)]
    app = fake_services(jobs, NoRuns())
    jobs.put(fake_app.running(rounds, sample.spec(10_000)), rounds)
    drawn = html(clean(open_page("live", app, run=sample.RUN_ID)))
    assert drawn.count('class="sl-round"') == 30
    assert "Rounds 1971–2000" in drawn
    jobs.put(fake_app.over(rounds, sample.spec(10_000)), rounds)
    at = clean(open_page("live", app, run=sample.RUN_ID))
    assert "Rounds 1–30" in html(at)
    assert len(at.get("pagination")) == 1
    assert html(at).count("sl-o sl-") <= 2 * 300


def test_runs_that_are_not_kept_are_announced_on_the_page(open_page: Open) -> None:
    jobs = FakeJobs()
    jobs.put(fake_app.over(ROUNDS), ROUNDS)
    why = "The database is open in another process: close that one."
    at = clean(open_page("live", fake_services(jobs, None, why), run=sample.RUN_ID))
    assert why in html(at)
    assert "runs are not being kept now" in html(at)
