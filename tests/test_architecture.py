"""The folders are the map: which room imports which, how large a room is, and what a module is (docs/architecture.md).

The imports themselves are read by ``scripts/imports.py``, for this test and for the figure alike.
"""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from scripts import architecture
from scripts.imports import GROUND, MODULES, ROOT, files, imports, module, named, reaches, room, statements

PAGES = {
    GROUND,
    "core.pairs",
    "core.rules.degenerate",
    "core.rules.effects",
    "core.results",
    "core.jobs",
    "core.lab",
    "storage",
}
ALLOWED: dict[str, set[str]] = {
    GROUND: set(),
    "core.sampling": {GROUND},
    "core.cache": {GROUND},
    "core.pairs": {GROUND},
    "core.results": {GROUND},
    "core.models": {GROUND, "core.pairs", "core.cache"},
    "core.rules": {GROUND, "core.sampling"},
    "core.drafting": {GROUND, "core.sampling", "core.cache"},
    "core.decoding": {GROUND, "core.sampling", "core.rules", "core.drafting", "core.cache"},
    "core.lab": {GROUND, "core.sampling", "core.rules", "core.drafting", "core.decoding"},
    "core.worker": {GROUND, "core.results.fingerprint"},
    "core.jobs": {GROUND, "core.worker", "core.results"},
    "core.bench": {GROUND, "core.models", "core.cache", "core.decoding", "core.results"},
    "core.cli": {GROUND, "core.models", "core.decoding", "core.rules", "core.jobs", "core.results", "core.lab"},
    "core.__main__": {
        *(GROUND, "core.bench", "core.cli", "core.lab", "core.pairs", "core.rules"),
        *("storage.store", "storage.connect"),
    },
    "storage": {GROUND, "core.results"},
    "pages.ui.kit": PAGES,
    "pages.ui.rounds": PAGES | {"pages.ui.kit"},
    **{
        f"pages.ui.{one}": PAGES | {"pages.ui.kit", "pages.ui.rounds"}
        for one in ("live", "compare", "history", "lab", "models")
    },
    "pages": PAGES | {"pages.ui"},
    "app": {"pages"},
}
"""Which room, or which one module of a room, a room may import; lazy imports count, those for type checkers don't.
The engine and the loader are named to the worker (``core/worker``), and models handed to the engine, not imported."""

MOST_MODULES = 20
"""Modules in a folder; a fuller folder is two rooms."""

FRAGMENT = 60
"""Lines; a shorter module that a single other one imports belongs into that one. Its style sheet or script counts."""

HEAVY = ("torch", "transformers", "tokenizers", "safetensors")


def of(*packages: str) -> list[str]:
    return [name for name in MODULES if name.split(".")[0] in packages]


def roots(found: frozenset[str] | set[str]) -> set[str]:
    return {name.split(".")[0] for name in found}


def covered(name: str, allowed: set[str]) -> bool:
    """Whether a module is one of these, or lies in one of these rooms."""
    return any(one in (room(name), name) or name.startswith(f"{one}.") for one in allowed)


# -- rooms ----------------------------------------------------------------------------------------------------------


def test_every_room_is_in_the_table_and_nothing_else_is():
    assert {room(name) for name in MODULES} == set(ALLOWED)


@pytest.mark.parametrize("name", MODULES)
def test_a_module_imports_its_own_room_and_those_that_the_table_allows(name):
    own = room(name)
    others = {found for found in imports(name) if found in MODULES and room(found) != own}
    assert {found for found in others if not covered(found, ALLOWED[own])} == set()


def test_an_arrow_that_the_table_lacks_is_seen_even_when_it_is_lazy():
    tree = ast.parse("def f():\n    from core.jobs import queue\n")
    (found,) = [one for statement in statements(tree, lazy=True) for one in named(statement)]
    assert (found, room(found)) == ("core.jobs.queue", "core.jobs")
    assert not covered(found, ALLOWED["core.decoding"])
    assert covered(found, ALLOWED["pages.ui.live"])


def test_no_room_leads_back_to_itself():
    left = {one: {other for other in allowed if other in ALLOWED} for one, allowed in ALLOWED.items()}
    while left:
        ends = {one for one, below in left.items() if not below & left.keys()}
        assert ends, f"a circle among {sorted(left)}"
        left = {one: below for one, below in left.items() if one not in ends}


@pytest.mark.parametrize("name", MODULES)
def test_no_module_imports_itself_in_a_circle(name):
    assert name not in reaches(name)


# -- libraries ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in of("core") if name != "core.__main__"])
def test_the_engine_knows_neither_pages_nor_storage(name):
    assert roots(imports(name)) & {"streamlit", "sqlalchemy", "duckdb", "storage", "pages", "app"} == set()


def test_the_command_line_opens_the_store_only_when_runs_are_kept():
    assert roots(imports("core.__main__")) & {"streamlit", "sqlalchemy", "duckdb", "pages", "app"} == set()
    assert "storage.store" not in imports("core.__main__", lazy=False)


@pytest.mark.parametrize("name", of("storage"))
def test_storage_holds_no_tensors_and_no_pages(name):
    assert roots(imports(name)) & {"streamlit", "pages", "app", *HEAVY} == set()


@pytest.mark.parametrize("name", of("pages", "app"))
def test_pages_hold_no_tensors_and_no_sql(name):
    assert roots(imports(name)) & {*HEAVY, "sqlalchemy", "duckdb", "alembic"} == set()


