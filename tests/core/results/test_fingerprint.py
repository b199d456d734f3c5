"""A fingerprint says everything that decides a run's tokens and speed, in texts that a page can show."""

from __future__ import annotations

import hashlib
import json
import platform
from dataclasses import replace
from importlib.metadata import version

import pytest
import torch

from core.grammar import parse_drafter, parse_rule, parse_shape
from core.records import Fingerprint, Started, to_plain
from core.results.fingerprint import device_text, drafting_text, fingerprint, sampling_text
from core.results.matching import matched, relation
from core.types import AllowedSet, Request, Sampling, Stops
from tests.helpers.decoding import ask, decode, decode_all
from tests.helpers.fakes import always, fake_pair

PAIR = fake_pair(always(0.5, 0.3, 0.2), always(0.6, 0.1, 0.3))
STARTED = Started(request=0, prompt_tokens=3, prefill_s=0.0, prompt_ids_hash="a1", batch=1)


def request(drafter: str = "none", shape: str = "none", rule: str = "lossless", temperature: float = 0.7) -> Request:
    return Request(
        prompt="abc",
        sampling=Sampling(temperature=temperature),
        drafter=parse_drafter(drafter),
        shape=parse_shape(shape),
        rule=parse_rule(rule),
    )


@pytest.mark.parametrize(
    ("sampling", "text"),
    [
        (Sampling(), "T=1"),
        (Sampling(temperature=0.7), "T=0.7"),
        (Sampling(temperature=0.0), "greedy"),
        (Sampling(temperature=9e-6), "greedy"),
        (Sampling(temperature=0.0, repetition_penalty=1.1), "greedy repetition_penalty=1.1"),
        (Sampling(temperature=0.7, top_k=20, top_p=0.8), "T=0.7 top_k=20 top_p=0.8"),
        (Sampling(min_p=0.1, truncate_draft=True), "T=1 min_p=0.1 truncate_draft=True"),
        (Sampling(eta=0.05, epsilon=0.01, min_new_tokens=4), "T=1 eta=0.05 epsilon=0.01 min_new_tokens=4"),
    ],
)
def test_sampling_shows_the_temperature_and_what_is_not_default(sampling, text):
    assert sampling_text(sampling) == text


def test_temperatures_that_differ_in_any_digit_have_different_texts():
    assert sampling_text(Sampling(temperature=0.7)) != sampling_text(Sampling(temperature=0.70000001))


@pytest.mark.parametrize(
    ("drafter", "shape", "temperature", "text"),
    [
        ("none", "none", 0.7, "none"),
        ("model", "chain:4", 0.7, "model chain:4: sampled chain"),
        ("model", "chain:4", 0.0, "model chain:4: deterministic chain"),
        ("model", "s5_k1_d6", 0.7, "model s5_k1_d6: deterministic chain"),
        ("model", "s3_k2_d6", 0.7, "model s3_k2_d6: deterministic tree"),
        ("early_exit:26", "chain:4", 0.7, "early_exit:26 chain:4: sampled chain"),
        ("prompt_lookup", "chain:4", 0.7, "prompt_lookup chain:4: deterministic chain"),
        ("prompt_lookup:2,5", "s3_k2_d6", 0.7, "prompt_lookup:2,5 s3_k2_d6: deterministic tree"),
    ],
)
def test_drafting_names_drafter_shape_and_mode(drafter, shape, temperature, text):
    assert drafting_text(request(drafter, shape, temperature=temperature)) == text


def test_a_fingerprint_names_everything_that_decides_the_run():
    one = Request(prompt="abc", stops=Stops(max_new_tokens=32, stop_strings=("\n", "END")), seed=3)
    found = fingerprint(PAIR, one, STARTED)  # type: ignore[arg-type]
    assert (found.prompt_ids_hash, found.end_tokens, found.batch) == ("a1", "none", 1)
    assert (found.target, found.target_hash) == ("fake target", "fake target")
    assert (found.draft, found.draft_hash) == (None, None)
    assert (found.precision, found.tokenizer_hash, found.template_hash) == ("float32", "fake", "fake")
    assert (found.sampling, found.reference_law) == ("T=1", "T=1")
    assert found.stops == "max_new_tokens=32 stop_strings=['\\n', 'END']"
    assert found.drafting == "none"
    assert found.seed == 3
    assert found.prompt_hash == hashlib.sha256(b"abc").hexdigest()[:16]
    assert found.versions == {
        "python": platform.python_version(),
        "torch": version("torch"),
        "transformers": version("transformers"),
        "tokenizers": version("tokenizers"),
    }


