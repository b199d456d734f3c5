"""The known pairs: presets and those of stored runs, each with what is on this machine. No torch here."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from core.errors import SpecLensError
from core.pairs import embedded, folders, memory
from core.pairs.description import Description, describe
from core.pairs.memory import DeviceMemory
from core.pairs.presets import PRESETS, list_pairs, split
from core.types import Device

BELIEVED_S = 10.0
"""How long a look at the disk stays valid, in seconds."""


@dataclass(frozen=True, slots=True)
class KnownPair:
    """A pair by name. ``missing``: a sentence when something must be fetched or mended before it loads, else "";
    ``models``: descriptions of those of its models (target first) that are on this machine; ``published_bytes``: both
    models' weights in bfloat16, from the preset; ``converts``: its first load converts the embedded model (half a
    minute); ``fetchable``: whatever is missing has the name of a hub model, and so may be downloaded."""

    name: str
    target: str
    draft: str | None
    preset: bool
    note: str
    missing: str
    models: tuple[Description, ...]
    published_bytes: int | None
    converts: bool
    fetchable: bool

    @property
    def complete(self) -> bool:
        """True when all its models are on this machine and described, so that their memory is known."""
        return not self.missing and len(self.models) == (1 if self.draft is None else 2)


class Inventory:
    """The known pairs, read from the disk at most every :data:`BELIEVED_S` seconds. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[tuple[str, ...], tuple[float, tuple[KnownPair, ...]]] = {}

    def known(self, used: Sequence[str] = ()) -> tuple[KnownPair, ...]:
        """The presets, then the other pairs of ``used`` (those of stored runs)."""
        key = tuple(used)
        with self._lock:
            kept = self._kept.get(key)
            if kept is None or time.monotonic() - kept[0] > BELIEVED_S:
                kept = (time.monotonic(), (*_presets(), *_others(key)))
                self._kept = {key: kept}
            return kept[1]

    def forget(self) -> None:
        """Makes the next call read the disk again, after a load that may have downloaded or converted something."""
        with self._lock:
            self._kept = {}

    def memory(self, device: Device) -> DeviceMemory:
        """The device's memory now."""
        return memory.device_memory(device)


def _presets() -> list[KnownPair]:
    found = []
    for status in list_pairs():
        preset = PRESETS[status.name]
        own = status.name == embedded.NAME
        models, damage = _models([embedded.NAME if own else status.target, status.draft])
        found.append(
            KnownPair(
                name=status.name,
                target=status.target,
                draft=status.draft,
                preset=True,
                note=status.note,
                missing=status.missing or damage,
                models=models,
                published_bytes=int(preset.gigabytes * 1e9) // (2 if own else 1),  # converted to float32
                converts=own and not _converted(),
                fetchable=bool(status.missing) and not own,
            )
        )
    return found


def _others(names: Sequence[str]) -> list[KnownPair]:
    return [_other(name) for name in dict.fromkeys(names) if name not in PRESETS]


def _other(name: str) -> KnownPair:
    try:
        target, draft = split(name)
    except SpecLensError as error:
        return KnownPair(name, name, None, False, "", str(error), (), None, False, False)
    names = [one for one in (target, draft) if one]
    lacks = [one for one in names if _lack(one)]
    fetchable = bool(lacks) and all(_downloadable(one) for one in lacks)
    models, damage = _models([target, draft])
    converts = embedded.NAME in (target, draft) and not _converted()
    missing = " ".join(_lack(one) for one in lacks) or damage
    return KnownPair(name, target, draft, False, "", missing, models, None, converts, fetchable)


def _lack(name: str) -> str:
    """A sentence that says what the model lacks on this machine, or ""."""
    if name == embedded.NAME:
        return embedded.missing()
    if folders.find(name) is not None:
        return ""
    if not _downloadable(name):
        try:
            folders.fetch(name)
        except SpecLensError as error:
            return str(error)
        return ""
    if (lacking := folders.partly(name)) is not None:
        return f"What is here of {name} {lacking}: the next load tries to download the rest, if the network allows."
    return f"{name} is not on this machine: downloaded when it is loaded, if the network allows."


def _downloadable(name: str) -> bool:
    return name != embedded.NAME and not folders.is_path(name) and bool(folders.HUB_NAME.fullmatch(name))


def _models(names: Sequence[str | None]) -> tuple[tuple[Description, ...], str]:
    """Descriptions of the models on this machine, and a sentence about the first damaged one, or ""."""
    found: list[Description] = []
    damage = ""
    for name in filter(None, names):
        try:
            description = _description(name)
        except SpecLensError as error:
            damage = damage or str(error)
        else:
            found += [description] if description is not None else []
    return tuple(found), damage


def _description(name: str) -> Description | None:
    if name == embedded.NAME:
        return describe(embedded.TITLE, embedded.folder()) if _converted() else None
    folder = folders.find(name)
    return None if folder is None else describe(name, folder)


def _converted() -> bool:
    return embedded.is_sound(embedded.folder())