LIGHT = [
    *(name for name in MODULES if room(name) in ("core.pairs", "core.jobs", "app", "pages", "storage")),
    *(name for name in MODULES if room(name) == "core.results" and name != "core.results.fingerprint"),
    *(name for name in MODULES if name.startswith("pages.ui")),
    *("core.types", "core.records", "core.errors", "core.grammar", "core.rules.catalogue", "core.worker.protocol"),
]


@pytest.mark.parametrize("name", LIGHT)
def test_what_the_apps_process_imports_loads_no_tensor_library(name):
    assert roots(reaches(name)) & set(HEAVY) == set()


def test_only_the_composition_root_of_the_pages_makes_stores_and_jobs():
    for name in of("pages", "app"):
        made = imports(name) & {"storage.store", "core.jobs.process_executor"}
        assert made == set() or name == "pages.ui.kit.services", name


def test_nothing_but_the_slots_knows_how_a_cache_keeps_its_rows():
    assert {name for name in of("core") if "core.cache.kv" in imports(name)} == {"core.cache.slots"}


def test_models_of_the_library_are_loaded_in_one_place():
    """The embedded model's conversion is the other: it reads the library's GGUF form once."""
    users = {
        name
        for name in MODULES
        if any(
            alias.name.startswith("AutoModel")
            for statement in statements(ast.parse(MODULES[name].read_text(encoding="utf-8")), lazy=True)
            for alias in statement.names
        )
    }
    assert users == {"core.models.load", "core.pairs.embedded"}


# -- folders and files ----------------------------------------------------------------------------------------------


def test_no_folder_holds_more_modules_than_a_reader_can_keep_in_view():
    paths = files("core", "storage", "pages", "benchmarks", "scripts", "tests")
    sizes = Counter(path.parent for path in paths if path.name != "__init__.py")
    assert {str(folder.relative_to(ROOT)): size for folder, size in sizes.items() if size > MOST_MODULES} == {}


def importers() -> dict[str, set[str]]:
    """Who imports each module, type checkers' imports included."""
    found: dict[str, set[str]] = defaultdict(set)
    for name in MODULES:
        for other in imports(name, typing=True):
            found[other].add(name)
    return found


def lines(path: Path) -> int:
    beside = [path, *(path.with_suffix(suffix) for suffix in (".css", ".js"))]
    return sum(len(file.read_text(encoding="utf-8").splitlines()) for file in beside if file.exists())


def test_no_module_is_a_fragment_of_the_only_one_that_imports_it():
    users = importers()
    short = {name for name, path in MODULES.items() if 0 < lines(path) < FRAGMENT}
    assert {name for name in short if len(users[name]) == 1} == set()


@pytest.mark.parametrize("name", [name for name in MODULES if MODULES[name].stat().st_size])
def test_every_module_says_what_it_is_for(name):
    assert ast.get_docstring(ast.parse(MODULES[name].read_text(encoding="utf-8")))


def test_the_figure_shows_the_imports_of_today():
    assert architecture.FIGURE.read_text(encoding="utf-8") == architecture.svg(), "run python scripts/architecture.py"


def tree_in_readme() -> str:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    return readme.split("## Where things are", 1)[1].split("```")[1]


def test_the_tree_in_the_readme_names_every_folder_and_every_file_of_core():
    shown = tree_in_readme()
    folders = {path.parent for path in files("core", "storage", "pages") if path.parent.name != "versions"}
    missing = {str(folder.relative_to(ROOT)) for folder in folders if f"{folder.name}/" not in shown}
    named_files = {path for path in files("core") if path.name not in ("__init__.py", "__main__.py")}
    missing |= {module(path) for path in named_files if path.stem not in shown}
    assert missing == set()


def test_the_tree_in_the_readme_names_nothing_that_is_gone():
    words = {word.strip(",;:()") for word in tree_in_readme().split() if word.strip(",;:()").endswith((".py", "/"))}
    tops = ("core", "storage", "pages", "tests", "docs", "scripts", "benchmarks", ".streamlit", ".ci")
    known = {path.name for top in tops for path in (ROOT / top).rglob("*")} | {path.name for path in ROOT.iterdir()}
    assert {word for word in words if word.rstrip("/").rsplit("/", 1)[-1] not in known} == set()


# -- the checks themselves ------------------------------------------------------------------------------------------


def test_the_parser_sees_lazy_imports_and_leaves_out_those_for_type_checkers():
    tree = ast.parse(
        "import a\nfrom core import models\nif TYPE_CHECKING:\n    import b\n"
        "def f():\n    import c\nclass D:\n    import d\ntry:\n    import e\nexcept ImportError:\n    pass\n"
    )
    lazy = [one for statement in statements(tree, lazy=True) for one in named(statement)]
    assert lazy == ["a", "core.models", "c", "d", "e"]
    assert [one for statement in statements(tree, lazy=False) for one in named(statement)] == [
        one for one in lazy if one != "c"
    ]
    assert "b" in [one for statement in statements(tree, lazy=True, typing=True) for one in named(statement)]


def test_known_imports_are_seen():
    assert "core.types" in imports("core.grammar")
    assert "torch" in reaches("core.decoding.engine")
    assert "core.types" in reaches("core.jobs.jobs")
