"""Rules of every kind, as texts of the grammar."""

from __future__ import annotations

REDRAWS = ("target", "target_in_set", "draft_in_set")

TRUNCATIONS = tuple(
    f"{rule},redraw={redraw}{more}"
    for rule, more in (
        ("spec_cascade:0.6", ""),
        ("spec_cascade:0.6", ",recompute=true"),
        ("typical:0.45", ""),
        ("typical:0.9,delta=0.7", ",hard=false"),
        ("typical:0.9", ",hard=false,recompute=true"),
        ("truncation:top_k=2", ""),
        ("truncation:top_k=2,min_p=0.7,eta=0.3", ",recompute=true"),
    )
    for redraw in REDRAWS
)

TARGET_LAWS = (
    "cos_we:0.5",
    "cos_we:0",
    "cos_we:1",
    "cos_cd:0.5",
    "cos_cd:3",
    "adaptive_interpolation:0.5",
    "overshoot_ceiling:0.8",
    "overshoot_ceiling:0.2",
)

OTHERS = ("lossless", "lenience:0.5", "lenience:0.8", "min_p_ceiling:0.9,ell=0.95", "min_p_ceiling:0.4,ell=0.5")

RULES = (*OTHERS, *TARGET_LAWS, *TRUNCATIONS)
"""All that judge a position by itself; block verification judges chains."""
