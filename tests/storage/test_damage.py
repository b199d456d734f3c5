"""A damaged, foreign or odd file in the database's place: a sentence, and nothing is overwritten."""

from __future__ import annotations

import os
import random
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from sqlalchemy import update

from core.errors import StorageUnavailable
from storage.__main__ import main
from storage.inspection import HEADERS, LOG_FRAME, LOG_VERSION_END, log_of
from storage.queries import Runs
from storage.schema import rounds, runs
from storage.store import Store
from tests.helpers.records import at, ended, round_, run_id, spec, started, summary

FLIPS = 12
"""Damaged copies of the file, and as many of the log."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a killed app left: a file with run 1, and a log with runs 2 and 3, each in transactions of its own."""

    file: bytes
    log: bytes

    def put(self, path: Path, file: bytes | None = None, log: bytes | None = None) -> None:
        """Writes both to ``path``, or other bytes in their place."""
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(self.file if file is None else file)
        log_of(path).write_bytes(self.log if log is None else log)


def left_behind(path: Path, first: int = 1) -> Found:
    with Store(path, gather_s=0.001) as store:
        for number in (first, first + 1, first + 2):
            store.submitted(run_id(number), spec(), "s", at(0))
            store.flush()
            store.started(run_id(number), started(), at(1))
            store.rounds(run_id(number), [round_(0), round_(1)])
            store.flush()
            if number == first:
                store.ended(run_id(number), ended(), summary(), at(2))
                store.flush()
                store.database.checkpoint()
        return Found(path.read_bytes(), log_of(path).read_bytes())


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Found:
    return left_behind(tmp_path_factory.mktemp("left") / "speclens.duckdb")


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}


def refused(path: Path) -> str:
    """The sentence with which the store refuses ``path``, whose folder it leaves as it is."""
    before = contents(path.parent)
    with pytest.raises(StorageUnavailable) as error:
        Store(path)
    assert contents(path.parent) == before
    sentence = str(error.value)
    assert str(path.name) in sentence
    assert "Nothing was changed. " in sentence
    assert "\n" not in sentence
    return sentence


def read(store: Store) -> str | None:
    """Reads every run with its rounds; returns the sentence on what can't be read."""
    stored = Runs(store)
    try:
        for run in stored.list():
            stored.rounds(run.run_id)
    except StorageUnavailable as error:
        return str(error)
    return None


def opened(path: Path) -> tuple[str | None, bool]:
    """The sentence on what can't be opened or read, and whether the store was opened."""
    try:
        with Store(path) as store:
            return read(store), True
    except StorageUnavailable as error:
        return str(error), False


def test_what_a_killed_app_left_is_read_without_a_note(found: Found, path: Path) -> None:
    found.put(path)
    with Store(path) as store:
        assert store.notes == ()
        assert store.interrupted == (run_id(2), run_id(3))
        assert len(Runs(store).rounds(run_id(3))) == 2


@pytest.mark.parametrize("part", ["file", "log"])
def test_a_flipped_bit_is_a_sentence_or_does_no_harm(found: Found, tmp_path: Path, part: str) -> None:
    chance = random.Random(6)
    refusals = 0
    for number in range(FLIPS):
        whole = bytearray(getattr(found, part))
        # the headers and the first kilobytes of a block hold most of what is read
        reach = len(whole) if part == "log" or number % 2 else HEADERS
        place = chance.randrange(reach)
        whole[place] ^= 1 << chance.randrange(8)
        path = tmp_path / str(number) / "speclens.duckdb"
        found.put(path, **{part: bytes(whole)})
        before = contents(path.parent)
        sentence, open_now = opened(path)
        assert sentence is None or str(path) in sentence, place
        if not open_now:
            refusals += 1
            assert contents(path.parent) == before, place
    assert refusals >= FLIPS // 3


@pytest.mark.parametrize("size", [1, 100, 5000, HEADERS, HEADERS + 1, -1])
def test_a_file_cut_short_is_told_with_its_size(found: Found, path: Path, size: int) -> None:
    found.put(path, file=found.file[:size])
    sentence = refused(path)
    if size >= 100:
        assert f"is cut short: {size:,} bytes of" in sentence
    elif size < 0:
        assert f"is cut short: {len(found.file) - 1:,} bytes of {len(found.file):,} are there." in sentence
    else:
        assert "is not a DuckDB database" in sentence


def _sqlite(path: Path) -> None:
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE runs(run_id TEXT)")
    other.commit()
    other.close()


def _link_loop(path: Path) -> None:
    other = path.with_name("other.duckdb")
    other.symlink_to(path)
    path.symlink_to(other)


ODD: dict[str, tuple[Callable[[Path], object], str]] = {
    "text": (lambda path: path.write_text("run,tokens\n1,2\n"), "is not a DuckDB database"),
    "SQLite": (_sqlite, "is not a DuckDB database"),
    "nothing": (lambda path: path.touch(), "is an empty file"),
    "zeros": (lambda path: path.write_bytes(bytes(2**20)), "is not a DuckDB database"),
    "folder": (lambda path: path.mkdir(), "is a folder, not a file"),
    "pipe": (lambda path: os.mkfifo(path), "is a pipe, not a file"),
    "device": (lambda path: path.symlink_to("/dev/zero"), "is a device, not a file"),
    "link loop": (_link_loop, "symbolic links lead in a circle"),
    "dangling link": (lambda path: path.symlink_to("/away/speclens.duckdb"), "is a link to /away/speclens.duckdb"),
    "log alone": (lambda path: log_of(path).write_bytes(b"\x64\x00\x62"), "is missing, but its log"),
    "log is a pipe": (lambda path: os.mkfifo(log_of(path)), "is a pipe, not a file"),
}


