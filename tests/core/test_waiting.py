"""Compute threads give way to a busy machine, unless somebody has chosen how they wait."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from core.waiting import CHOSEN_BY, SPINS, wait_politely


def test_threads_sleep_soon_when_nothing_was_chosen() -> None:
    environment: dict[str, str] = {}
    wait_politely(environment)
    assert environment == {"GOMP_SPINCOUNT": str(SPINS)}


@pytest.mark.parametrize("chosen", [{"OMP_WAIT_POLICY": "ACTIVE"}, {"GOMP_SPINCOUNT": "infinite"}])
def test_what_a_person_chose_stays(chosen: dict[str, str]) -> None:
    environment = dict(chosen)
    wait_politely(environment)
    assert environment == chosen


@pytest.mark.parametrize(
    "start",
    [
        "import core.worker.__main__; before = 'torch' in sys.modules; core.worker.__main__.main(['--no-such-option'])",
        "import core.__main__; before = 'torch' in sys.modules; core.__main__.main(lambda: None)",
    ],
)
def test_it_is_settled_before_torch_is_imported(start: str) -> None:
    program = f"import atexit, os, sys; atexit.register(lambda: print(before, os.environ['GOMP_SPINCOUNT'])); {start}"
    plain = {name: value for name, value in os.environ.items() if name not in CHOSEN_BY}
    said = subprocess.run([sys.executable, "-c", program], env=plain, stdin=subprocess.DEVNULL, capture_output=True)
    assert said.stdout.decode().split() == ["False", str(SPINS)], said.stderr.decode()
