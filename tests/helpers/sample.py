"""Hand-made records for the page tests: rounds of a chain, a tree and plain decoding, and hostile text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from core.records import ROOT, Ended, Fate, Fingerprint, Node, Position, Round, Source, Started, TopToken
from core.types import ChainShape, PairSpec, PromptLookupDrafter, Request, RunSpec, Sampling, Stops

HOSTILE = '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>\u202e</style>-->&amp;"'

RUN_ID = "0123456789abcdefghjkmnpqrs"


def node(
    fate: Fate,
    text: str = " the",
    parent: int = ROOT,
    depth: int = 1,
    token: int = 7,
    p: float | None = 0.8,
    u: float | None = 0.5,
) -> Node:
    """A candidate; an unreached one was never tested."""
    tested = fate != "unreached"
    return Node(
        token=token,
        text=text,
        parent=parent,
        depth=depth,
        fate=fate,
        p=p if tested else None,
        q=1.0,
        score=0.6,
        accept_prob=p if tested else None,
        u=u if tested else None,
    )


def chain(
    fates: Sequence[Fate], index: int = 0, text: str = " the", last: str = " end", source: Source | None = None
) -> Round:
    """A chain round with these fates; the last token is a bonus when all were accepted, else a correction."""
    nodes = tuple(
        node(fate, text, parent=place - 1, depth=place + 1, token=10 + place) for place, fate in enumerate(fates)
    )
    accepted = sum(fate == "accepted" for fate in fates)
    if source is None:
        source = "bonus" if accepted == len(fates) else "correction"
    added = () if source == "none" else (99,)
    return finish(
        nodes, index, tuple(10 + i for i in range(accepted)) + added, (text,) * accepted + (last,) * len(added), source
    )


def counted(
    accepted: int, drafted: int, *, cut: int = 0, index: int = 0, at: float = 1.0, source: Source | None = None
) -> Round:
    """A chain of ``drafted`` candidates, the first ``accepted`` committed, the next ``cut`` after a stop. It took 1 s,
    in stages exact in binary, and ended at ``at`` seconds."""
    rejected = int(accepted < drafted and not cut)
    counts: dict[Fate, int] = {"accepted": accepted, "cut": cut, "rejected": rejected}
    counts["unreached"] = drafted - sum(counts.values())
    fates: list[Fate] = [fate for fate, many in counts.items() for _ in range(many)]
    source = source or ("none" if cut else "correction" if rejected else "bonus")
    one = chain(fates, index, "b", "b", source)
    return replace(one, draft_s=0.25, verify_s=0.5, state_s=0.125, other_s=0.125, wall_s=1.0, ended_at_s=at)


def tree(index: int = 0) -> Round:
    """Two siblings at the root, the second accepted with one child accepted and one unreached beside it."""
    nodes = (
        node("rejected", " A", ROOT, 1, token=1, p=0.2, u=0.9),
        node("accepted", " B", ROOT, 1, token=2),
        node("unreached", " Aa", 0, 2, token=3),
        node("accepted", " Ba", 1, 2, token=4),
        node("unreached", " Bb", 1, 2, token=5),
    )
    return finish(nodes, index, (2, 4, 9), (" B", " Ba", " end"), "bonus")


def plain(index: int = 0, text: str = " word") -> Round:
    """A round without a draft."""
    return finish((), index, (99,), (text,), "bonus")


def finish(
    nodes: tuple[Node, ...], index: int, committed: tuple[int, ...], texts: tuple[str, ...], source: Source
) -> Round:
    """A round around these candidates, with times that add up."""
    end = max((i for i, n in enumerate(nodes) if n.fate == "accepted"), key=lambda i: nodes[i].depth, default=ROOT)
    top = (
        TopToken(token=99, text=texts[-1] if texts else "", p=0.7, q=None),
        TopToken(token=3, text=" x", p=0.1, q=None),
    )
    return Round(
        request=0,
        index=index,
        nodes=nodes,
        committed=committed,
        committed_text=texts,
        source=source,
        positions=(Position(node=end, top=top, p_rest=0.2, q_rest=None),),
        draft_s=0.01,
        verify_s=0.03,
        state_s=0.002,
        other_s=0.001,
        wall_s=0.043,
        ended_at_s=0.2 + 0.043 * (index + 1),
    )


def spec(max_new_tokens: int = 64, prompt: str = "Copy this.") -> RunSpec:
    """A greedy prompt-lookup chain."""
    return RunSpec(
        pair=PairSpec(name="embedded"),
        request=Request(
            prompt=prompt,
            sampling=Sampling(temperature=0.0),
            stops=Stops(max_new_tokens=max_new_tokens),
            drafter=PromptLookupDrafter(),
            shape=ChainShape(gamma=4),
        ),
    )


def fingerprint(drafting: str = "prompt_lookup chain:4") -> Fingerprint:
    """A fingerprint with every field set."""
    return Fingerprint(
        target="embedded", target_hash="t", draft=None, draft_hash=None, precision="float32", tokenizer_hash="k",
        template_hash="c", sampling="greedy", reference_law="p", stops="64", cache_policy="slots", drafting=drafting,
        device="cpu", versions={"torch": "2"}, seed=0, prompt_hash="h",
        prompt_ids_hash="i", end_tokens="2", batch=1,
    )  # fmt: skip


def started() -> Started:
    """The prompt is in the cache."""
    return Started(request=0, prompt_tokens=12, prefill_s=0.2, fingerprint=fingerprint())


def ended(rounds: Sequence[Round], reason: str = "eos", error: str | None = None) -> Ended:
    """The end of a run of these rounds."""
    text = "".join(piece for r in rounds for piece in r.committed_text)
    last = rounds[-1].ended_at_s if rounds else 0.2
    return Ended(0, reason, text, last, 300 * 2**20, "process_rss", error)  # type: ignore[arg-type]
