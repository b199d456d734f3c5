"""The Compare page: the verdict first, then what changed, and the one click to a counterpart."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from core.grammar import format_rule, parse_drafter, parse_rule, parse_shape
from core.records import UNKNOWN, Fingerprint, Round
from core.results.counterparts import counterparts
from core.results.fingerprint import drafting_text, sampling_text
from core.results.matching import reference_sampling
from core.results.metrics import summarise
from core.types import Request, RunSpec, Sampling
from pages.ui.compare.metrics import cell, signed
from pages.ui.kit import compare_link
from pages.ui.kit.services import Services
from pages.ui.kit.sides import MARKS, MOST, label, letters, named_sides
from pages.ui.kit.table import Cell
from storage.queries import Runs
from storage.store import Store
from tests.helpers import fake_app, sample
from tests.helpers.markup import Tags
from tests.pages.conftest import Open, html

CHAIN = [sample.chain(["accepted", "rejected"], 0), sample.chain(["accepted", "accepted"], 1)]
OTHER = [sample.chain(["accepted", "rejected"], 0), sample.chain(["rejected", "unreached"], 1, last=" stop")]
PLAIN = [sample.plain(i) for i in range(5)]


def id_of(number: int) -> str:
    return f"{number:026d}"


def asked(drafter: str = "prompt_lookup", shape: str = "chain:4", rule: str = "lossless", **more: Any) -> RunSpec:
    request = Request(
        prompt=more.pop("prompt", "Copy this."), drafter=parse_drafter(drafter), shape=parse_shape(shape),
        rule=parse_rule(rule), sampling=Sampling(temperature=more.pop("temperature", 0.7)), **more,
    )  # fmt: skip
    return RunSpec(pair=sample.spec().pair, request=request)


def print_of(spec: RunSpec, **more: Any) -> Fingerprint:
    """The fingerprint that the engine would have given, on a fixed machine."""
    request = spec.request
    print_ = replace(
        sample.fingerprint(drafting_text(request)), rule=format_rule(request.rule), seed=request.seed,
        sampling=sampling_text(request.sampling), reference_law=sampling_text(reference_sampling(request)),
        prompt_hash=request.prompt[:12],
    )  # fmt: skip
    return replace(print_, **more)


def keep(
    store: Store,
    number: int,
    rounds: Sequence[Round],
    spec: RunSpec,
    session: str = fake_app.SESSION,
    **fingerprint: Any,
) -> str:
    """A done run in the store."""
    at = fake_app.NOON + timedelta(seconds=number)
    started, ended = replace(sample.started(), fingerprint=print_of(spec, **fingerprint)), sample.ended(rounds)
    store.submitted(id_of(number), spec, session, at)
    store.started(id_of(number), started, at)
    store.rounds(id_of(number), rounds)
    store.ended(id_of(number), ended, summarise(started, rounds, ended), at + timedelta(seconds=2))
    return id_of(number)


def link(*numbers: int) -> str:
    return ",".join(map(id_of, numbers))


def clean(at: AppTest) -> AppTest:
    assert not at.exception
    return at


def charts(at: AppTest) -> dict[str, dict[str, Any]]:
    """Figures by what they keep their zoom under."""
    figures = [json.loads(element.proto.spec) for element in at.get("plotly_chart")]  # type: ignore[attr-defined]
    return {figure["layout"]["uirevision"]: figure for figure in figures}


# -- the choice


def test_without_a_choice_the_page_says_what_to_do(open_page: Open, store: Store) -> None:
    at = clean(open_page("compare", fake_app.stored_services(store)))
    assert "Nothing chosen yet" in html(at)
    assert "decode a prompt on Live first" in html(at)


def test_runs_that_are_chosen_stand_in_the_address_and_the_first_is_the_baseline(open_page: Open, store: Store) -> None:
    keep(store, 1, PLAIN, asked("none", "none"))
    keep(store, 2, CHAIN, asked())
    at = clean(open_page("compare", fake_app.stored_services(store)))
    assert at.multiselect[0].options == [
        "prompt_lookup chain:4 · Copy this. · " + moment(2),
        "plain · Copy this. · " + moment(1),
    ]
    clean(at.multiselect[0].set_value([id_of(1), id_of(2)]).run())
    assert at.query_params["runs"] == link(1, 2)
    assert at.query_params["base"] == id_of(1)
    clean(at.selectbox(key="compare_baseline").set_value(id_of(2)).run())
    assert (at.query_params["runs"], at.query_params["base"]) == (link(1, 2), id_of(2))
    clean(at.multiselect[0].set_value([id_of(1)]).run())
    assert (at.query_params["runs"], at.query_params["base"]) == (id_of(1), id_of(1))
    clean(at.multiselect[0].set_value([]).run())
    assert "runs" not in at.query_params


def moment(number: int) -> str:
    return (fake_app.NOON + timedelta(seconds=number)).astimezone().strftime("%m-%d %H:%M:%S")


def test_a_link_brings_the_choice_back_and_what_is_not_there_is_said(open_page: Open, store: Store) -> None:
    keep(store, 1, PLAIN, asked("none", "none"))
    keep(store, 2, CHAIN, asked())
    runs = f"{link(1, 2)},{id_of(7)},<b>hello</b>"
    at = clean(open_page("compare", fake_app.stored_services(store), runs=runs, base=id_of(2)))
    assert "The link names 2 runs that are not here" in html(at)
    assert "<b>hello" not in html(at)
    assert at.selectbox(key="compare_baseline").value == id_of(2)
    assert at.multiselect[0].value == [id_of(1), id_of(2)]


def test_a_link_is_read_strictly_and_written_as_it_is_read() -> None:
    read = compare_link.read(f"{id_of(1)}, {id_of(2)},,x", id_of(2))
    assert (read.runs, read.base, read.refused) == ((id_of(1), id_of(2)), id_of(2), 1)
    assert compare_link.read(None, None).runs == ()
    assert compare_link.read(id_of(1), "elsewhere").base == id_of(1)
    many = compare_link.read(link(*range(MOST + 3)), None)
    assert (len(many.runs), many.left_out) == (MOST, 3)
    assert compare_link.query(read.runs, read.base) == {"runs": link(1, 2), "base": id_of(2)}


def test_ten_runs_have_ten_marks_and_no_two_look_alike() -> None:
    assert len(MARKS) == MOST
    assert len({mark.letter for mark in MARKS}) == MOST
    assert len({(mark.symbol, mark.dash) for mark in MARKS}) == MOST
    assert len({mark.symbol for mark in MARKS}) == MOST


def test_a_run_beside_itself_changes_nothing(open_page: Open, store: Store) -> None:
    keep(store, 1, CHAIN, asked())
    at = clean(open_page("compare", fake_app.stored_services(store), runs=id_of(1)))
    clean(at.button(key="compare_itself").click().run())
    assert at.query_params["runs"] == link(1, 1)
    body = html(at)
    assert 'data-verdict="matched"' in body
    assert "Not one setting differs" in body
    assert "Identical: all 5 tokens are equal." in body
    assert "No setting differs" in body
    assert " better" not in body.split("Metrics")[1].split("</table>")[0]


# -- the verdict


def test_runs_that_differ_in_their_drafting_alone_are_matched(open_page: Open, store: Store) -> None:
    keep(store, 1, CHAIN, asked(shape="s5_k1_d6"))
    keep(store, 2, CHAIN, asked(shape="s3_k2_d6"))
    body = html(clean(open_page("compare", fake_app.stored_services(store), runs=link(1, 2))))
    assert 'data-verdict="matched"' in body
    assert "Nothing but drafting differs from A" in body
    assert "deterministic chain" in body and "deterministic tree" in body


def test_another_verification_budget_is_named_with_the_nodes_of_both(open_page: Open, store: Store) -> None:
    keep(store, 1, CHAIN, asked(shape="chain:2"))
    keep(store, 2, CHAIN, asked(shape="s6_k8_d64"))
    body = html(clean(open_page("compare", fake_app.stored_services(store), runs=link(1, 2))))
    assert 'data-verdict="budget"' in body
    assert "Nodes verified a round: A 3, B 64." in body
    assert "≠ other budget" in body


def test_samples_beside_the_drafts_best_tokens_are_named(open_page: Open, store: Store) -> None:
    keep(store, 1, CHAIN, asked(drafter="model", shape="chain:5", temperature=0.7))
    keep(store, 2, CHAIN, asked(drafter="model", shape="s3_k2_d6", temperature=0.7))
    body = html(clean(open_page("compare", fake_app.stored_services(store), runs=link(1, 2))))
    assert 'data-verdict="candidates"' in body
    assert "Candidates: A sampled, B deterministic." in body


def test_what_an_earlier_version_did_not_store_is_said_to_be_unknown(open_page: Open, store: Store) -> None:
    keep(store, 1, CHAIN, asked(), end_tokens=UNKNOWN, batch=None)
    keep(store, 2, CHAIN, asked(shape="s3_k2_d6"))
    body = html(clean(open_page("compare", fake_app.stored_services(store), runs=link(1, 2))))
    assert 'data-verdict="differs"' in body
    assert "An earlier version of SpecLens stored a run without its end tokens and batch size: whether" in body
    assert "batch size unknown" in body
    assert "B differs" not in body


def test_what_breaks_the_match_is_named_with_its_values(open_page: Open, store: Store) -> None:
    keep(store, 1, CHAIN, asked())
    keep(store, 2, CHAIN, asked(seed=5), precision="int8", versions={"torch": "3"})
    body = html(clean(open_page("compare", fake_app.stored_services(store), runs=link(1, 2))))
    assert 'data-verdict="differs"' in body
    assert "B differs from A in precision, torch version and seed." in body
    assert "seed <code>0</code> → <code>5</code>" in body
    assert "A quantised target, another precision or an approximate cache is another target" in body


def test_another_session_is_no_place_to_compare_seconds(open_page: Open, store: Store) -> None:
    keep(store, 1, CHAIN, asked())
    keep(store, 2, CHAIN, asked(shape="s3_k2_d6"), session="yesterday")
    body = html(clean(open_page("compare", fake_app.stored_services(store), runs=link(1, 2))))
    assert "<b>B:</b> Measured in another session of the app than A" in body


def test_a_lossy_run_beside_its_baseline_and_beside_another_law(open_page: Open, store: Store) -> None:
    keep(store, 1, CHAIN, asked())
    keep(store, 2, CHAIN, asked(rule="lenience:0.4"))
    keep(store, 3, CHAIN, asked(rule="spec_cascade:0.5"))
    body = html(clean(open_page("compare", fake_app.stored_services(store), runs=link(1, 2, 3))))
    assert "<b>A and B:</b> lenience:0.4 changes the law of the output." in body
    assert "<b>A and C:</b> The lossless run is not the matched baseline of spec_cascade:0.5" in body


# -- numbers


def test_changes_are_signed_and_judged_in_words(open_page: Open, store: Store) -> None:
    keep(store, 1, PLAIN, asked("none", "none"))
    keep(store, 2, CHAIN, asked())
    at = clean(open_page("compare", fake_app.stored_services(store), runs=link(1, 2)))
    rows = {row.split('"')[0]: row.split("</tr>")[0] for row in html(at).split('data-row="')}
    assert "▲ +150.0 %" in rows["tokens_per_second"] and "% better" not in rows["tokens_per_second"]
    assert "% better" in rows["tokens_per_round"] and 'class="sl-better"' in rows["tokens_per_round"]
    assert "<small>▲ +4</small>" in rows["drafted"]
    assert "2.50 ×" in rows["speed_up"]
    assert "<small>" not in rows["peak_memory_bytes"]
    turned = clean(open_page("compare", fake_app.stored_services(store), runs=link(1, 2), base=id_of(2)))
    rows = {row.split('"')[0]: row.split("</tr>")[0] for row in html(turned).split('data-row="')}
    assert "▼ −60.0 %" in rows["tokens_per_second"] and "% worse" not in rows["tokens_per_second"]
    assert "% worse" in rows["tokens_per_round"] and 'class="sl-worse"' in rows["tokens_per_round"]


def test_a_speed_up_needs_a_matched_plain_run_of_the_same_session(open_page: Open, store: Store) -> None:
    keep(store, 1, PLAIN, asked("none", "none"), session="yesterday")
    keep(store, 2, CHAIN, asked())
    body = html(clean(open_page("compare", fake_app.stored_services(store), runs=link(1, 2))))
    assert 'data-row="speed_up"' not in body
    keep(store, 3, PLAIN, asked("none", "none"))
    at = clean(open_page("compare", fake_app.stored_services(store), runs=link(1, 2)))
    assert "2.50 ×" in html(at)  # measured against the one that is not among the chosen


def test_a_change_is_written_in_the_unit_that_suits_it() -> None:
    from core.results.comparison import changed

    def written(name: str, base: float, value: float) -> str:
        return signed(name, changed(name, [base, value], 0)[1])

    assert written("path_acceptance", 0.5, 0.625) == "+12.5 points"
    assert written("drafted", 1200, 100) == "−1,100"
    assert written("draft_s", 0.0, 0.012) == "+12 ms"
    assert written("ttft_s", 2.0, 1.0) == "−50.0 %"
    assert cell("ttft_s", changed("ttft_s", [1.0, 1.0001], 0)[1]) == Cell("1 s", "≈ no change")


def test_only_settings_that_differ_are_shown_until_the_switch_is_turned(open_page: Open, store: Store) -> None:
    keep(store, 1, CHAIN, asked())
    keep(store, 2, CHAIN, asked(shape="chain:5"))
    at = clean(open_page("compare", fake_app.stored_services(store), runs=link(1, 2)))
    assert 'data-row="Shape"' in html(at) and 'data-row="Device"' not in html(at)
    clean(at.toggle(key="compare_only").set_value(False).run())
    assert 'data-row="Device"' in html(at) and 'data-row="Reference law"' in html(at)


# -- figures


def test_every_figure_shows_each_run_by_letter(open_page: Open, store: Store) -> None:
    keep(store, 1, PLAIN, asked("none", "none"))
    keep(store, 2, CHAIN, asked())
    found = charts(clean(open_page("compare", fake_app.stored_services(store), runs=link(1, 2))))
    assert set(found) == {"parallel", "stages_per_token", "acceptance", "over_time", "gaps"}
    names = ["A · plain", "B · prompt_lookup chain:4"]
    assert [trace["name"] for trace in found["over_time"]["data"]] == names
    assert found["over_time"]["data"][1]["y"] == [0, 2, 5]
    assert [trace["name"] for trace in found["gaps"]["data"]] == names
    assert found["gaps"]["data"][1]["x"] == [3]
    assert [trace["name"] for trace in found["acceptance"]["data"]] == [names[1]] * 2
    assert [trace["y"] for trace in found["acceptance"]["data"]] == [[1.0, 0.5], [1.0, 0.5]]
    verify = next(trace for trace in found["stages_per_token"]["data"] if trace["name"] == "Verify")
    assert verify["x"] == [pytest.approx(0.03), pytest.approx(0.012)]
    assert len(found["parallel"]["data"]) == 2


def test_plain_runs_alone_have_no_acceptance_to_draw(open_page: Open, store: Store) -> None:
    keep(store, 1, PLAIN, asked("none", "none"))
    at = clean(open_page("compare", fake_app.stored_services(store), runs=link(1, 1)))
    assert "acceptance" not in charts(at)
    assert "Nothing was drafted" in html(at)


# -- text


def test_the_first_difference_is_named_and_both_texts_are_marked(open_page: Open, store: Store) -> None:
    keep(store, 1, CHAIN, asked())
    keep(store, 2, OTHER, asked(shape="s3_k2_d6"))
    body = html(clean(open_page("compare", fake_app.stored_services(store), runs=link(1, 2))))
    assert 'data-shared="2"' in body
    assert "The first 2 tokens are equal; at token 3 A says <code>␣the</code> and B says <code>␣stop</code>." in body
    assert '<mark class="sl-gone"' in body
    assert "The same seed does not mean the same text." in body


def test_greedy_texts_that_part_are_put_down_to_precision(open_page: Open, store: Store) -> None:
    keep(store, 1, CHAIN, asked(temperature=0.0))
    keep(store, 2, OTHER, asked(shape="chain:5", temperature=0.0))
    body = html(clean(open_page("compare", fake_app.stored_services(store), runs=link(1, 2))))
    assert "Lossless holds for exact numbers." in body
    assert "The same seed does not mean" not in body


def test_the_text_of_any_run_can_be_set_against_the_baselines(open_page: Open, store: Store) -> None:
    keep(store, 1, CHAIN, asked())
    keep(store, 2, CHAIN, asked(shape="chain:5"))
    keep(store, 3, OTHER, asked(shape="chain:6"))
    at = clean(open_page("compare", fake_app.stored_services(store), runs=link(1, 2, 3)))
    assert "Identical: all 5 tokens are equal." in html(at)
    clean(at.segmented_control[0].set_value(2).run())
    assert 'data-shared="2"' in html(at)


def test_markup_in_prompt_and_output_stays_inert(open_page: Open, store: Store) -> None:
    hostile = [sample.chain(["accepted", "rejected"], 0, text=sample.HOSTILE, last=sample.HOSTILE)]
    keep(store, 1, hostile, asked(prompt=sample.HOSTILE))
    keep(store, 2, [sample.chain(["accepted"], 0)], asked(prompt=sample.HOSTILE, shape="chain:5"))
    at = clean(open_page("compare", fake_app.stored_services(store), runs=link(1, 2)))
    tags = Tags(html(at))
    assert {"img", "script", "style"} & set(tags.names) == set()
    assert not {name for name in tags.attributes if name.startswith("on")}
    assert "<img src=x" in tags.text
    assert "<img" not in json.dumps(list(charts(at).values()))
    assert not any("<" in option for option in at.multiselect[0].options)


# -- prompt by prompt


def test_prompts_are_compared_each_with_its_own_baseline_and_filtered(open_page: Open, store: Store) -> None:
    for number, prompt in ((1, "First"), (3, "Second")):
        keep(store, number, PLAIN, asked("none", "none", prompt=prompt))
    keep(store, 2, CHAIN, asked(prompt="First"))
    keep(store, 4, PLAIN, asked(prompt="Second"))
    at = clean(open_page("compare", fake_app.stored_services(store), runs=link(1, 2, 3, 4)))
    assert html(at).count("data-prompt=") == 2
    clean(at.number_input(key="compare_prompt_threshold").set_value(20).run())
    assert html(at).count("data-prompt=") == 1 and 'data-prompt="First"' in html(at)
    clean(at.number_input(key="compare_prompt_threshold").set_value(500).run())
    assert "No prompt changes that much" in html(at)


# -- counterparts


def test_a_counterpart_of_this_session_is_compared_at_once(open_page: Open, store: Store) -> None:
    spec = asked()
    keep(store, 1, CHAIN, spec)
    plain = counterparts(spec.request)[0]
    keep(store, 2, PLAIN, RunSpec(pair=spec.pair, request=plain.request))
    services = fake_app.stored_services(store)
    at = clean(open_page("compare", services, runs=id_of(1)))
    assert "It has been measured." in html(at) and plain.reason in html(at)
    clean(at.button(key="compare_plain").click().run())
    assert submitted(services) == []
    assert (at.query_params["runs"], at.query_params["base"]) == (link(1, 2), id_of(2))


def test_a_counterpart_that_is_missing_is_run_first_and_waited_for(open_page: Open, store: Store) -> None:
    spec = asked()
    keep(store, 1, CHAIN, spec)
    services = fake_app.stored_services(store)
    at = clean(open_page("compare", services, runs=id_of(1)))
    assert "It will be run now." in html(at)
    clean(at.button(key="compare_tree").click().run())
    (asked_for,) = submitted(services)
    assert asked_for.request == next(one for one in counterparts(spec.request) if one.kind == "tree").request
    assert at.query_params["base"] == id_of(1)  # a tree is measured against its chain


def test_the_comparison_waits_for_a_run_that_goes_on_and_can_stop_it(open_page: Open, store: Store) -> None:
    keep(store, 1, CHAIN, asked())
    services = fake_app.stored_services(store)
    jobs = services.jobs
    assert isinstance(jobs, fake_app.FakeJobs)
    jobs.put(fake_app.queued(id_of(9), asked("none", "none")))
    at = clean(open_page("compare", services, runs=link(1, 9)))
    assert 'data-status="queued"' in html(at)
    assert "data-verdict" not in html(at)
    clean(at.button(key=f"stop_{id_of(9)}").click().run())
    assert jobs.cancelled == [id_of(9)]
    over = fake_app.over(PLAIN, asked("none", "none"), run_id=id_of(9))
    started = replace(sample.started(), fingerprint=print_of(asked("none", "none")))
    jobs.put(replace(over, started=started), PLAIN)
    clean(at.run())
    assert 'data-verdict="matched"' in html(at)


def test_a_run_that_never_read_its_prompt_has_nothing_to_compare(open_page: Open, store: Store) -> None:
    keep(store, 1, CHAIN, asked())
    services = fake_app.stored_services(store)
    jobs = services.jobs
    assert isinstance(jobs, fake_app.FakeJobs)
    jobs.put(replace(fake_app.queued(id_of(9), asked()), status="cancelled", position=0))
    at = clean(open_page("compare", services, runs=link(1, 9)))
    assert "B has nothing to compare." in html(at)


def test_a_run_of_an_earlier_session_is_run_again_beside_its_counterpart(open_page: Open, store: Store) -> None:
    spec = asked()
    keep(store, 1, CHAIN, spec, session="yesterday")
    services = fake_app.stored_services(store)
    at = clean(open_page("compare", services, runs=id_of(1)))
    assert "both will be run again" in html(at)
    clean(at.button(key="compare_plain").click().run())
    assert [one.request.drafter.kind for one in submitted(services)] == ["prompt_lookup", "none"]
    assert submitted(services)[0] == spec


@pytest.mark.parametrize("page", ["live", "history"])
def test_a_run_is_one_click_from_its_counterparts_wherever_it_is_shown(
    open_page: Open, store: Store, page: str
) -> None:
    spec = asked(rule="lenience:0.4")
    keep(store, 1, CHAIN, spec)
    services = fake_app.stored_services(store)
    at = clean(open_page(page, services, run=id_of(1)))
    wanted = counterparts(spec.request)
    assert [one.kind for one in wanted] == ["plain", "tree", "lossless"]
    for one in wanted:
        assert at.button(key=f"compare_{one.kind}")
        assert one.reason.split(" ")[0] in html(at)
    at.button(key="compare_lossless").click().run()
    assert submitted(services)[0].request == wanted[2].request


def test_the_same_counterpart_on_its_way_is_not_asked_for_twice(open_page: Open, store: Store) -> None:
    spec = asked()
    keep(store, 1, CHAIN, spec)
    services = fake_app.stored_services(store)
    jobs = services.jobs
    assert isinstance(jobs, fake_app.FakeJobs)
    jobs.put(fake_app.queued(id_of(9), RunSpec(pair=spec.pair, request=counterparts(spec.request)[0].request)))
    at = clean(open_page("compare", services, runs=id_of(1)))
    assert "It is being measured." in html(at)
    clean(at.button(key="compare_plain").click().run())
    assert jobs.submitted == []
    assert at.query_params["runs"] == link(1, 9)


def test_what_lossless_promises_is_said_where_a_lossless_run_is_shown(open_page: Open, store: Store) -> None:
    keep(store, 1, CHAIN, asked())
    at = clean(open_page("history", fake_app.stored_services(store), run=id_of(1)))
    assert any("What lossless does" in expander.label for expander in at.expander)


# -- words


def test_labels_and_letters() -> None:
    assert label(asked("none", "none")) == "plain"
    assert label(asked(rule="lenience:0.4")) == "prompt_lookup chain:4 lenience:0.4"
    from pages.ui.kit.runs import of_job

    three = named_sides(
        fake_app.fake_services(fake_app.FakeJobs()),
        [of_job(fake_app.queued(), fake_app.SESSION)] * 3,
    )
    assert (letters(three[:1]), letters(three[:2]), letters(three)) == ("A", "A and B", "A, B and C")


def submitted(services: Services) -> list[RunSpec]:
    assert isinstance(services.jobs, fake_app.FakeJobs)
    assert isinstance(services.runs, Runs)
    return services.jobs.submitted
