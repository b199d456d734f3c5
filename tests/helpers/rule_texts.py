"""Rules of every kind, as texts of the grammar, and the test vectors of rules.md."""

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

IN_SET = ((1, 1, 0), 0.7, (0.625, 0.375, 0), (0.7875, 0.2125, 0), 0.2875, 0.28445)

VECTORS = [
    # rule, accept, mass, residual, induced, TV to p, KL(P‖p)
    ("lossless", (0.833333, 1, 0.666667), 0.8, (0, 1, 0), (0.5, 0.3, 0.2), 0.0, 0.0),
    ("block", (0.833333, 1, 0.666667), 0.8, (0, 1, 0), (0.5, 0.3, 0.2), 0.0, 0.0),
    ("lenience:0.5", (1, 1, 1), 1.0, (0, 1, 0), (0.6, 0.1, 0.3), 0.2, 0.12117),
    ("lenience:0.8", (1, 1, 0.833333), 0.95, (0, 1, 0), (0.6, 0.15, 0.25), 0.15, 0.06121),
    ("lenience:0.95", (0.877193, 1, 0.701754), 0.836842, (0, 1, 0), (0.526316, 0.263158, 0.210526), 0.0368, None),
    ("cos_we:0.5", (0.916667, 1, 0.833333), 0.9, (0, 1, 0), (0.55, 0.2, 0.25), 0.1, 0.02711),
    ("cos_we:0.2", (0.866667, 1, 0.733333), 0.84, (0, 1, 0), (0.52, 0.26, 0.22), 0.04, 0.00416),
    ("cos_cd:0.5", (0.54908, 1, 0.621213), 0.615812, (0, 1, 0), (0.329448, 0.484188, 0.186364), 0.1842, 0.08117),
    (
        "spec_cascade:0.5,redraw=draft_in_set",
        (1, 1, 0),
        0.7,
        (0.857143, 0.142857, 0),
        (0.857143, 0.142857, 0),
        0.3571,
        0.35601,
    ),
    ("spec_cascade:0.5,redraw=target", (1, 1, 0), 0.7, (0.5, 0.3, 0.2), (0.75, 0.19, 0.06), 0.25, 0.14508),
    ("spec_cascade:0.5,redraw=target_in_set", *IN_SET),
    ("typical:0.4,redraw=target_in_set", *IN_SET),
    (
        "typical:0.4,hard=false,redraw=target",
        (1, 1, 0.885467),
        0.96564,
        (0.5, 0.3, 0.2),
        (0.61718, 0.110308, 0.272512),
        0.1897,
        None,
    ),
    ("typical:0.3,redraw=target", (1, 1, 1), 1.0, (0.5, 0.3, 0.2), (0.6, 0.1, 0.3), 0.2, 0.12117),
    ("typical:0.3,redraw=target_in_set", (1, 1, 1), 1.0, (0.5, 0.3, 0.2), (0.6, 0.1, 0.3), 0.2, 0.12117),
    ("typical:0.3,redraw=draft_in_set", (1, 1, 1), 1.0, (0.6, 0.1, 0.3), (0.6, 0.1, 0.3), 0.2, 0.12117),
    ("truncation:top_k=2,redraw=target_in_set", *IN_SET),
    (
        "overshoot_ceiling:0.8",
        (0.841424, 1, 0.809061),
        0.847573,
        (0, 1, 0),
        (0.504854, 0.252427, 0.242718),
        0.0476,
        None,
    ),
    (
        "adaptive_interpolation:0.5",
        (1, 1, 0.925926),
        0.977778,
        (0.5, 0.5, 0),
        (0.611111, 0.111111, 0.277778),
        0.1889,
        0.10352,
    ),
    (
        "min_p_ceiling:0.9,ell=0.95",
        (1, 1, 0.701754),
        0.910526,
        (0, 1, 0),
        (0.6, 0.189474, 0.210526),
        0.1105,
        None,
    ),
]
