"""One grammar for form, command line, files and links: round trips, and a sentence for every bad text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import BadInput
from core.grammar import (
    RULE_HELP,
    format_allowed,
    format_drafter,
    format_rule,
    format_shape,
    parse_allowed,
    parse_drafter,
    parse_rule,
    parse_shape,
    sampling_text,
)
from core.rules.catalogue import KINDS
from core.types import (
    AdaptiveInterpolation,
    AllowedSet,
    Block,
    ChainShape,
    CosCD,
    CosWE,
    EarlyExitDrafter,
    Lenience,
    Lossless,
    MinPCeiling,
    NoDrafter,
    NoShape,
    OvershootCeiling,
    PromptLookupDrafter,
    Redraw,
    Request,
    Sampling,
    SmallModelDrafter,
    SpecCascade,
    TreeShape,
    Truncation,
    Typical,
    valid,
)

READ: list[tuple[Callable[[str], Any], str, Any]] = [
    (parse_drafter, "none", NoDrafter()),
    (parse_drafter, "model", SmallModelDrafter()),
    (parse_drafter, "prompt_lookup", PromptLookupDrafter(min_ngram=1, max_ngram=3)),
    (parse_drafter, "prompt_lookup:2,5", PromptLookupDrafter(min_ngram=2, max_ngram=5)),
    (parse_drafter, "prompt_lookup:4", PromptLookupDrafter(min_ngram=4, max_ngram=4)),
    (parse_drafter, " early_exit:26 ", EarlyExitDrafter(layers=26)),
    (parse_shape, "none", NoShape()),
    (parse_shape, "chain:4", ChainShape(gamma=4)),
    (parse_shape, " chain: 4", ChainShape(gamma=4)),
    (parse_shape, "s3_k2_d6", TreeShape(steps=3, topk=2, nodes=6)),
    (parse_shape, "s5_k1_d6", TreeShape(steps=5, topk=1, nodes=6)),
    (parse_rule, "lossless", Lossless()),
    (parse_rule, "lenience:0.4", Lenience(ell=0.4)),
    (parse_rule, "lenience:1", Lenience(ell=1.0)),
    (parse_rule, "spec_cascade:0.5", SpecCascade(p_base=0.5, redraw="target_in_set", recompute=False)),
    (parse_rule, "spec_cascade:0.5,redraw=target", SpecCascade(p_base=0.5, redraw="target")),
    (
        parse_rule,
        "spec_cascade:0.5, redraw = draft_in_set, recompute=true",
        SpecCascade(p_base=0.5, redraw="draft_in_set", recompute=True),
    ),
    (parse_rule, "block", Block()),
    (parse_rule, "cos_we:0", CosWE(draft_weight=0.0)),
    (parse_rule, "cos_cd:0.5", CosCD(mu=0.5)),
    (parse_rule, "typical:0.3", Typical(epsilon=0.3, delta=None, redraw="target_in_set", hard=True, recompute=False)),
    (
        parse_rule,
        "typical:0.3,delta=0.2,redraw=target,hard=false,recompute=true",
        Typical(epsilon=0.3, delta=0.2, redraw="target", hard=False, recompute=True),
    ),
    (parse_rule, "truncation:top_k=2,redraw=target_in_set", Truncation(top_k=2, redraw="target_in_set")),
    (
        parse_rule,
        "truncation:min_p=0.1, top_p=0.9,epsilon=0.01,eta=0.02,delta=0.1",
        Truncation(min_p=0.1, top_p=0.9, epsilon=0.01, eta=0.02, delta=0.1),
    ),
    (parse_rule, "adaptive_interpolation:0.5", AdaptiveInterpolation(lam=0.5)),
    (parse_rule, "overshoot_ceiling:1", OvershootCeiling(lam=1.0)),
    (parse_rule, "min_p_ceiling:0.9,ell=0.95", MinPCeiling(p_base=0.9, ell=0.95)),
]


@pytest.mark.parametrize(("parse", "text", "spec"), READ, ids=lambda value: value if isinstance(value, str) else "")
def test_every_form_of_the_grammar_is_read_as_its_specification(parse, text, spec):
    assert parse(text) == spec


@given(
    st.one_of(
        st.builds(NoDrafter),
        st.builds(SmallModelDrafter),
        st.builds(EarlyExitDrafter, layers=st.integers(1, 1000)),
        st.tuples(st.integers(1, 64), st.integers(1, 64)).map(
            lambda ends: PromptLookupDrafter(min_ngram=min(ends), max_ngram=max(ends))
        ),
    )
)
def test_every_drafter_reads_back_what_it_prints(spec):
    assert parse_drafter(format_drafter(spec)) == spec


@st.composite
def trees(draw: st.DrawFn) -> TreeShape:
    steps, topk = draw(st.integers(1, 64)), draw(st.integers(1, 64))
    most = min(256, topk + (steps - 1) * topk * topk)
    return TreeShape(steps=steps, topk=topk, nodes=draw(st.integers(2, most + 1)))


@given(st.one_of(st.builds(NoShape), st.builds(ChainShape, gamma=st.integers(1, 256)), trees()))
def test_every_shape_reads_back_what_it_prints(spec):
    assert parse_shape(format_shape(spec)) == spec


shares = st.floats(0.0, 1.0, exclude_min=True)


redraws: st.SearchStrategy[Redraw] = st.sampled_from(get_args(Redraw))
truncation = {"redraw": redraws, "recompute": st.booleans()}


@st.composite
def allowed_fields(draw: st.DrawFn) -> dict[str, Any]:
    eta = draw(st.just(0.0) | shares)
    return {
        "top_k": draw(st.integers(0, 1_000_000)),
        "top_p": draw(shares),
        "min_p": draw(st.just(0.0) | shares),
        "epsilon": draw(st.floats(0.0, 1.0, exclude_max=True)),
        "eta": eta,
        "delta": draw(st.none() | shares) if eta else None,
    }


@st.composite
def truncations(draw: st.DrawFn) -> Truncation:
    fields = draw(allowed_fields().filter(lambda fields: not AllowedSet(**fields).everything))
    return Truncation(**fields, redraw=draw(redraws), recompute=draw(st.booleans()))


@given(
    st.one_of(
        st.builds(Lossless),
        st.builds(Block),
        st.builds(Lenience, ell=shares),
        st.builds(CosWE, draft_weight=st.floats(0.0, 1.0)),
        st.builds(CosCD, mu=st.floats(0.0, 100.0)),
        st.builds(SpecCascade, p_base=shares, **truncation),
        st.builds(Typical, epsilon=shares, delta=st.none() | shares, hard=st.booleans(), **truncation),
        truncations(),
        st.builds(AdaptiveInterpolation, lam=shares),
        st.builds(OvershootCeiling, lam=shares),
        st.builds(MinPCeiling, p_base=shares, ell=shares),
    )
)
def test_every_rule_reads_back_what_it_prints(spec):
    assert parse_rule(format_rule(spec)) == spec


@given(st.lists(allowed_fields().map(lambda fields: AllowedSet(**fields)), max_size=3))
def test_allowed_sets_read_back_what_they_print_but_for_those_that_hold_everything(sets):
    assert parse_allowed(format_allowed(sets)) == tuple(one for one in sets if not one.everything)


def test_allowed_sets_are_written_one_after_the_other():
    sets = (AllowedSet(top_k=2, min_p=0.1), AllowedSet(eta=0.05, delta=0.5))
    assert parse_allowed(" top_k=2, min_p=0.1 ; eta=0.05,delta=0.5;") == sets
    assert format_allowed(sets) == "top_k=2,min_p=0.1;eta=0.05,delta=0.5"
    with pytest.raises(BadInput, match="'redraw=target' in 'redraw=target' is no option"):
        parse_allowed("redraw=target")


def test_a_sampling_is_written_with_its_allowed_sets():
    sampling = Sampling(temperature=0.7, min_p=0.1, allowed=(AllowedSet(eta=0.2),))
    assert sampling_text(sampling) == "T=0.7 min_p=0.1 allowed=eta=0.2"
    assert sampling_text(Sampling(temperature=0.0)) == "greedy"


def test_the_help_names_every_rule():
    assert [name for name in KINDS if name not in RULE_HELP] == []


@pytest.mark.parametrize(
    ("parse", "text", "message"),
    [
        (parse_drafter, "", "'' is no drafter: write none, model"),
        (parse_drafter, "eagle", "'eagle' is no drafter"),
        (parse_drafter, "none:", "'none:' is no drafter"),
        (parse_drafter, "model:7", "'model:7' is no drafter"),
        (parse_drafter, "early_exit", "'early_exit' is no drafter"),
        (parse_drafter, "early_exit:", "'early_exit:' is no drafter"),
        (parse_drafter, "early_exit:x", "'x' in 'early_exit:x' is not a whole number."),
        (parse_drafter, "early_exit:1.5", "'1.5' in 'early_exit:1.5' is not a whole number."),
        (parse_drafter, "early_exit:0", "layers is 0: input should be greater than or equal to 1."),
        (parse_drafter, "early_exit:" + "9" * 10, "is not a whole number."),
        (parse_drafter, "prompt_lookup:", "'prompt_lookup:' is no drafter"),
        (parse_drafter, "prompt_lookup:,", "'' in 'prompt_lookup:,' is not a whole number."),
        (parse_drafter, "prompt_lookup:2,", "'' in 'prompt_lookup:2,' is not a whole number."),
        (parse_drafter, "prompt_lookup:1,2,3", "'2,3' in 'prompt_lookup:1,2,3' is not a whole number."),
        (
            parse_drafter,
            "prompt_lookup:4,3",
            "prompt lookup's shortest n-gram 4 is longer than its longest 3.",
        ),
        (parse_drafter, "prompt_lookup:0,3", "min_ngram is 0: input should be greater than or equal to 1."),
        (parse_shape, "", "'' is no shape: write none, chain:GAMMA"),
        (parse_shape, "chain", "'chain' is no shape"),
        (parse_shape, "chain:", "'' in 'chain:' is not a whole number."),
        (parse_shape, "chain:0", "gamma is 0: input should be greater than or equal to 1."),
        (parse_shape, "chain:-3", "gamma is -3: input should be greater than or equal to 1."),
        (parse_shape, "chain:257", "gamma is 257: input should be less than or equal to 256."),
        (parse_shape, "s3k2d6", "'s3k2d6' is no shape"),
        (parse_shape, "s3_k2_d6_", "'s3_k2_d6_' is no shape"),
        (parse_shape, "s3_k2_d1", "nodes is 1: input should be greater than or equal to 2."),
        (parse_shape, "s0_k2_d6", "steps is 0: input should be greater than or equal to 1."),
        (parse_shape, "s1_k2_d9", "s1_k2 reaches at most 2 candidates, so d can be at most 3, not 9."),
        (parse_rule, "", "'' is no rule: write lossless"),
        (parse_rule, "loss", "'loss' is no rule"),
        (parse_rule, "lossless:", "'lossless:' is no rule"),
        (parse_rule, "lossless:1", "'lossless:1' is no rule"),
        (parse_rule, "lenience", "'lenience' is no rule"),
        (parse_rule, "lenience:", "'lenience:' is no rule"),
        (parse_rule, "lenience:much", "'much' in 'lenience:much' is not a number."),
        (parse_rule, "lenience:0", "ell is 0.0: input should be greater than 0."),
        (parse_rule, "lenience:1.5", "ell is 1.5: input should be less than or equal to 1."),
        (parse_rule, "lenience:nan", "ell is nan: input should be a finite number."),
        (parse_rule, "lenience:0.5,redraw=target", "'lenience:0.5,redraw=target' is no rule"),
        (parse_rule, "spec_cascade", "'spec_cascade' is no rule"),
        (parse_rule, "spec_cascade:0.5,", "'' in 'spec_cascade:0.5,' is not a key=value option"),
        (parse_rule, "spec_cascade:0.5,redraw", "'redraw' in 'spec_cascade:0.5,redraw' is not a key=value option"),
        (
            parse_rule,
            "spec_cascade:0.5,redraw=target,redraw=target",
            "'redraw=target' in 'spec_cascade:0.5,redraw=target,redraw=target' is not a key=value option that is "
            "given once.",
        ),
        (parse_rule, "spec_cascade:0.5,redraw=draft", "redraw is 'draft': input should be 'target'"),
        (parse_rule, "spec_cascade:0.5,recompute=maybe", "recompute is 'maybe': input should be a valid boolean"),
        (parse_rule, "spec_cascade:0.5,colour=red", "'colour=red' in 'spec_cascade:0.5,colour=red' is no option"),
        (parse_rule, "spec_cascade:0.5,p_base=0.7", "'p_base=0.7' in 'spec_cascade:0.5,p_base=0.7' is no option"),
        (parse_rule, "spec_cascade:0.5,make=x", "'make=x' in 'spec_cascade:0.5,make=x' is no option"),
        (parse_rule, "spec_cascade:0.5,kind=spec_cascade", "'kind=spec_cascade' in"),
        (parse_rule, "block:4", "'block:4' is no rule"),
        (parse_rule, "cos_we:1.1", "draft_weight is 1.1: input should be less than or equal to 1."),
        (parse_rule, "cos_cd:-0.1", "mu is -0.1: input should be greater than or equal to 0."),
        (parse_rule, "cos_cd:inf", "mu is inf: input should be a finite number."),
        (parse_rule, "typical", "'typical' is no rule"),
        (parse_rule, "typical:0", "epsilon is 0.0: input should be greater than 0."),
        (parse_rule, "typical:0.3,delta=0", "delta is '0': input should be greater than 0."),
        (parse_rule, "typical:0.3,hard=perhaps", "hard is 'perhaps': input should be a valid boolean"),
        (parse_rule, "truncation", "'truncation' is no rule"),
        (parse_rule, "truncation:", "'' in 'truncation:' is not a key=value option"),
        (parse_rule, "truncation:redraw=target", "a truncation rule needs an allowed set: give top_k"),
        (parse_rule, "truncation:delta=0.1", "delta=0.1 belongs to η-sampling: give eta as well."),
        (parse_rule, "truncation:top_k=2.5", "top_k is '2.5': input should be a valid integer"),
        (parse_rule, "truncation:top_k=-1", "top_k is '-1': input should be greater than or equal to 0."),
        (parse_rule, "overshoot_ceiling:0", "lam is 0.0: input should be greater than 0."),
        (parse_rule, "min_p_ceiling:0.5", "ell is missing."),
        (parse_rule, "min_p_ceiling:0.5,lam=1", "'lam=1' in 'min_p_ceiling:0.5,lam=1' is no option: ell is."),
    ],
    ids=lambda value: repr(value) if isinstance(value, str) and len(value) < 45 else "",
)
def test_bad_text_ends_in_a_sentence_that_names_what_is_wrong(parse, text, message):
    with pytest.raises(BadInput) as caught:
        parse(text)
    assert message in str(caught.value)
    assert str(caught.value).endswith(".")
    assert "\n" not in str(caught.value)


def read_or_refused(parse: Callable[[str], Any], text: str) -> bool:
    """True when ``parse`` gives a specification or a sentence; any other exception is the test's failure."""
    try:
        return parse(text) is not None
    except BadInput as error:
        return str(error).endswith(".") and "\n" not in str(error)


