"""An export is whole or not there: full disks, faults in the middle, an interrupting keyboard."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from core.errors import BadInput, SpecLensError
from storage.export.files import Files
from storage.store import Store
from tests.helpers.processes import REPOSITORY, reported, writing
from tests.helpers.records import at, ended, round_, run_id, spec, started, summary

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
ADVICE = "the disk is full, so free some room"


@pytest.fixture
def filled(path: Path) -> Path:
    """A closed database whose candidates take more than 100 kB in either format."""
    with Store(path) as store:
        store.submitted(run_id(1), spec(), "s", at(0))
        store.started(run_id(1), started(), at(1))
        for first in range(0, 3000, 500):
            # a text of its own for each token, which no compression makes small
            store.rounds(run_id(1), [round_(index, os.urandom(40).hex()) for index in range(first, first + 500)])
        store.ended(run_id(1), ended(), summary(), at(2))
    return path


def _names(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def test_files_have_their_names_only_when_all_are_whole(tmp_path: Path) -> None:
    with Files(tmp_path) as files:
        files.new("a").write(b"1")
        files.new("b").write(b"2")
        assert _names(tmp_path) == ["a.partial", "b.partial"]
    assert [(name, (tmp_path / name).read_bytes()) for name in _names(tmp_path)] == [("a", b"1"), ("b", b"2")]


def _broken_off(folder: Path, fault: BaseException) -> None:
    """Two files, then the fault."""
    with Files(folder) as files:
        files.new("a").write(b"after")
        files.new("b").write(b"half")
        raise fault


@pytest.mark.parametrize("fault", [KeyboardInterrupt(), BadInput("no"), RuntimeError("defect")], ids=repr)
def test_after_a_fault_no_new_file_is_left_and_older_ones_are_unchanged(tmp_path: Path, fault: BaseException) -> None:
    (tmp_path / "a").write_bytes(b"before")
    with pytest.raises(type(fault)):
        _broken_off(tmp_path, fault)
    assert _names(tmp_path) == ["a"]
    assert (tmp_path / "a").read_bytes() == b"before"


def test_a_full_disk_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(SpecLensError) as refused:
        _broken_off(tmp_path, FULL)
    assert str(refused.value) == f"{tmp_path} cannot be written: {ADVICE}; nothing was exported."
    assert _names(tmp_path) == []


def test_a_partial_file_that_cannot_be_removed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, missing_ok: bool = False) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(SpecLensError) as refused:
        _broken_off(tmp_path, PermissionError(errno.EACCES, "Permission denied"))
    monkeypatch.undo()
    assert str(refused.value) == (
        f"{tmp_path} cannot be written: Permission denied; nothing was exported; "
        f"remove what is incomplete: {tmp_path / 'a.partial'}, {tmp_path / 'b.partial'}."
    )


def test_the_command_line_leaves_nothing_behind_when_the_disk_is_really_full(filled: Path) -> None:
    """RLIMIT_FSIZE stands in for the full disk. What an earlier export left stands unchanged."""
    (filled.parent / "csv").mkdir()
    (filled.parent / "csv" / "runs.csv").write_text("an earlier export")
    command = [sys.executable, "-m", "tests.helpers.writing_process", "export", str(filled)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=120)
    assert done.stdout == '{"codes": [1, 1, 1]}\n'
    assert done.stderr.splitlines() == [
        f"{filled.parent / name} cannot be written: {ADVICE}; nothing was exported."
        for name in ("csv", "parquet", "zip")
    ]
    assert [_names(filled.parent / name) for name in ("csv", "parquet", "zip")] == [["runs.csv"], [], []]
    assert (filled.parent / "csv" / "runs.csv").read_text() == "an earlier export"


def test_a_download_without_room_is_a_sentence_and_leaves_nothing_behind(filled: Path) -> None:
    with writing("download", filled) as process:
        for _ in range(2):
            said = reported(process)
            assert said["refused"] == (f"The export cannot be written to {filled.parent}: {ADVICE}.")
            assert said["beside"] == ["speclens.duckdb"]
