from __future__ import annotations

from collections.abc import Iterator

import pytest

from storage.store import Store
from tests.helpers.records import HOSTILE, PROMPTS, at, ended, round_, run_id, spec, started, summary


@pytest.fixture(scope="package")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A run per hostile prompt, with two rounds whose tokens are hostile texts; the last one is still queued. The first
    has a name, a note and tags."""
    with Store(tmp_path_factory.mktemp("hostile") / "speclens.duckdb") as store:
        for number, prompt in enumerate(PROMPTS):
            name = run_id(number)
            store.submitted(name, spec(prompt), "s", at(number))
            if number == len(PROMPTS) - 1:
                break
            store.started(name, started(), at(number))
            store.rounds(name, [round_(0, prompt), round_(1, HOSTILE[number])])
            store.ended(name, ended(text=prompt), summary(text=prompt), at(number + 1))
        store.rename(run_id(0), "=name")
        store.annotate(run_id(0), "-note")
        store.tag([run_id(0)], add=["b", '"a"'])
        yield store
