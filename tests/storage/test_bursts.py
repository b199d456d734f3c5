"""What Compare reads of a run: its bursts without candidates, and the run that was asked exactly a spec."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from core.results.traces import bursts
from storage.queries import Runs
from tests.helpers import fake_app, sample
from tests.helpers.fake_app import SESSION


def test_bursts_are_those_of_the_rounds_that_were_kept(tmp_path: Path) -> None:
    store = fake_app.open_store(tmp_path)
    rounds = [
        sample.chain(["accepted", "rejected"], 0, text="a\u0301\n"),
        replace(sample.plain(1), committed=(), committed_text=(), source="none"),
        sample.tree(2),
    ]
    fake_app.keep(store, sample.RUN_ID, rounds)
    store.flush()
    read = Runs(store).bursts(sample.RUN_ID)
    store.close()
    assert read == bursts(rounds)
    assert [burst.index for burst in read] == [0, 2]


def test_a_run_is_found_by_exactly_what_it_was_asked_in_its_session(tmp_path: Path) -> None:
    store = fake_app.open_store(tmp_path)
    for number in range(2):
        fake_app.keep(store, f"{number:026d}", [sample.plain(0)], sample.spec(prompt="mine"), after_s=number)
    store.submitted(f"{2:026d}", sample.spec(prompt="mine"), SESSION, fake_app.NOON)  # never ended
    store.flush()
    runs = Runs(store)
    found = runs.of_spec(sample.spec(prompt="mine"), SESSION)
    others = [runs.of_spec(sample.spec(prompt="other"), SESSION), runs.of_spec(sample.spec(prompt="mine"), "another")]
    store.close()
    assert found is not None and found.run_id == f"{1:026d}"
    assert others == [None, None]