@pytest.mark.timeout(30)
@pytest.mark.parametrize("kind", ODD)
def test_what_is_no_database_is_refused_and_stays(path: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    make, words = ODD[kind]
    make(path)
    before = contents(path.parent)
    with pytest.raises(StorageUnavailable, match="Nothing was changed") as error:
        Store(path)
    assert words in str(error.value)
    assert main(["info", "--db", str(path)]) == 1
    assert capsys.readouterr().err == f"{error.value}\n"
    assert contents(path.parent) == before


@pytest.mark.parametrize("name", ["nul\0inside.duckdb", "x" * 300 + ".duckdb"])
def test_a_name_that_no_file_can_have_is_a_sentence(tmp_path: Path, name: str) -> None:
    with pytest.raises(StorageUnavailable, match="cannot be opened"):
        Store(tmp_path / name)


def test_a_log_that_is_none_is_refused_rather_than_passed_over(found: Found, path: Path) -> None:
    found.put(path, log=b"a letter to the editor\n" * 20)
    assert "is not a log of DuckDB" in refused(path)


def test_the_log_of_another_database_is_refused_rather_than_replayed(found: Found, path: Path, tmp_path: Path) -> None:
    other = left_behind(tmp_path / "other.duckdb", first=5)
    found.put(path, log=other.log)
    assert f"The log {log_of(path)} is of another database than {path}" in refused(path)


def test_the_log_of_an_earlier_state_is_refused_rather_than_replayed(found: Found, path: Path) -> None:
    """A file restored from a copy, or a log that stayed behind: the rows that it counts on are others."""
    found.put(path)
    Store(path).close()
    later = path.read_bytes()
    found.put(path, file=later)
    assert "or of an earlier state of it" in refused(path)


def entries(log: bytes) -> list[int]:
    """Where each entry of a log begins."""
    starts = [log.index(LOG_VERSION_END) + len(LOG_VERSION_END)]
    while starts[-1] < len(log):
        starts.append(starts[-1] + LOG_FRAME.size + LOG_FRAME.unpack_from(log, starts[-1])[0])
    assert starts.pop() == len(log)
    return starts


@pytest.mark.parametrize("damage", ["cut", "size of an entry"])
def test_the_rest_of_a_log_that_cannot_be_read_is_told_and_kept(found: Found, path: Path, damage: str) -> None:
    starts = entries(found.log)
    if damage == "cut":
        log = found.log[: starts[-1] + 5]
        unread = 5
    else:
        middle = starts[len(starts) // 2]
        log = found.log[: middle + 5] + b"\x01" + found.log[middle + 6 :]
        unread = len(log) - middle
    found.put(path, log=log)
    copy = path.with_name("speclens.duckdb.wal.as-found")
    with Store(path) as store:
        (note,) = store.notes
        assert note.startswith(f"The last {unread:,} bytes of the log {log_of(path)} could not be read")
        assert note.endswith(f"The log as it was found is kept as {copy}.")
        assert Runs(store).get(run_id(1)) is not None
    assert copy.read_bytes() == log
    with Store(path) as store:
        assert store.notes == ()


def test_a_torn_log_without_room_for_its_copy_is_left_alone(
    found: Found, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found.put(path, log=found.log[:-5])

    def full(source: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("shutil.copyfile", full)
    assert "could not be copied before it is written again (No space left on device)" in refused(path)


def test_damage_that_recovery_meets_leaves_file_and_log_as_they_were(
    found: Found, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found.put(path)

    def damaged(connection: object) -> int:
        raise RuntimeError("checksum of block 7")

    monkeypatch.setattr("storage.recovery.sweep", damaged)  # after the runs were ended as interrupted
    sentence = refused(path)
    assert sentence.startswith(f"The database {path} cannot be read (checksum of block 7): it is damaged.")
    monkeypatch.undo()
    with Store(path) as store:
        assert store.interrupted == (run_id(2), run_id(3))


@pytest.mark.parametrize("column", ["spec_json", "summary_json"])
def test_a_row_that_another_program_changed_is_a_sentence_with_the_run(found: Found, path: Path, column: str) -> None:
    found.put(path)
    with Store(path) as store:
        with store.database.write() as connection:
            connection.execute(update(runs).where(runs.c.run_id == run_id(2)).values({column: '{"prompt": 5'}))
        with pytest.raises(StorageUnavailable, match=f"Run {run_id(2)} cannot be read from the database"):
            Runs(store).list()
        assert Runs(store).get(run_id(1)) is not None


def test_rounds_that_another_program_changed_are_a_sentence(found: Found, path: Path) -> None:
    found.put(path)
    with Store(path) as store:
        with store.database.write() as connection:
            connection.execute(update(rounds).values(committed_tokens="not JSON"))
        for ask in (Runs(store).rounds, Runs(store).bursts):
            with pytest.raises(StorageUnavailable, match="its rows are damaged, or another program changed them"):
                ask(run_id(1))
