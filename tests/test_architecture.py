"""The folders are the map: imports go one way, and a file that grows has two nouns (design.md "Layout")."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = ("core", "storage", "pages")
LONGEST = 350
"""Lines. About 300 is the aim; past this a file is split."""

STORAGE_MAY_USE = {
    "core.types",
    "core.records",
    "core.errors",
    "core.grammar",
    "core.results.metrics",
    "core.results.glossary",
    "core.results.matching",
    "core.results.traces",
}
HEAVY = ("torch", "transformers", "tokenizers", "safetensors")


def files(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def module(path: Path) -> str:
    """Dotted name of a file."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


MODULES = {module(path): path for path in [ROOT / "app.py", *files(*FOLDERS)]}


def statements(tree: ast.Module, *, lazy: bool) -> Iterator[ast.Import | ast.ImportFrom]:
    """Import statements that run: none under ``if TYPE_CHECKING``; those inside functions only when ``lazy``."""

    def inside(node: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                continue
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) and not lazy:
                continue
            if isinstance(child, ast.Import | ast.ImportFrom):
                yield child
            yield from inside(child)

    return inside(tree)


def named(statement: ast.Import | ast.ImportFrom) -> Iterator[str]:
    """Modules that a statement imports; ``from core import models`` names core.models.load."""
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
def imports(name: str, *, lazy: bool = True) -> frozenset[str]:
    """What a module imports when it runs; without ``lazy`` only what it imports at once."""
    tree = ast.parse(MODULES[name].read_text(encoding="utf-8"))
    return frozenset(found for statement in statements(tree, lazy=lazy) for found in named(statement))


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


def of(*packages: str) -> list[str]:
    return [name for name in MODULES if name.split(".")[0] in packages]


def roots(found: frozenset[str] | set[str]) -> set[str]:
    return {name.split(".")[0] for name in found}


# -- between the folders --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in of("core") if name != "core.__main__"])
def test_the_engine_knows_neither_pages_nor_storage(name):
    assert roots(imports(name)) & {"streamlit", "sqlalchemy", "duckdb", "storage", "pages", "app"} == set()


def test_the_command_line_brings_storage_and_core_together_and_nothing_more():
    found = imports("core.__main__")
    assert {name for name in found if name.split(".")[0] == "storage"} == {"storage.store", "storage.connect"}
    assert roots(found) & {"streamlit", "sqlalchemy", "duckdb", "pages", "app"} == set()
    assert "storage.store" not in imports("core.__main__", lazy=False)


@pytest.mark.parametrize("name", of("storage"))
def test_storage_uses_the_records_of_core_and_nothing_of_its_engine(name):
    found = imports(name)
    assert {one for one in found if one.split(".")[0] == "core"} <= STORAGE_MAY_USE
    assert roots(found) & {"streamlit", "pages", "app", *HEAVY} == set()


@pytest.mark.parametrize("name", of("pages", "app"))
def test_pages_hold_no_tensors_and_no_sql(name):
    assert roots(imports(name)) & {*HEAVY, "sqlalchemy", "duckdb", "alembic"} == set()


@pytest.mark.parametrize("name", of("pages", "app"))
def test_opening_a_page_loads_no_tensor_library(name):
    assert roots(reaches(name)) & set(HEAVY) == set()


def test_only_the_composition_root_of_the_pages_makes_stores_and_jobs():
    for name in of("pages", "app"):
        made = imports(name) & {"storage.store", "core.jobs.process_executor", "core.jobs.executors"}
        assert made == set() or name == "pages.ui.kit.services", name


# -- inside core ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["core.types", "core.records", "core.errors", "core.grammar"])
def test_what_everyone_imports_loads_no_tensor_library(name):
    assert roots(reaches(name)) & {*HEAVY, "numpy", "pandas"} == set()


DIRECTION = (
    {"core.types", "core.records", "core.errors"},
    {"core.sampling.distributions", "core.rules.table", "core.drafting.growers", "core.decoding.siblings"},
    {"core.decoding.verify"},
    {"core.decoding.request_state"},
    {"core.decoding.engine"},
    {"core.cli.decode", "core.worker.turns", "core.worker"},
    {"core.jobs.jobs"},
    {"core.__main__"},
)
"""design.md: types ← distributions, rules, trees ← verify ← engine ← worker ← jobs."""


@pytest.mark.parametrize("level", range(len(DIRECTION) - 1))
def test_imports_inside_core_go_from_jobs_to_types_and_never_back(level):
    later = set[str]().union(*DIRECTION[level + 1 :])
    for name in DIRECTION[level]:
        assert reaches(name) & later == set(), name
        assert imports(name) & later == set(), name


def test_verification_is_handed_its_drafters_caches_and_models():
    handed = {
        "core.cache.kv",
        "core.cache.slots",
        "core.models.load",
        *(name for name in of("core") if "drafters" in name),
    }
    for name in (
        "core.decoding.verify",
        "core.rules.table",
        "core.decoding.siblings",
        "core.drafting.growers",
        "core.sampling.distributions",
    ):
        assert reaches(name) & handed == set(), name


@pytest.mark.parametrize("name", ["core.decoding.engine", "core.decoding.request_state", "core.decoding.assembly"])
def test_the_engine_is_handed_its_models(name):
    assert (
        reaches(name)
        & {"core.models.load", "core.models.text", "core.pairs.embedded", "core.pairs.presets", "core.pairs.folders"}
        == set()
    )


def test_nothing_but_the_slots_knows_how_a_cache_keeps_its_rows():
    assert {name for name in of("core") if "core.cache.kv" in imports(name)} == {"core.cache.slots"}


def test_models_of_the_library_are_loaded_in_one_place():
    """The embedded model's conversion is the other: it reads the library's GGUF form once."""
    users = {
        name
        for name in of("core", "storage", "pages", "app")
        if any(
            alias.name.startswith("AutoModel")
            for statement in statements(ast.parse(MODULES[name].read_text(encoding="utf-8")), lazy=True)
            for alias in statement.names
        )
    }
    assert users <= {"core.models.load", "core.pairs.embedded"}
    assert "core.models.load" in users


def test_no_module_imports_itself_in_a_circle():
    for name in MODULES:
        assert name not in reaches(name), name


# -- files ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [ROOT / "app.py", *files(*FOLDERS, "benchmarks", "scripts")], ids=module)
def test_no_file_is_longer_than_its_noun_needs(path):
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= LONGEST, f"{lines} lines: split it by noun"


@pytest.mark.parametrize("name", [name for name in MODULES if MODULES[name].stat().st_size])
def test_every_module_says_what_it_is_for(name):
    assert ast.get_docstring(ast.parse(MODULES[name].read_text(encoding="utf-8")))


# -- the checks themselves ------------------------------------------------------------------------------------------


def test_the_parser_sees_lazy_imports_and_leaves_out_those_for_type_checkers():
    tree = ast.parse(
        "import a\nfrom core import models\nif TYPE_CHECKING:\n    import b\n"
        "def f():\n    import c\nclass D:\n    import d\ntry:\n    import e\nexcept ImportError:\n    pass\n"
    )
    assert [one for statement in statements(tree, lazy=True) for one in named(statement)] == [
        "a",
        "core.models",
        "c",
        "d",
        "e",
    ]
    assert [one for statement in statements(tree, lazy=False) for one in named(statement)] == [
        "a",
        "core.models",
        "d",
        "e",
    ]


def test_known_imports_are_seen():
    assert "core.types" in imports("core.grammar")
    assert "torch" in reaches("core.decoding.engine")
    assert "core.types" in reaches("core.jobs.jobs")
