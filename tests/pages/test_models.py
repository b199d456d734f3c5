"""The Models page on laid-out pairs: what it says of each, and what its buttons ask of the engine."""

from __future__ import annotations

from dataclasses import replace

import pytest
from streamlit.testing.v1 import AppTest

from core.errors import EngineFault, StorageUnavailable
from core.pairs.checks import CheckView
from core.pairs.findings import Finding, ModelFinding, TokenDifference, VocabularyFinding
from core.pairs.memory import DeviceMemory
from core.records import Ended
from core.types import PairSpec
from pages.ui.kit.services import Services
from storage.store import Store
from tests.helpers import fake_app, sample
from tests.pages.conftest import Open, html

GPU = DeviceMemory("cuda", "Tester 80 GB", 80 * 2**30, 70 * 2**30)
GIB = 2**30


def laid_out(jobs: fake_app.FakeJobs | None = None) -> Services:
    """Services around the fake inventory."""
    return fake_app.fake_services(jobs or fake_app.FakeJobs())


def inventory(app: Services) -> fake_app.FakeInventory:
    assert isinstance(app.inventory, fake_app.FakeInventory)
    return app.inventory


def checks(app: Services) -> fake_app.FakeChecks:
    assert isinstance(app.checks, fake_app.FakeChecks)
    return app.checks


def jobs_of(app: Services) -> fake_app.FakeJobs:
    assert isinstance(app.jobs, fake_app.FakeJobs)
    return app.jobs


def clean(at: AppTest) -> AppTest:
    """The page, which raised nothing."""
    assert not at.exception
    return at


def state_of(at: AppTest, name: str) -> str:
    """The state that the pair's card shows."""
    return html(at).split(f'data-pair="{name}" data-state="')[1].split('"')[0]


def keys(at: AppTest) -> set[str]:
    return {button.key for button in at.button if button.key}


def load(status: str, name: str = "embedded", **fields: object):
    """A load of the pair at one moment."""
    spec = sample.spec()
    view = fake_app.queued("load", spec.model_copy(update={"pair": PairSpec(name=name)}))
    return replace(view, status=status, **fields)  # type: ignore[arg-type]


# -- the pairs ------------------------------------------------------------------------------------------------------


def test_each_pair_has_its_state_and_models_their_sizes_shapes_and_template(open_page: Open) -> None:
    at = clean(open_page("models", laid_out(fake_app.FakeJobs(held=(PairSpec(name="embedded"),)))))
    assert [state_of(at, name) for name in ("embedded", "big", "org/target+org/draft")] == ["loaded", "missing", "here"]
    drawn = html(at)
    assert "org/big is not here." in drawn
    assert "float32 on the CPU" in drawn
    for cell in ("1 B", "1.86 GiB", "16", "32 (8 KV)", "8,192", "128,256", "yes", "100 M"):
        assert f"<td>{cell}</td>" in drawn


def test_the_need_is_weights_in_the_precision_and_the_cache_of_a_slot_against_what_is_free(open_page: Open) -> None:
    at = clean(open_page("models", laid_out()))
    # (1 B + 0.1 B) · 4 bytes, and (16 · 2 · 8 · 64 + 4096) numbers · 4 bytes · 4,096 tokens
    assert "4.1 GiB for the weights + 320 MiB for one slot of 4,096 tokens · 16 GiB of memory free" in html(at)
    at.selectbox(key="models_precision").set_value("bfloat16")
    at.number_input(key="models_rows").set_value(100_000).run()
    assert "2.05 GiB for the weights + 320 MiB for one slot of 8,192 tokens" in html(clean(at))  # its whole context


def test_a_gpu_is_named_and_weights_are_counted_in_bfloat16(open_page: Open) -> None:
    app = laid_out()
    inventory(app).device = GPU
    drawn = html(clean(open_page("models", app)))
    assert "Tester 80 GB" in drawn
    assert "2.05 GiB for the weights" in drawn
    assert "70 GiB of GPU memory free" in drawn


