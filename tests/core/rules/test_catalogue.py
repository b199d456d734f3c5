"""The catalogue of rules: complete, in agreement with the grammar and the README, and torch-free."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest
from annotated_types import Ge, Gt, Le, Lt

from core.grammar import format_rule, parse_rule, rule_text
from core.rules.catalogue import (
    DEFAULTS,
    LAB_RULES,
    REDRAWS,
    RULES,
    Redraw,
    RuleEntry,
    RuleSpec,
    is_lossless,
    limits,
    rule_of,
    rule_values,
)
from core.rules.table import token_rule
from tests.helpers.rule_texts import RULES as TEXTS

README = Path(__file__).parents[3] / "README.md"
ROW = re.compile(r"^\| ([^|`]+) \| `([a-z_]+)[^`]*` \| (.*) \|$", re.MULTILINE)


def interval(entry: RuleEntry, name: str) -> str:
    """The range of a numeric field as the README writes it."""
    low = high = ""
    for limit in entry.spec.model_fields[name].metadata:
        match limit:
            case Ge(ge=bound):
                low = f"[{bound:g}"
            case Gt(gt=bound):
                low = f"({bound:g}"
            case Le(le=bound):
                high = f"{bound:.10g}]"
            case Lt(lt=bound):
                high = f"{bound:.10g})"
    return f" in {low}, {high}"


def test_every_specification_has_one_entry_and_every_entry_a_specification():
    specs = get_args(get_args(RuleSpec)[0])
    assert sorted(spec.__name__ for spec in specs) == sorted(entry.spec.__name__ for entry in RULES)
    assert all(entry.spec.model_fields["kind"].default == entry.name for entry in RULES)
    assert len({entry.label for entry in (*RULES, *LAB_RULES)}) == len(set(RULES) | set(LAB_RULES))


@pytest.mark.parametrize("entry", RULES, ids=lambda entry: entry.name)
def test_an_entry_describes_exactly_the_fields_of_its_specification(entry):
    fields = {name for name in entry.spec.model_fields if name != "kind"}
    assert {one.field for one in entry.parameters} == fields
    assert entry.takes_redraw == (entry.redraws == "as chosen")
    assert entry.sweeps in {"", *fields}
    assert all(one.help for one in entry.parameters)
    for one in entry.parameters:
        if one.numeric and one.default:
            low, high = limits(entry.spec, one.field)
            assert low <= one.default <= high


@pytest.mark.parametrize("entry", RULES, ids=lambda entry: entry.name)
def test_a_form_that_starts_with_its_defaults_asks_for_a_rule_that_reads_back(entry):
    spec = rule_of(DEFAULTS | {"rule": entry.name})
    assert parse_rule(format_rule(spec)) == spec
    assert rule_values(spec) == {"rule": entry.name} | entry.defaults
    assert entry.usage.partition(":")[0] == entry.name
    assert is_lossless(spec) == entry.lossless
    assert callable(token_rule(spec).accept)


@pytest.mark.parametrize("entry", LAB_RULES, ids=lambda entry: entry.name)
def test_the_rules_of_the_lab_are_texts_of_the_grammar(entry):
    assert format_rule(parse_rule(rule_text(entry, {}))) == rule_text(entry, {})


@pytest.mark.parametrize("text", [*TEXTS, "block"])
def test_form_values_ask_for_the_very_rule_that_they_were_taken_from(text):
    spec = parse_rule(text)
    assert rule_of(DEFAULTS | rule_values(spec)) == spec


def test_every_way_to_redraw_has_its_words():
    assert set(REDRAWS) == set(get_args(Redraw))


def test_the_readme_has_a_row_for_every_rule_with_all_of_its_parameters_and_their_ranges():
    rows = [found.groups() for found in ROW.finditer(README.read_text(encoding="utf-8"))]
    assert [(label, name) for label, name, _ in rows] == [(entry.label, entry.name) for entry in RULES]
    for entry, (_, _, parameters) in zip(RULES, rows, strict=True):
        documented = re.findall(r"`(\w+)`( in [\[(][^\])]*[\])])?", parameters)
        expected = [(one.field, interval(entry, one.field) if one.numeric else "") for one in entry.parameters]
        assert documented == expected


def test_reading_the_catalogue_loads_no_tensor_library():
    code = "import sys, core.rules.catalogue, core.grammar; print('torch' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert ran.stdout.strip() == "False"
