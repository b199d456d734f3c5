"""Fixtures and marks for every test. No test reaches the network."""

from __future__ import annotations

import os

os.environ["HF_HUB_OFFLINE"] = "1"  # read once, when huggingface_hub is imported

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from core.jobs.jobs import Jobs
    from core.jobs.process_executor import ProcessExecutor
    from core.models.pair import Pair
    from tests.helpers.fakes_worker import Gate
    from tests.helpers.queueing import ListSink


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark by what a test uses: ``model`` for the embedded model, ``browser`` for what lies in tests/browser."""
    for item in items:
        if "embedded_pair" in getattr(item, "fixturenames", ()):
            item.add_marker("model")
        if "browser" in Path(item.path).parts:
            item.add_marker("browser")


@pytest.fixture(scope="session")
def embedded_pair() -> Pair:
    """The embedded model in float32 on the CPU, converted into the cache folder if it isn't yet; loaded once."""
    from core.models.load import load_pair  # here and below: torch takes seconds to import, and most tests need none
    from core.types import PairSpec

    return load_pair(PairSpec(name="embedded", precision="float32", device="cpu"))


@pytest.fixture(scope="session")
def tiny_pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """A tiny random Llama (2 layers, 300 ids, byte-level tokenizer) in float32 on the CPU; no draft model."""
    from core.models.load import load_pair
    from core.types import PairSpec
    from tests.helpers.tiny import save_tiny_model

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPECLENS_CACHE", str(tmp_path_factory.mktemp("cache")))
        folder = save_tiny_model(tmp_path_factory.mktemp("tiny") / "llama", seed=0)
        return load_pair(PairSpec(name=str(folder), precision="float32", device="cpu"))


@pytest.fixture
def sink() -> ListSink:
    from tests.helpers.queueing import ListSink

    return ListSink()


@pytest.fixture
def executor() -> ProcessExecutor:
    """The engine process with the fake engine."""
    from core.jobs.process_executor import ProcessExecutor
    from tests.helpers.fakes_worker import COMMAND

    return ProcessExecutor(COMMAND)


@pytest.fixture
def jobs(sink: ListSink, executor: ProcessExecutor) -> Iterator[Jobs]:
    """A queue in front of it, which never kills it for being slow."""
    from core.jobs.jobs import Jobs
    from tests.helpers.queueing import NEVER_S

    jobs = Jobs(sink, "session", executor=executor, cancel_timeout_s=NEVER_S)
    yield jobs
    jobs.close()


@pytest.fixture
def gates(tmp_path: Path) -> Iterator[Callable[[], Gate]]:
    """Makes gates at which rounds wait."""
    from tests.helpers.fakes_worker import Gate

    made: list[Gate] = []

    def make() -> Gate:
        made.append(Gate(tmp_path / f"gate{len(made)}"))
        return made[-1]

    yield make
    for gate in made:
        gate.close()
