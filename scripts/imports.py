"""The imports of this repository's own modules, read from their source: what the architecture test and figure stand on.

A *room* is a folder: ``core.jobs``, ``pages.ui.kit``, ``storage``. ``GROUND`` is what every room of core may use: the
modules directly in core, the specifications, and the catalogue of rules. The command line ``core.__main__`` is a room
of its own, since it brings the others together.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ("core", "storage", "pages")
GROUND = "ground"
COMMAND_LINE = "core.__main__"
_GROUND_MODULES = ("core.rules.catalogue",)


def files(*folders: str) -> list[Path]:
    """Python files below these folders of the repository, sorted."""
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def module(path: Path) -> str:
    """Dotted name of a file."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


MODULES = {module(path): path for path in [ROOT / "app.py", *files(*SOURCE)]}
"""File of every module of the product, by dotted name."""


def room(name: str) -> str:
    """The room of a module."""
    parts = name.split(".")
    if name == COMMAND_LINE or parts[0] in ("app", "storage"):
        return name if name == COMMAND_LINE else parts[0]
    if parts[0] == "core":
        folder = ".".join(parts[:2])
        above = MODULES.get(folder)
        is_room = above is not None and above.name == "__init__.py" and folder != "core"
        return GROUND if not is_room or name in _GROUND_MODULES else folder
    return ".".join(parts[:3]) if parts[:2] == ["pages", "ui"] and len(parts) > 2 else "pages"


def statements(tree: ast.Module, *, lazy: bool, typing: bool = False) -> Iterator[ast.Import | ast.ImportFrom]:
    """Import statements; those in functions only when ``lazy``, under ``if TYPE_CHECKING`` only when ``typing``."""

    def inside(node: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test) and not typing:
                continue
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) and not lazy:
                continue
            if isinstance(child, ast.Import | ast.ImportFrom):
                yield child
            yield from inside(child)

    return inside(tree)


def named(statement: ast.Import | ast.ImportFrom) -> Iterator[str]:
    """Modules that a statement imports; ``from core import models`` names core.models."""
    if isinstance(statement, ast.Import):
        yield from (alias.name for alias in statement.names)
        return
    assert statement.level == 0, f"relative import of {statement.module}"
    base = statement.module or ""
    below = [f"{base}.{alias.name}" for alias in statement.names if f"{base}.{alias.name}" in MODULES]
    yield from below
    if len(below) < len(statement.names):
        yield base


@cache
def imports(name: str, *, lazy: bool = True, typing: bool = False) -> frozenset[str]:
    """What a module imports when it runs; without ``lazy`` only what it imports at once."""
    tree = ast.parse(MODULES[name].read_text(encoding="utf-8"))
    return frozenset(found for one in statements(tree, lazy=lazy, typing=typing) for found in named(one))


@cache
def reaches(name: str) -> frozenset[str]:
    """Every module that importing ``name`` imports at once, directly or through others of ours."""
    seen: set[str] = set()
    waiting = [name]
    while waiting:
        for found in imports(waiting.pop(), lazy=False) - seen:
            seen.add(found)
            if found in MODULES:
                waiting.append(found)
    return frozenset(seen)


def arrows() -> set[tuple[str, str]]:
    """(room, room that it imports from), lazy imports included, the own room left out."""
    found = {(room(name), room(other)) for name in MODULES for other in imports(name) if other in MODULES}
    return {(one, other) for one, other in found if one != other}
