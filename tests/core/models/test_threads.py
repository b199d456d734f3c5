"""The number of computing threads is tried once, and left alone when someone chose it."""

from __future__ import annotations

import pytest
import torch

from core.models import threads
from core.models.threads import candidates, fastest, settle


@pytest.fixture(autouse=True)
def number():
    before = torch.get_num_threads()
    yield before
    torch.set_num_threads(before)


def clock(seconds: dict[int, float]):
    """A clock on which a lap takes what ``seconds`` says of the number of threads in use."""
    now = [0.0]
    starts = [True]

    def read() -> float:
        if not starts[0]:
            now[0] += seconds[torch.get_num_threads()]
        starts[0] = not starts[0]
        return now[0]

    return read


def test_the_fastest_number_wins(number):
    assert fastest([4, 2, 1], lambda: None, clock({4: 1.0, 2: 0.5, 1: 0.8})) == 2
    assert torch.get_num_threads() == number


def test_torchs_own_number_stays_unless_another_is_clearly_faster():
    assert fastest([4, 2], lambda: None, clock({4: 1.0, 2: 0.93})) == 4


def test_of_few_cores_none_is_left_idle_for_good(monkeypatch):
    monkeypatch.setattr(threads.psutil, "cpu_count", lambda logical: 2)
    monkeypatch.setattr(threads.torch, "get_num_threads", lambda: 2)
    assert candidates() == [2]


def test_candidates_are_torchs_own_number_physical_cores_and_half_of_them(monkeypatch):
    monkeypatch.setattr(threads.psutil, "cpu_count", lambda logical: 8)
    monkeypatch.setattr(threads.torch, "get_num_threads", lambda: 16)
    assert candidates() == [16, 8, 4]


def test_threads_are_tried_once_a_process(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    monkeypatch.setattr(threads, "_settled", False)
    monkeypatch.setattr(threads, "candidates", lambda: [2, 1])
    tried = []
    monkeypatch.setattr(threads, "fastest", lambda numbers, work: tried.append(numbers) or 1)
    assert settle(None) == 1
    settle(None)
    assert len(tried) == 1


@pytest.mark.parametrize("name", threads.CHOSEN_BY)
def test_a_number_that_someone_chose_is_left_alone(name, monkeypatch):
    monkeypatch.setenv(name, "1")
    monkeypatch.setattr(threads, "_settled", False)
    monkeypatch.setattr(threads, "candidates", lambda: [2, 1])
    monkeypatch.setattr(threads, "fastest", lambda numbers, work: pytest.fail("tried"))
    assert settle(None) == torch.get_num_threads()