@given(st.sampled_from([parse_drafter, parse_shape, parse_rule]), st.text(max_size=40))
def test_any_text_is_either_read_or_refused_in_one_sentence(parse, text):
    assert read_or_refused(parse, text)


WORDS = (
    "none chain s3_k2_d6 lenience spec_cascade typical truncation block min_p_ceiling prompt_lookup early_exit : , = "
    "0.5 -1 redraw target kind make p_base top_k delta ell hard "
    "recompute true 1e400 nan _ 999999999999999999999999"
)
mixtures = st.lists(st.sampled_from(WORDS.split(" ")), max_size=8).map("".join)


@given(st.sampled_from([parse_drafter, parse_shape, parse_rule]), mixtures)
def test_any_mixture_of_the_grammars_own_words_is_either_read_or_refused_in_one_sentence(parse, text):
    assert read_or_refused(parse, text)


def test_a_complaint_names_the_field_and_the_value():
    with pytest.raises(BadInput) as caught:
        valid(Sampling, top_p=1.5)
    assert str(caught.value) == "top_p is 1.5: input should be less than or equal to 1."


def test_a_complaint_shortens_a_very_long_value():
    with pytest.raises(BadInput) as caught:
        valid(Sampling, top_p="x" * 1000)
    assert len(str(caught.value)) < 200
    assert "xxx…" in str(caught.value)


def test_a_missing_field_is_named():
    with pytest.raises(BadInput) as caught:
        valid(Request)
    assert str(caught.value) == "prompt is missing."
