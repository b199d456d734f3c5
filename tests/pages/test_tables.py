"""Cells of History's table: one line each, with the whole value kept for the tooltip."""

from __future__ import annotations

from pages.ui.history.tables import PAIR_LENGTH, middle


def test_a_long_path_keeps_both_ends() -> None:
    path = "/home/someone/models/organisation/target-7b-instruct+/home/someone/models/draft"
    short = middle(path, PAIR_LENGTH)
    assert len(short) == PAIR_LENGTH
    head, tail = short.split("…")
    assert path.startswith(head)
    assert path.endswith(tail)


def test_a_name_that_fits_is_left_as_it_is() -> None:
    assert middle("embedded", PAIR_LENGTH) == "embedded"