def test_int8_says_what_it_takes_and_that_it_is_made_from_float32(open_page: Open) -> None:
    app = laid_out()
    at = clean(open_page("models", app))
    at.selectbox(key="models_precision").set_value("int8").run()
    drawn = html(clean(at))
    assert "1.68 GiB for the weights" in drawn
    assert "3.73 GiB while it is loaded" in drawn
    inventory(app).device = DeviceMemory("cpu", "CPU", 8 * GIB, 3 * GIB)
    assert at.run().button(key="load_embedded").disabled
    inventory(app).device = DeviceMemory("cpu", "CPU", 8 * GIB, 4 * GIB)
    assert not at.run().button(key="load_embedded").disabled


def test_a_pair_that_is_not_here_is_judged_by_its_published_size_and_too_large_ones_cannot_be_loaded(
    open_page: Open,
) -> None:
    app = laid_out()
    at = clean(open_page("models", app))
    assert "<b>about 29.8 GiB</b> needed for the weights" in html(at)
    assert "It does not fit: choose a shorter precision or a smaller pair." in html(at)
    assert at.button(key="load_big").disabled
    at.selectbox(key="models_precision").set_value("bfloat16").run()
    assert not at.button(key="load_big").disabled
    assert at.button(key="load_big").label == "Download"


def test_the_loaded_pair_makes_room_for_another(open_page: Open) -> None:
    app = laid_out(fake_app.FakeJobs(held=(PairSpec(name="org/target+org/draft"),)))
    inventory(app).device = DeviceMemory("cpu", "CPU", 8 * GIB, GIB)
    at = clean(open_page("models", app))
    assert "5.1 GiB of memory free" in html(at)
    assert not at.button(key="load_embedded").disabled


def test_weights_that_fit_beside_a_slot_that_does_not_say_so_and_can_be_loaded(open_page: Open) -> None:
    app = laid_out()
    inventory(app).device = DeviceMemory("cpu", "CPU", 8 * GIB, int(3.9 * GIB))
    at = clean(open_page("models", app))
    assert "The weights fit, a slot of this length does not: choose a shorter context." in html(at)
    assert not at.button(key="load_embedded").disabled


def test_a_gpu_that_is_asked_for_and_cannot_be_used_is_a_sentence_and_nothing_can_be_loaded(open_page: Open) -> None:
    app = laid_out()
    inventory(app).device = DeviceMemory("cuda", "no usable GPU", None, None, "No GPU can be used: choose the CPU.")
    at = clean(open_page("models", app))
    assert "No GPU can be used: choose the CPU." in html(at)
    assert at.button(key="load_embedded").disabled


def test_pairs_of_stored_runs_are_listed(open_page: Open, store: Store) -> None:
    spec = sample.spec().model_copy(update={"pair": PairSpec(name="some/model")})
    fake_app.keep(store, sample.RUN_ID, [sample.chain(["accepted"], 0)], spec)
    app = fake_app.stored_services(store)
    clean(open_page("models", app))
    assert list(inventory(app).used) == ["some/model"]


