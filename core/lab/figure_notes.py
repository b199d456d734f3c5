"""What goes with each recomputed figure: the equation, what is assumed, and where print or the authors' code differ.

Plain text for the pages; the differences are those of rules.md and those found by recomputing. No torch.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Notes:
    """``shows``: what the figure is; ``equation`` in plain characters; ``assumes`` and ``differs``: sentences."""

    title: str
    shows: str
    equation: str
    assumes: tuple[str, ...]
    differs: tuple[str, ...]


NOTES: dict[str, Notes] = {
    "figure2": Notes(
        "Figure 2 · Induced laws",
        "What a position emits under (a) CoS, (b) lenience and (c) truncation-based verification, for the p and "
        "q above, tokens by falling p.",
        "(a) λp + (1−λ)q · (b) Δp + (1−Δ)q where q ≤ p, else min(q, p/ℓ) · (c) q on A, and what the redraw adds "
        "(Eq. 8, 10–13)",
        ("The paper does not give its p and q: these are the ones chosen above.",),
        (
            "Eq. 7 leaves out the minimum with 1: λp + (1−λ)q over q exceeds 1 where q < p.",
            "λ weighs the target in Eq. 7–8 and the draft in the tables (accuracy falls as λ rises). Here w is the "
            "draft's weight, and λ of Eq. 8 is 1 − w.",
            "Eq. 12 speaks of no resampling and Eq. 13 renormalises q on A; the authors' code draws a rejected "
            "position from p, Appendix H.1 from p_Θ. Choose the redraw to see all three.",
        ),
    ),
    "figure4": Notes(
        "Figure 4 · Net ΔBE of truncating the target",
        "Change in a token's lossless acceptance when the target alone is truncated, over the paper's grids. A line a "
        "ratio of matching / partially overlapping / unrelated tokens, with one standard deviation over random pairs.",
        "ΔBE = Σ_A min{(q−p)₊, (1/z − 1)p} − Σ_{not A} min(p, q), z = p(A) (Lemma 1)",
        (
            "The paper does not say how its pairs are drawn. Here 20 tokens have normal logits of standard deviation "
            "2.5; the draft keeps a logit (matching), adds standard normal noise (partial) or draws its own "
            "(unrelated), and all its logits are then multiplied by the sharpness.",
            "min-p as in Eq. 5; η with δ = √ε. The draft is not truncated.",
        ),
        (
            "Eq. 14 prints L_trunc inside the sum over A, which would count it once per allowed token; it belongs "
            "outside. The printed third term p/z never binds.",
            "The signs of the paper's figure need a draft that is sharper than the target. With an equally sharp draft "
            "(sharpness 1) ΔBE is negative almost everywhere, for η too: for q = p it is exactly z − 1.",
        ),
    ),
    "figure8a": Notes(
        "Figure 8a · Δ against TV",
        "How strongly lenience pulls towards p where the draft undershoots, along the line from p to the q above.",
        "Δ = Σ (q − p/ℓ)₊ / TV(p, q) (Eq. 11 and 15)",
        ("q_t = p + t(q − p), t from 0 to 1: the paper shows five drafts, not a line.",),
        (
            "Δ weighs the target, so Δ = 0 is the most relaxed case there: the draft's tokens pass as they are. The "
            "paper reads a small Δ as “almost no relaxation”; it is harmless because q is near p, not because p is "
            "enforced.",
            "The curve is concave only between the points where one more token passes its ceiling p/ℓ; at these it "
            "bends up, and it is exactly 0 before the first.",
            "At TV = 0 Eq. 11 is 0/0; the law there is p.",
        ),
    ),
    "figure8b": Notes(
        "Figure 8b · Ceiling against mixture",
        "What one token of target probability p(x) is emitted with, against the draft's q(x).",
        "mixture ℓp + (1−ℓ)q · ceiling min(q, p/ℓ)",
        ("One token is looked at alone, so nothing is renormalised.",),
        (
            "The two disagree in both directions: between p/ℓ and p(1+ℓ)/ℓ the ceiling keeps more than the mixture; "
            "only above does it clip what the mixture would keep. The paper describes only the latter.",
            "The ablation's formula (§4) jumps up by p(1−λ) at q = p/λ, since below it the mixture lies under the "
            "ceiling.",
        ),
    ),
    "proposition1": Notes(
        "Lemma 2 and Proposition 1 · KL as the draft improves",
        "Divergence from truncation sampling as q moves to p: it vanishes when candidates are drawn from q, and stays "
        "when they are the draft's best.",
        "KL_SD = Σ_A (q/Z_q) log(q Z_p / (Z_q p)) · KL_EAGLE = log(Z_p/p(x)), x the first candidate in A",
        (
            "q_t = p + t(q − p). Candidates of the deterministic tree are the most likely tokens of q_t, best first.",
            "Standard SD redraws from q_Θ (Eq. 13); with the code's redraw from p the law leaves A and its KL does not "
            "exist.",
        ),
        (
            "The expectation of KL_EAGLE is over prefixes; at one prefix, as here, x is fixed. It jumps where the "
            "order of the draft's best candidates changes.",
            "With |A| = 1 both are 0: Proposition 1 needs |A| > 1.",
        ),
    ),
    "lemma1": Notes(
        "Lemma 1 · What truncating the target changes",
        "Change in a token's lossless acceptance when the target alone is truncated to its min-p set, at the p and q "
        "above and the paper's thresholds.",
        "ΔBE = Σ_A min{(q−p)₊, (1/z−1) p} − L_trunc, L_trunc = Σ_{not A} min(p, q), z = p(A)",
        ("One position is looked at; the paper's Figure 4 averages over many.",),
        (
            "The paper prints L_trunc inside the sum, which counts it once per allowed token (the last column). It "
            "belongs outside: the change is then Σ min(p_Θ, q) − Σ min(p, q).",
            "The third term of the printed minimum never binds.",
        ),
    ),
    "corollary1": Notes(
        "Corollary 1 and Proposition 2 · Sets of candidates",
        "How often one of a set C of deterministic candidates is accepted, and the block efficiency of a tree that has "
        "C at every level.",
        "p_Θ(C) ≤ 1[C ∩ A ≠ ∅] · BE = Σ_d Π_{j≤d} Pr[L ≥ j | L ≥ j−1]",
        (
            "C holds the draft's most likely tokens, and p and q are the same at every prefix of a tree of 5 levels "
            "(the paper's depth).",
        ),
        ("Block efficiency as in Proposition 2 leaves out the bonus token, which Table 4 counts.",),
    ),
    "table1": Notes(
        "Table 1 · Which half of lenience helps",
        "Lenience taken apart at the p and q above: the adaptive Δ alone, the ceiling alone, both. Averaged over "
        "λ = ℓ ∈ {.2, .4, .6, .8}.",
        "q + Δ(p−q) where q ≤ p, else λp + (1−λ)q · λp + (1−λ)q where q ≤ p/λ, else p/λ",
        ("A law at one position stands for the paper's MBPP+ scores: acceptance for BE, distance and overshoot for "
         "Pass@1.",),
        (
            "Neither formula sums to one as printed (the column says to what); both are renormalised here.",
            "After renormalising, the ceiling's law may lie above p/λ.",
        ),
    ),
    "table6": Notes(
        "Table 6 · Truncation with a ceiling",
        "The hybrid takes q inside the min-p set and caps at p/ℓ outside. Averaged over ℓ ∈ {.2, .4, .6, .8}, "
        "p_base = .5.",
        "y = q in A(min-p), else min(q, p/ℓ); emitted: y + (1−Σy) · norm (p−y)₊",
        ("A law at one position stands for the paper's MBPP+ scores, as in Table 1.",),
        (
            "“Yielded with probability y” does not sum to one; the rest is redrawn from norm (p−y)₊.",
            "Without the set, accept min(q, p/ℓ)/q with redraw norm (p − min(q, p/ℓ))₊ is lenience itself: a ceiling "
            "“without adaptive interpolation” needs another redraw to be a rule of its own.",
        ),
    ),
}  # fmt: skip
