"""kill -9 of the whole app while a run decodes: nothing stored is lost, and no engine stays behind on the device."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil

from core.results.metrics import violations
from storage.queries import Runs
from storage.store import Store

ROOT = Path(__file__).resolve().parents[1]

APP = """
import sys, time
from pathlib import Path
from core.types import ChainShape, PairSpec, Request, RunSpec, SmallModelDrafter, Stops
from pages.ui.kit.services import open_services, worker_command

app = open_services(Path(sys.argv[1]) / "speclens.duckdb", worker_command())
stops = Stops(max_new_tokens=9000)
request = Request(prompt="abc", drafter=SmallModelDrafter(), shape=ChainShape(gamma=3), stops=stops)
run_id = app.jobs.submit(RunSpec(pair=PairSpec(), request=request))
while len(app.runs.rounds(run_id)) < 10:
    time.sleep(0.05)
print(run_id, flush=True)
time.sleep(600)
"""


def test_a_killed_app_leaves_the_run_interrupted_with_its_whole_rounds_and_no_engine_behind(tmp_path):
    environment = os.environ | {"SPECLENS_LOADER": "tests.helpers.fakes:load_pair", "SPECLENS_FAKE_DELAY": "0.02"}
    with subprocess.Popen(
        [sys.executable, "-c", APP, str(tmp_path)],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as app:
        assert app.stdout is not None
        run_id = app.stdout.readline().strip()
        engines = psutil.Process(app.pid).children(recursive=True)
        assert len(engines) == 1
        app.send_signal(signal.SIGKILL)
        app.wait()
    _, alive = psutil.wait_procs(engines, timeout=30)
    assert alive == []
    with Store(tmp_path / "speclens.duckdb") as store:
        assert store.interrupted == (run_id,)
        stored = Runs(store).get(run_id)
        rounds = Runs(store).rounds(run_id)
    assert stored is not None
    assert stored.status == "interrupted"
    assert [one.index for one in rounds] == list(range(len(rounds)))
    assert len(rounds) >= 10
    assert stored.summary is not None
    assert stored.summary.output_tokens == sum(len(one.committed) for one in rounds)
    assert violations(stored.summary, rounds) == []
