"""Draws docs/architecture.svg from the imports, and prints the counts of docs/architecture.md: ``python
scripts/architecture.py``.

An arrow that follows from two others is left out, and so are the arrows to the ground, which every room may use. A page
is drawn together with its room of pages/ui.
"""

from __future__ import annotations

import sys
from collections import Counter
from html import escape
from pathlib import Path

import networkx as nx

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from scripts import imports

FIGURE = imports.ROOT / "docs" / "architecture.svg"
LONG = 500
"""Lines; a longer module may hold two nouns."""

WIDTH, ROW, BOX, MARGIN = 980, 84, 34, 24
COLOURS = {"pages": "#56B4E9", "core": "#009E73", "storage": "#E69F00"}


def shown(room: str) -> str:
    """The box of a room: a page and its parts are one."""
    return {"app": "app", "pages.ui": "pages"}.get(room, room.removeprefix("core.").replace("pages.ui.", "pages/"))


def graph() -> nx.DiGraph:
    """Rooms and the arrows between them, without those that follow from others."""
    pages = {f"pages.{one}": f"pages/{one}" for one in ("live", "compare", "history", "rules", "models")}
    pages["pages.rules"] = "pages/lab"
    drawn = nx.DiGraph()
    for name in imports.MODULES:
        one = pages.get(name, shown(imports.room(name)))
        for other in imports.imports(name):
            if other in imports.MODULES:
                to = pages.get(other, shown(imports.room(other)))
                if one != to and imports.GROUND not in (one, to) and "pages" not in (one, to):
                    drawn.add_edge(one, to)
    drawn.add_edges_from(("app", page) for page in pages.values())
    return nx.transitive_reduction(drawn)


def places(drawn: nx.DiGraph) -> dict[str, tuple[float, float]]:
    """Centre of each box: rows by the longest way down from the app, in a row by where the users stand."""
    at: dict[str, tuple[float, float]] = {}
    for depth, row in enumerate(nx.topological_generations(drawn)):
        users = {one: [at[user][0] for user in drawn.predecessors(one)] for one in row}
        order = sorted(row, key=lambda one: (sum(users[one]) / len(users[one]) if users[one] else 0.0, one))
        for place, one in enumerate(order):
            at[one] = ((place + 0.5) * WIDTH / len(order), MARGIN + BOX / 2 + depth * ROW)
    return at


def colour(name: str) -> str:
    """A page's, storage's or core's."""
    return COLOURS["pages" if name.startswith(("pages", "app")) else "storage" if name == "storage" else "core"]


def svg() -> str:
    """The figure."""
    drawn = graph()
    at = places(drawn)
    bottom = max(y for _, y in at.values()) + ROW
    lines = []
    for one, other in sorted(drawn.edges):
        (x1, y1), (x2, y2) = at[one], at[other]
        y1, y2 = y1 + BOX / 2, y2 - BOX / 2 - 5
        bend = (y2 - y1) / 2
        lines.append(
            f'<path d="M{x1:.0f} {y1:.0f}C{x1:.0f} {y1 + bend:.0f} {x2:.0f} {y2 - bend:.0f} {x2:.0f} {y2:.0f}" '
            'fill="none" stroke="#7a7a7a" stroke-width="1.2" marker-end="url(#tip)"/>'
        )
    for name, (x, y) in at.items():
        wide = 9 * len(name) + 22
        lines.append(
            f'<rect x="{x - wide / 2:.0f}" y="{y - BOX / 2:.0f}" width="{wide}" height="{BOX}" rx="6" '
            f'fill="#ffffff" stroke="{colour(name)}" stroke-width="2"/>'
            f'<text x="{x:.0f}" y="{y + 5:.0f}">{escape(name)}</text>'
        )
    lines.append(
        f'<rect x="{MARGIN}" y="{bottom - BOX / 2:.0f}" width="{WIDTH - 2 * MARGIN}" height="{BOX}" rx="6" '
        f'fill="#ffffff" stroke="{COLOURS["core"]}" stroke-width="2"/>'
        f'<text x="{WIDTH / 2:.0f}" y="{bottom + 5:.0f}">ground: types, rules.catalogue, records, grammar, errors, '
        "device … (every room may use it)</text>"
    )
    height = bottom + BOX
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" font-family="sans-serif" '
        'font-size="15" text-anchor="middle"><defs><marker id="tip" viewBox="0 0 8 8" refX="4" refY="4" '
        'markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" fill="#7a7a7a"/></marker></defs>'
        f'<rect width="{WIDTH}" height="{height:.0f}" fill="#ffffff"/>' + "\n".join(lines) + "</svg>\n"
    )


def counts() -> str:
    """Modules per folder and long files."""
    folders = Counter(path.parent for path in imports.MODULES.values() if path.name != "__init__.py")
    lines = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in imports.MODULES.values()}
    rows = [f"{count:4} modules in {folder.relative_to(imports.ROOT)}" for folder, count in folders.most_common()]
    rows += [f"{lines[path]:4} lines in {path.relative_to(imports.ROOT)}" for path in lines if lines[path] > LONG]
    return "\n".join(rows)


if __name__ == "__main__":
    FIGURE.write_text(svg(), encoding="utf-8")
    print(counts())
    print(f"wrote {FIGURE.relative_to(imports.ROOT)}")
