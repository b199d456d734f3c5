"""Packed linear layers: the same numbers, chosen only where they are faster, and the network's own ones on request."""

from __future__ import annotations

from itertools import cycle
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from core.models import packing
from core.models.packing import UNPACKED, Choice, Layout, PackedLinear, fastest, original_linears

BACKENDS: dict[Layout, Any] = {"mkl": torch.backends.mkl, "onednn": torch.backends.mkldnn}
LAYOUTS: list[Layout] = [layout for layout, backend in BACKENDS.items() if backend.is_available()]


def linear(width: int = 48, out: int = 80, bias: bool = False) -> nn.Linear:
    torch.manual_seed(3)
    return nn.Linear(width, out, bias=bias).requires_grad_(False)


class Ticking:
    """A clock on which each lap takes the next of ``laps``."""

    def __init__(self, *laps: float) -> None:
        self.laps, self.now, self.starts = cycle(laps), 0.0, True

    def __call__(self) -> float:
        if not self.starts:
            self.now += next(self.laps)
        self.starts = not self.starts
        return self.now


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("shape", [(1, 1), (1, 5), (16, 1), (3, 9), (1, 200)])
def test_a_packed_layer_computes_what_the_layer_does(layout, bias, shape):
    layer = linear(bias=bias)
    x = torch.randn(*shape, 48)
    torch.testing.assert_close(PackedLinear(layer, Choice(layout))(x), layer(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_one_layout_agrees_at_every_number_of_rows(layout):
    assert packing.agrees(PackedLinear(linear(), Choice(layout)))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_layout_that_computes_something_else_is_noticed(layout):
    one = PackedLinear(linear(), Choice(layout))
    one.linear.weight[0, 0] += 0.5
    assert not packing.agrees(one)


def laps(*seconds: float) -> list[float]:
    """Every lap of a trial that takes ``seconds`` at each number of rows."""
    assert len(seconds) == len(packing.ROWS)
    return [one for one in seconds for _ in range(4)]


ROUND = laps(*[1.0] * len(packing.ROWS))


@pytest.mark.parametrize(
    ("shares", "choice"),
    [
        ((0.5,) * 7, Choice(LAYOUTS[0], 1)),
        ((0.95,) * 7, UNPACKED),
        ((1.1, 1.0, 1.0, 0.7, 0.8, 0.7, 0.8), Choice(LAYOUTS[0], 4)),
        ((0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 1.0), UNPACKED),
    ],
    ids=["faster", "hardly faster", "faster from four rows on", "slower in a batch"],
)
def test_a_layout_is_taken_for_the_numbers_of_rows_at_which_it_is_faster(shares, choice):
    assert fastest([linear()], LAYOUTS[0], Ticking(*laps(*shares), *ROUND)) == choice


def test_a_layout_that_disagrees_is_not_taken_however_fast(monkeypatch):
    monkeypatch.setattr(packing, "TOLERANCE", -1.0)  # no deviation is small enough
    assert fastest([linear()], LAYOUTS[0], Ticking(*laps(*[0.1] * 7), *ROUND)) == UNPACKED


def test_fewer_rows_than_pay_use_the_unpacked_weight():
    one = PackedLinear(linear(), Choice(LAYOUTS[0], 4))
    one.linear.weight[:] = 0.0
    assert not one(torch.ones(1, 3, 48)).any()
    assert one(torch.ones(1, 4, 48)).any()


@pytest.fixture
def network(monkeypatch):
    monkeypatch.setattr(packing, "SMALLEST", 0)
    return nn.Sequential(linear(), nn.ReLU(), nn.Sequential(linear(80, 48)))


def pack(network: nn.Module) -> Layout:
    """Packs on a clock by which every layout takes half the unpacked time."""
    return packing.pack(network, Ticking(*laps(*[0.5] * 7), *ROUND))


def test_packing_replaces_every_linear_layer_and_its_weights_stay_readable(network):
    x, before = torch.randn(5, 48), [parameter.clone() for parameter in network.parameters()]
    expected = network(x)
    assert pack(network) == LAYOUTS[0]
    assert not [m for m in network if isinstance(m, nn.Linear)]
    assert torch.equal(network[0].weight, before[0])
    torch.testing.assert_close(network(x), expected, rtol=1e-5, atol=1e-5)


def test_the_networks_own_layers_are_restored_within_the_block(network):
    own = network[0]
    pack(network)
    packed = network[0]
    with original_linears(network):
        assert network[0] is own
    assert network[0] is packed


def test_packed_layers_come_back_after_an_error_too(network):
    pack(network)
    with pytest.raises(ZeroDivisionError), original_linears(network):
        raise ZeroDivisionError
    assert isinstance(network[0], PackedLinear)


@pytest.mark.parametrize(
    ("mkl", "onednn", "layout"),
    [(True, True, "mkl"), (False, True, "onednn"), (False, False, "torch")],
)
def test_mkl_comes_before_onednn_and_neither_may_be_there(monkeypatch, network, mkl, onednn, layout):
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: mkl)
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: onednn)
    assert packing.offered() == layout
    if layout in ("torch", *LAYOUTS):
        assert pack(network) == layout


class Router(nn.Linear):
    """A linear layer that gives more than a product, as routers of experts do."""

    def forward(self, input: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        return super().forward(input), input


def test_layers_that_do_more_than_a_product_are_left_as_they_are(network):
    network.append(Router(48, 8))
    pack(network)
    assert type(network[-1]) is Router


def test_small_networks_are_left_as_they_are():
    network = nn.Sequential(linear())
    assert pack(network) == "torch"
    assert isinstance(network[0], nn.Linear)


def test_networks_whose_second_copy_would_fill_the_memory_are_left_as_they_are(network, monkeypatch):
    monkeypatch.setattr(packing.psutil, "virtual_memory", lambda: type("M", (), {"available": 1000})())
    assert pack(network) == "torch"
    assert isinstance(network[0], nn.Linear)


def test_other_precisions_are_left_as_they_are(network):
    network.to(torch.bfloat16)
    pack(network)
    assert isinstance(network[0], nn.Linear)
