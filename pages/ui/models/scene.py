"""What the Models page is drawn against at one moment: the device, the choices, and what the engine holds."""

from __future__ import annotations

from dataclasses import dataclass

from core.jobs.queue import JobView
from core.pairs import memory
from core.pairs.inventory import KnownPair
from core.pairs.memory import DeviceMemory, Need
from core.types import Device, PairSpec, Precision
from pages.ui.kit.services import Services, services


@dataclass(frozen=True, slots=True)
class Scene:
    """What every card is drawn against, at one moment."""

    app: Services
    device: DeviceMemory
    asked: Device
    precision: Precision
    rows: int
    loaded: tuple[PairSpec, ...]
    load: JobView | None

    def spec(self, name: str) -> PairSpec:
        """The pair as it would be loaded now."""
        return PairSpec(name=name, precision=self.precision, device=self.asked)

    def held(self, name: str) -> PairSpec | None:
        """How the pair is loaded, None when it isn't."""
        return next((pair for pair in self.loaded if pair.name == name), None)

    def load_of(self, name: str) -> JobView | None:
        """The load asked for last, if it is this pair's."""
        return self.load if self.load is not None and self.load.spec.pair.name == name else None

    @property
    def resolved(self) -> str:
        """The precision in which weights are loaded."""
        return memory.resolve(self.precision, self.device.kind)

    @property
    def free(self) -> int | None:
        """Bytes free on the device once the loaded pairs have made room, as they do before another is loaded."""
        return memory.freed(self.device.free, [self._weights(pair) for pair in self.loaded])

    def in_words(self, pair: PairSpec) -> str:
        """Precision and device of a loaded pair."""
        kind = self.app.inventory.memory(pair.device).kind
        return f"{memory.resolve(pair.precision, kind)} on the {'GPU' if kind == 'cuda' else 'CPU'}"

    def need_of(self, pair: KnownPair) -> tuple[Need, bool]:
        """What the pair needs, and whether that is only about so (from published sizes)."""
        if pair.complete or pair.published_bytes is None:
            return memory.need(pair.models, self.resolved, self.rows), False
        return memory.published_need(pair.published_bytes, self.resolved), True

    def _weights(self, pair: PairSpec) -> int | None:
        device = self.app.inventory.memory(pair.device)
        known = [one for one in self.app.inventory.known([pair.name]) if one.name == pair.name and one.complete]
        if device.kind != self.device.kind or not known:
            return None
        return memory.need(known[0].models, memory.resolve(pair.precision, device.kind), 0).weights


def scene(asked: Device, precision: Precision, rows: int) -> Scene:
    """Everything at this moment."""
    app = services()
    device = app.inventory.memory(asked)
    return Scene(app, device, asked, precision, rows, tuple(app.jobs.loaded()), app.jobs.loading())
