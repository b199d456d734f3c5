from __future__ import annotations

from core.run_id import LENGTH, RunIds, is_run_id


def test_ids_made_within_one_millisecond_sort_in_the_order_they_were_made() -> None:
    ids = RunIds(clock_ms=lambda: 1_700_000_000_000)
    made = [ids.next() for _ in range(1000)]
    assert made == sorted(set(made))
    assert all(is_run_id(run_id) for run_id in made)


def test_ids_go_on_rising_when_the_clock_steps_back() -> None:
    times = iter([2_000, 1_000, 3_000])
    ids = RunIds(clock_ms=lambda: next(times))
    made = [ids.next() for _ in range(3)]
    assert made == sorted(made)


def test_two_processes_in_the_same_millisecond_make_different_ids() -> None:
    assert RunIds(clock_ms=lambda: 5).next() != RunIds(clock_ms=lambda: 5).next()


def test_an_id_shows_its_time_first() -> None:
    assert RunIds(clock_ms=lambda: 1_000).next() < RunIds(clock_ms=lambda: 1_001).next()


def test_hostile_text_is_no_run_id() -> None:
    good = RunIds().next()
    assert is_run_id(good) and len(good) == LENGTH
    assert not is_run_id("i" * LENGTH)  # the alphabet has no i, l, o or u, so neither has any id ever made
    assert not any(map(is_run_id, ["", good[1:], good + "0", good.upper(), "../" + good[3:], "'" + good[1:]]))