def test_the_draft_model_is_named_only_when_it_drafts():
    drafts = fingerprint(PAIR, request("model", "chain:4"), STARTED)  # type: ignore[arg-type]
    assert (drafts.draft, drafts.draft_hash) == ("fake draft", "fake draft")
    lookup = fingerprint(PAIR, request("prompt_lookup", "chain:4"), STARTED)  # type: ignore[arg-type]
    assert (lookup.draft, lookup.draft_hash) == (None, None)


def test_a_raw_prompt_has_no_template():
    raw = request().model_copy(update={"chat": False})
    assert fingerprint(PAIR, raw, STARTED).template_hash == "none"  # type: ignore[arg-type]


def test_the_reference_law_of_a_cascade_includes_its_allowed_set():
    found = fingerprint(PAIR, request("model", "chain:4", "spec_cascade:0.5"), STARTED)  # type: ignore[arg-type]
    assert (found.sampling, found.reference_law) == ("T=0.7", "T=0.7 min_p=0.5")


def test_a_cpu_is_named_by_architecture_and_threads():
    text = f"CPU {platform.machine()}, {torch.get_num_threads()} threads"
    assert device_text(torch.device("cpu")) == text


def test_a_fingerprint_survives_json():
    found = fingerprint(PAIR, request("model", "s3_k2_d6"), STARTED)  # type: ignore[arg-type]
    assert Fingerprint(**json.loads(json.dumps(to_plain(found)))) == found


def test_other_end_tokens_make_another_fingerprint():
    one, other = (fake_pair(always(0.5, 0.3, 0.2), eos=eos) for eos in ((2,), (2, 1)))
    found = [fingerprint(pair, request(), STARTED) for pair in (one, other)]  # type: ignore[arg-type]
    assert [one.end_tokens for one in found] == ["2", "1 2"]
    assert not matched(*found)


@pytest.mark.parametrize("change", [{"prompt_ids_hash": "b2"}, {"batch": 16}])
def test_other_tokens_read_and_another_batch_are_no_match(change):
    one = fingerprint(PAIR, request(), STARTED)  # type: ignore[arg-type]
    other = fingerprint(PAIR, request(), replace(STARTED, **change))  # type: ignore[arg-type]
    assert [difference.field for difference in relation(one, other).confounding] == list(change)


def test_the_engine_says_which_tokens_it_read_and_in_which_company():
    pair = fake_pair(always(0.5, 0.3, 0.2))
    alone = decode(ask("ab", max_new_tokens=2), pair).started
    first, second = decode_all([ask("ab", max_new_tokens=2), ask("ba", max_new_tokens=2)], pair)
    assert (alone.batch, first.started.batch) == (1, 2)
    assert alone.prompt_ids_hash == first.started.prompt_ids_hash != second.started.prompt_ids_hash


OTHER_VALUES = {"temperature": 0.3, "allowed": (AllowedSet(min_p=0.2),), "truncate_draft": True}


@pytest.mark.parametrize("name", Sampling.model_fields)
def test_every_setting_of_the_sampling_is_in_the_fingerprint(name):
    field = Sampling.model_fields[name]
    other = OTHER_VALUES.get(name, 3 if field.annotation is int else 0.25)
    changed = Request(prompt="abc", sampling=Sampling(**{name: other}))
    found = [fingerprint(PAIR, one, STARTED) for one in (Request(prompt="abc"), changed)]  # type: ignore[arg-type]
    assert found[0].sampling != found[1].sampling
