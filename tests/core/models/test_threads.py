"""The number of computing threads is measured once, and kept when the environment chooses it."""

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


class Network:
    """Records the number of threads in use at each of its passes."""

    def __init__(self) -> None:
        self.passes: list[int] = []

    def __call__(self, **_: object) -> None:
        self.passes.append(torch.get_num_threads())


@pytest.fixture
def one_core(monkeypatch):
    """A process that has loaded nothing yet, with torch at two threads on one physical core."""
    for name in threads.CHOSEN_BY:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(threads, "_settled", False)
    monkeypatch.setattr(threads.psutil, "cpu_count", lambda logical: 1)
    torch.set_num_threads(2)


def test_threads_are_measured_on_the_first_network_of_a_process_and_on_no_other(one_core):
    first, second = Network(), Network()
    assert settle(first, clock({2: 1.0, 1: 0.5})) == torch.get_num_threads() == 1
    assert list(dict.fromkeys(first.passes)) == [2, 1]
    assert settle(second, clock({2: 1.0, 1: 0.5})) == 1
    assert second.passes == []


@pytest.mark.parametrize("name", threads.CHOSEN_BY)
def test_a_number_that_the_environment_chooses_is_kept_without_a_measurement(name, one_core, monkeypatch):
    monkeypatch.setenv(name, "2")
    network = Network()
    assert settle(network, clock({2: 1.0, 1: 0.5})) == 2
    assert network.passes == []
