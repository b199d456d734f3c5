"""``python -m storage``: exit codes and sentences."""

from __future__ import annotations

import csv
import io
import zipfile
from pathlib import Path

import pytest

from storage.__main__ import main
from storage.store import Store
from tests.helpers.processes import reported, writing
from tests.helpers.records import at, ended, round_, run_id, spec, started, summary


@pytest.fixture
def closed(path: Path) -> Path:
    """A closed database with a done run of two rounds and a cancelled one."""
    with Store(path) as store:
        store.submitted(run_id(1), spec(), "s", at(0))
        store.started(run_id(1), started(), at(1))
        store.rounds(run_id(1), [round_(0), round_(1)])
        store.ended(run_id(1), ended(), summary(), at(2))
        store.submitted(run_id(2), spec("another"), "s", at(3))
        store.ended(run_id(2), ended("cancelled", text=""), None, at(4))
    return path


def _ids(data: bytes) -> list[str]:
    return [row["run_id"] for row in csv.DictReader(io.StringIO(data.decode("utf-8-sig"), newline=""))]


def test_export_writes_three_tables_and_their_dictionary(
    closed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "new" / "folder"
    assert main(["export", "--db", str(closed), "--out", str(out)]) == 0
    assert capsys.readouterr().out == f"2 runs exported to {out}.\n"
    assert sorted(file.name for file in out.iterdir()) == [
        "candidates.csv",
        "data_dictionary.csv",
        "rounds.csv",
        "runs.csv",
    ]
    assert _ids((out / "runs.csv").read_bytes()) == [run_id(1), run_id(2)]
    assert _ids((out / "candidates.csv").read_bytes()) == [run_id(1)] * 4


def test_export_takes_only_the_statuses_that_are_named(closed: Path, tmp_path: Path) -> None:
    def exported(*options: str) -> list[str]:
        assert main(["export", "--db", str(closed), "--out", str(tmp_path), *options]) == 0
        return _ids((tmp_path / "runs.csv").read_bytes())

    assert exported("--status", "cancelled") == [run_id(2)]
    assert exported("--status", "cancelled", "--status", "done") == [run_id(1), run_id(2)]
    assert exported("--status", "failed") == []
    assert exported("--text", "ANOTHER", "--bom") == [run_id(2)]


def test_export_makes_one_zip_on_request(closed: Path, tmp_path: Path) -> None:
    assert main(["export", "--db", str(closed), "--out", str(tmp_path / "out"), "--zip", "--bom"]) == 0
    with zipfile.ZipFile(tmp_path / "out" / "speclens.zip") as bundle:
        assert bundle.read("runs.csv").startswith(b"\xef\xbb\xbf")
        assert _ids(bundle.read("rounds.csv")) == [run_id(1)] * 2


def test_info_lists_size_schema_and_counts(closed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", "--db", str(closed)]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith(f"file        {closed} (")
    assert said[1:] == [
        "schema      0005",
        "runs        2 (1 done, 1 cancelled)",
        "rounds      2",
        "candidates  4",
    ]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["export", "--nonsense"], "No such option: --nonsense"),
        (["export"], "Missing option '--out'"),
        (["nonsense"], "No such command 'nonsense'"),
        (["info", "--db"], "Option '--db' requires an argument"),
        (["info", "--db", "missing.duckdb"], "There is no database missing.duckdb: name one with --db."),
        (["export", "--out", "x", "--status", "finished"], "'finished' is no status: write one of queued, running,"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_options_and_values_end_with_code_2_and_a_sentence(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert sentence in capsys.readouterr().err


def test_a_database_that_the_app_has_open_ends_with_code_1_and_a_sentence(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with writing("hold", path) as process:
        reported(process)
        for command in (["info"], ["export", "--out", str(tmp_path / "out")]):
            assert main([*command, "--db", str(path)]) == 1
            said = capsys.readouterr()
            assert said.err.startswith(f"The database {path} is in use by process {process.pid}")
            assert said.out == ""
    assert not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_written_ends_with_code_1_and_a_sentence(
    closed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("here")
    assert main(["export", "--db", str(closed), "--out", str(tmp_path / "file")]) == 1
    assert capsys.readouterr().err == f"{tmp_path / 'file'} cannot be written: File exists.\n"


def test_the_default_database_is_the_apps_own(
    closed: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SPECLENS_DATA", str(closed.parent))
    assert main(["info"]) == 0
    assert str(closed) in capsys.readouterr().out
