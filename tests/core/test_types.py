"""Specifications: only legal combinations exist, and each refusal says what is wrong with which value."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from core.types import (
    GREEDY_BELOW,
    MAX_DRAFT_NODES,
    ChainShape,
    DrafterSpec,
    EarlyExitDrafter,
    Lenience,
    NoDrafter,
    NoShape,
    PairSpec,
    PromptLookupDrafter,
    Request,
    RuleSpec,
    RunSpec,
    Sampling,
    ShapeSpec,
    SmallModelDrafter,
    SpecCascade,
    Stops,
    TreeShape,
)


def refusal(make: Any, **fields: Any) -> str:
    """What pydantic says first about ``make(**fields)``."""
    with pytest.raises(ValidationError) as caught:
        make(**fields)
    return caught.value.errors()[0]["msg"]


def test_a_specification_cannot_be_changed():
    with pytest.raises(ValidationError, match="frozen"):
        Sampling().temperature = 0.5  # type: ignore[misc]


def test_an_unknown_field_is_refused():
    assert refusal(Sampling, temprature=0.5) == "Extra inputs are not permitted"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_nan_and_infinity_are_no_temperature(value):
    assert refusal(Sampling, temperature=value) == "Input should be a finite number"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -0.1),
        ("temperature", 100.1),
        ("top_k", -1),
        ("top_p", 0.0),
        ("top_p", 1.01),
        ("min_p", -0.1),
        ("min_p", 1.0),
        ("eta", 1.0),
        ("epsilon", 1.0),
        ("repetition_penalty", 0.0),
        ("min_new_tokens", -1),
    ],
)
def test_a_sampling_value_outside_its_range_is_refused(field, value):
    assert refusal(Sampling, **{field: value}).startswith("Input should be ")


def test_decoding_is_greedy_strictly_below_one_constant():
    assert GREEDY_BELOW == 1e-5
    assert Sampling(temperature=0.0).greedy
    assert Sampling(temperature=9.9e-6).greedy
    assert not Sampling(temperature=1e-5).greedy


def test_sampling_leaves_the_softmax_as_it_is_by_default():
    assert Sampling().model_dump() == {
        "temperature": 1.0,
        "top_k": 0,
        "top_p": 1.0,
        "min_p": 0.0,
        "eta": 0.0,
        "epsilon": 0.0,
        "repetition_penalty": 1.0,
        "min_new_tokens": 0,
        "truncate_draft": False,
        "allowed": (),
    }


@pytest.mark.parametrize(
    "fields",
    [{"max_new_tokens": 0}, {"stop_strings": ("",)}, {"stop_strings": ("x" * 201,)}, {"stop_strings": ("x",) * 17}],
)
def test_stops_outside_their_limits_are_refused(fields):
    refusal(Stops, **fields)


def test_a_chain_drafts_as_many_candidates_as_it_is_deep():
    assert (ChainShape(gamma=7).depth, ChainShape(gamma=7).drafted) == (7, 7)
    assert (NoShape().depth, NoShape().drafted) == (0, 0)


@pytest.mark.parametrize("gamma", [0, -1, MAX_DRAFT_NODES + 1])
def test_a_chain_without_candidates_or_with_too_many_is_refused(gamma):
    refusal(ChainShape, gamma=gamma)


@pytest.mark.parametrize(
    ("steps", "topk", "nodes", "depth"),
    [(3, 2, 6, 3), (5, 1, 6, 5), (5, 2, 4, 3), (1, 4, 2, 1), (6, 10, 60, 6)],
)
def test_a_tree_counts_the_root_among_its_nodes_and_is_as_deep_as_steps_and_nodes_allow(steps, topk, nodes, depth):
    shape = TreeShape(steps=steps, topk=topk, nodes=nodes)
    assert (shape.drafted, shape.depth) == (nodes - 1, depth)


@pytest.mark.parametrize(("steps", "topk", "most"), [(1, 2, 2), (2, 2, 6), (5, 1, 5), (3, 2, 10)])
def test_a_tree_may_have_every_node_that_its_beams_reach_and_not_one_more(steps, topk, most):
    assert TreeShape(steps=steps, topk=topk, nodes=most + 1).drafted == most
    assert refusal(TreeShape, steps=steps, topk=topk, nodes=most + 2) == (
        f"Value error, s{steps}_k{topk} reaches at most {most} candidates, so d can be at most {most + 1}, "
        f"not {most + 2}"
    )


def test_prompt_lookup_refuses_a_shortest_ngram_longer_than_its_longest():
    assert refusal(PromptLookupDrafter, min_ngram=4, max_ngram=3) == (
        "Value error, prompt lookup's shortest n-gram 4 is longer than its longest 3"
    )


@pytest.mark.parametrize("ell", [0.0, 1.01, float("nan")])
def test_a_lenience_outside_0_to_1_is_refused(ell):
    refusal(Lenience, ell=ell)


@pytest.mark.parametrize("fields", [{"p_base": 0.0}, {"p_base": 1.1}, {"p_base": 0.5, "redraw": "draft"}])
def test_a_cascade_threshold_outside_0_to_1_or_an_unknown_redraw_is_refused(fields):
    refusal(SpecCascade, **fields)


@pytest.mark.parametrize("prompt", ["", "   ", "\n\t"])
def test_an_empty_prompt_is_refused(prompt):
    assert refusal(Request, prompt=prompt) == "Value error, the prompt is empty: type something to decode"


def test_a_prompt_with_half_a_character_is_refused():
    assert "valid string" in refusal(Request, prompt="a\ud83d")


@pytest.mark.parametrize("fields", [{"drafter": SmallModelDrafter()}, {"shape": ChainShape(gamma=4)}])
def test_a_drafter_without_a_shape_and_a_shape_without_a_drafter_are_refused(fields):
    assert "plain decoding has neither a drafter nor a shape" in refusal(Request, prompt="a", **fields)


@pytest.mark.parametrize("rule", [Lenience(ell=0.5), SpecCascade(p_base=0.5)])
def test_plain_decoding_with_a_lossy_rule_is_refused(rule):
    assert "plain decoding verifies nothing" in refusal(Request, prompt="a", rule=rule)


@pytest.mark.parametrize("seed", [-1, 2**63])
def test_a_seed_that_storage_cannot_keep_is_refused(seed):
    refusal(Request, prompt="a", seed=seed)


def test_a_pair_needs_a_name_and_a_known_precision_and_device():
    refusal(PairSpec, name="")
    refusal(PairSpec, precision="int4")
    refusal(PairSpec, device="tpu")


@pytest.mark.parametrize(
    ("adapter", "spec"),
    [
        (TypeAdapter(DrafterSpec), NoDrafter()),
        (TypeAdapter(DrafterSpec), SmallModelDrafter()),
        (TypeAdapter(DrafterSpec), PromptLookupDrafter(min_ngram=2, max_ngram=5)),
        (TypeAdapter(DrafterSpec), EarlyExitDrafter(layers=26)),
        (TypeAdapter(ShapeSpec), NoShape()),
        (TypeAdapter(ShapeSpec), ChainShape(gamma=4)),
        (TypeAdapter(ShapeSpec), TreeShape(steps=3, topk=2, nodes=6)),
        (TypeAdapter(RuleSpec), Lenience(ell=0.4)),
        (TypeAdapter(RuleSpec), SpecCascade(p_base=0.5, redraw="target", recompute=True)),
    ],
)
def test_json_keeps_the_kind_and_the_values_of_every_choice(adapter, spec):
    assert adapter.validate_json(adapter.dump_json(spec)) == spec


def test_a_run_specification_survives_json():
    request = Request(
        prompt="Größe \N{GRINNING FACE} \x00",
        chat=False,
        sampling=Sampling(temperature=0.7, top_k=20, truncate_draft=True),
        stops=Stops(max_new_tokens=9, stop_strings=("\n\n", "END")),
        drafter=SmallModelDrafter(),
        shape=TreeShape(steps=3, topk=2, nodes=6),
        rule=Lenience(ell=0.4),
        seed=2**63 - 1,
    )
    spec = RunSpec(pair=PairSpec(name="a+b", precision="bfloat16", device="cpu"), request=request)
    assert RunSpec.model_validate_json(spec.model_dump_json()) == spec