def test_a_store_that_cannot_be_read_leaves_the_pairs(
    open_page: Open, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = fake_app.stored_services(store)

    def broken() -> None:
        raise StorageUnavailable("The disk is full: free some space.")

    monkeypatch.setattr(app.runs, "facets", broken)
    assert state_of(clean(open_page("models", app)), "embedded") == "here"


def test_a_database_that_cannot_be_opened_is_said_and_the_presets_stay(open_page: Open) -> None:
    why = "The database is open in another process: close that one."
    at = clean(open_page("models", fake_app.fake_services(fake_app.FakeJobs(), None, why)))
    assert why in html(at)
    assert state_of(at, "embedded") == "here"


def test_names_from_outside_stay_text(open_page: Open) -> None:
    app = laid_out()
    hostile = replace(fake_app.KNOWN[2], name=sample.HOSTILE, target=sample.HOSTILE, missing=sample.HOSTILE)
    inventory(app).pairs = (hostile,)
    drawn = html(clean(open_page("models", app)))
    assert "<script" not in drawn and "<img" not in drawn


# -- load and unload ------------------------------------------------------------------------------------------------


def test_load_asks_the_engine_for_the_pair_in_the_chosen_precision_and_unload_frees_it(open_page: Open) -> None:
    app = laid_out()
    at = clean(open_page("models", app))
    at.selectbox(key="models_precision").set_value("bfloat16").run()
    clean(at.button(key="load_embedded").click().run())
    assert jobs_of(app).loads == [PairSpec(name="embedded", precision="bfloat16")]
    jobs_of(app).held = (PairSpec(name="embedded", precision="bfloat16"),)
    clean(at.run())
    assert "load_embedded" not in keys(at)
    clean(at.button(key="unload_embedded").click().run())
    assert jobs_of(app).held == ()
    assert state_of(at, "embedded") == "here"


def test_a_pair_held_in_another_precision_can_be_loaded_again_or_unloaded(open_page: Open) -> None:
    at = clean(open_page("models", laid_out(fake_app.FakeJobs(held=(PairSpec(name="embedded", precision="float16"),)))))
    assert state_of(at, "embedded") == "loaded"
    assert {"load_embedded", "unload_embedded"} <= keys(at)


def test_a_load_that_goes_on_shows_its_progress_and_a_stop(open_page: Open) -> None:
    jobs = fake_app.FakeJobs(load_view=load("running", message="loading weights of SmolLM2", progress=0.4, position=0))
    at = clean(open_page("models", laid_out(jobs)))
    assert state_of(at, "embedded") == "loading"
    assert "loading weights of SmolLM2" in html(at) and 'aria-valuenow="40"' in html(at)
    clean(at.button(key="stop_embedded").click().run())
    assert jobs.cancelled == ["load"]


def test_a_load_behind_runs_says_that_it_waits(open_page: Open) -> None:
    at = clean(open_page("models", laid_out(fake_app.FakeJobs(load_view=load("queued")))))
    assert "Waits for the runs before it (1 in the queue)." in html(at)


def test_a_load_that_failed_says_why(open_page: Open) -> None:
    ended = Ended(request=0, stop_reason="failed", text="", e2e_s=0.0, error="The weight file is damaged.")
    at = clean(open_page("models", laid_out(fake_app.FakeJobs(load_view=load("failed", ended=ended)))))
    assert "<b>Not loaded.</b> The weight file is damaged." in html(at)


def test_an_engine_that_takes_no_load_is_a_sentence(open_page: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(self: fake_app.FakeJobs, pair: PairSpec) -> str:
        raise EngineFault("The engine is stopped and takes no more runs: start the app again.")

    monkeypatch.setattr(fake_app.FakeJobs, "load", stopped)
    at = clean(open_page("models", laid_out()))
    assert "The engine is stopped" in html(clean(at.button(key="load_embedded").click().run()))


# -- the check ------------------------------------------------------------------------------------------------------

HERE = ModelFinding("org/target", True, "", fake_app.LLAMA, "llama, full attention in every layer", "")
DRAFT = ModelFinding("org/draft", True, "", fake_app.SMALL, "llama, full attention in every layer", "")


def answered(finding: Finding | None, problem: str = "", running: bool = False) -> CheckView:
    return CheckView("org/a+org/b", running, "comparing the vocabularies", 0.9, 3.21, finding, problem)


def asked(open_page: Open, view: CheckView) -> tuple[AppTest, Services]:
    """The page after org/a+org/b was typed and checked, with this answer."""
    app = laid_out()
    checks(app).views["org/a+org/b"] = view
    at = clean(open_page("models", app))
    at.text_input(key="models_name").set_value(" org/a+org/b ")
    at.button(key="FormSubmitter:models_check-Check").click()
    clean(at.run())
    assert checks(app).started == ["org/a+org/b"]
    return at, app


def test_a_pair_that_can_run_is_said_to_and_can_be_loaded_from_the_answer(open_page: Open) -> None:
    found = Finding("org/a+org/b", (HERE, DRAFT), VocabularyFinding(128_000, 0, (), ""), "")
    at, app = asked(open_page, answered(found))
    drawn = html(at)
    assert 'data-verdict="yes"' in drawn
    assert "All 128,000 ids mean the same token in both." in drawn
    assert "org/target is llama, full attention in every layer; every row can be cut back after a rejection." in drawn
    clean(at.button(key="load_checked_org/a+org/b").click().run())
    assert jobs_of(app).loads == [PairSpec(name="org/a+org/b")]


def test_different_vocabularies_show_the_first_differing_ids_with_both_tokens(open_page: Open) -> None:
    differences = (TokenDifference(3, "<script>", " the"), TokenDifference(4, "a", "b"))
    vocabulary = VocabularyFinding(300, 297, differences, "They have different vocabularies.")
    at, _ = asked(open_page, answered(Finding("org/a+org/b", (HERE, DRAFT), vocabulary, "")))
    drawn = html(at)
    assert 'data-verdict="no"' in drawn
    row = '<tr><td>3</td><td><span class="sl-token">&lt;script&gt;</span></td><td><span class="sl-token">␣the</span>'
    assert row in drawn
    assert "and 295 more of 300 ids" in drawn
    assert "load_checked_org/a+org/b" not in keys(at)


def test_a_refusal_names_the_state_that_cannot_be_rolled_back(open_page: Open) -> None:
    refused = replace(HERE, attention="", refused="The model org/target (mamba) keeps recurrent state: choose another.")
    at, _ = asked(open_page, answered(Finding("org/a+org/b", (refused,), None, "")))
    assert 'data-verdict="no"' in html(at)
    assert "The model org/target (mamba) keeps recurrent state: choose another." in html(at)


def test_a_model_that_is_not_here_leaves_the_verdict_open(open_page: Open) -> None:
    absent = ModelFinding("org/target", False, "The model is not on this machine and can't be reached.", None, "", "")
    at, _ = asked(open_page, answered(Finding("org/a+org/b", (absent, DRAFT), None, "")))
    assert 'data-verdict="open"' in html(at)
    assert "The model is not on this machine and can&#x27;t be reached." in html(at)
    assert "It can be compared when both tokenizers can be read." in html(at)


def test_a_check_that_goes_on_can_be_stopped_and_one_that_broke_off_says_why(open_page: Open) -> None:
    at, app = asked(open_page, answered(None, running=True))
    assert "Checking org/a+org/b: comparing the vocabularies · 3.2 s" in html(at)
    clean(at.button(key="stop_check_org/a+org/b").click().run())
    assert checks(app).stopped == ["org/a+org/b"]
    checks(app).views["org/a+org/b"] = answered(None, "Stopped.")
    assert "<b>org/a+org/b was not checked.</b> Stopped." in html(clean(at.run()))


def test_an_empty_form_asks_for_a_name(open_page: Open) -> None:
    app = laid_out()
    at = clean(open_page("models", app))
    clean(at.button(key="FormSubmitter:models_check-Check").click().run())
    assert "Type the pair to check" in html(at)
    assert checks(app).started == []


def test_a_known_pair_is_checked_in_its_card(open_page: Open) -> None:
    app = laid_out()
    checks(app).views["embedded"] = replace(answered(Finding("embedded", (HERE,), None, "")), name="embedded")
    at = clean(open_page("models", app))
    clean(at.button(key="check_embedded").click().run())
    assert checks(app).started == ["embedded"]
    assert 'data-verdict="yes"' in html(at)
