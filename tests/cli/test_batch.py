"""Lines of a batch file go over the options field by field, and what can't be meant is refused with its line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from core.cli.batch import read_batch
from core.errors import BadInput
from core.grammar import format_drafter, format_rule, format_shape
from core.types import Request, Sampling, Stops
from tests.helpers.decoding import ask

OPTIONS = ask(
    "x", "prompt_lookup", "chain:3", temperature=0.7, top_k=5, max_new_tokens=9, stop=["END"], seed=4, chat=True
)


def read(tmp_path: Path, *lines: object, options: Request = OPTIONS) -> list[Request]:
    file = tmp_path / "batch.jsonl"
    file.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines), newline="")
    return read_batch(file, options)


def test_a_line_with_a_prompt_alone_is_as_the_options_say(tmp_path):
    assert read(tmp_path, {"prompt": "a"}) == [OPTIONS.model_copy(update={"prompt": "a"})]


def test_a_field_of_a_group_leaves_the_others_as_the_options_say(tmp_path):
    one, two, three = read(
        tmp_path,
        {"prompt": "a", "sampling": {"temperature": 0.2}, "stops": {}},
        {"prompt": "a", "stops": {"stop_strings": ["x"]}},
        {"prompt": "a", "max_new_tokens": 3},
    )
    assert (one.sampling, one.stops) == (Sampling(temperature=0.2, top_k=5), OPTIONS.stops)
    assert two.stops == Stops(max_new_tokens=9, stop_strings=("x",))
    assert three.stops == Stops(max_new_tokens=3, stop_strings=("END",))


def test_drafter_shape_and_rule_are_written_as_on_the_command_line(tmp_path):
    (one,) = read(tmp_path, {"prompt": "a", "drafter": "model", "shape": "chain:2", "rule": "lenience:0.5"})
    assert (format_drafter(one.drafter), format_shape(one.shape)) == ("model", "chain:2")
    assert format_rule(one.rule) == "lenience:0.5"


@pytest.mark.parametrize("field", ["shape", "drafter"])
def test_none_decodes_plainly(tmp_path, field):
    (one,) = read(tmp_path, {"prompt": "a", field: "none"})
    assert (one.drafter.kind, one.shape.kind) == ("none", "none")


def test_a_carriage_return_between_fields_ends_no_line(tmp_path):
    (one,) = read(tmp_path, '{"prompt":\r"a"}\r')
    assert one.prompt == "a"


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ('{"prompt": "a", "max_new_tokens": true}', "max_new_tokens is True"),
        ('{"prompt": "a", "seed": true}', "seed is True"),
        ('{"prompt": "a", "seed": "3"}', "seed is '3'"),
        ('{"prompt": "a", "chat": 1}', "chat is 1"),
        ('{"prompt": 5}', "prompt is 5"),
        ('{"prompt": "a", "seed": 1, "seed": 2}', "seed is given twice: keep one of the two."),
        ('{"prompt": "a", "sampling": {"top_k": 1, "top_k": 2}}', "top_k is given twice"),
        ('{"prompt": "a", "max_new_tokens": 3, "stops": {"max_new_tokens": 4}}', "alone and in stops"),
        ('{"prompt": "a", "sampling": {"heat": 1}}', "heat is 1"),
        ('{"prompt": "a", "stops": 4}', "stops is 4"),
        ('{"prompt": "a", "drafter": {"kind": "none"}}', "write it as text, as on the command line"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_line(tmp_path, line, sentence):
    with pytest.raises(BadInput) as refused:
        read(tmp_path, {"prompt": "fine"}, line)
    assert str(refused.value).startswith("line 2 of the batch: ")
    assert sentence in str(refused.value)


def test_bytes_that_are_no_text_are_named(tmp_path):
    (tmp_path / "batch.jsonl").write_bytes(b'{"prompt": "\xff"}')
    with pytest.raises(BadInput, match=r"batch\.jsonl is no text in UTF-8: byte 13 is 0xff\. Save it as UTF-8\."):
        read_batch(tmp_path / "batch.jsonl", OPTIONS)
