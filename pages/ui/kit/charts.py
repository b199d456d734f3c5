"""Plotly figures. ``core.results.metrics`` computes all values; no model text enters a figure."""

from __future__ import annotations

import plotly.graph_objects as go

from core.records import Summary
from core.results.glossary import GLOSSARY
from pages.ui.kit import numbers, palette

PATTERNS = {"draft_s": "", "verify_s": "/", "state_s": "x", "other_s": "."}
"""Hatching by stage, in addition to colour."""

HATCH = {"fillmode": "overlay", "fgcolor": "rgba(0,0,0,.4)", "size": 5, "solidity": 0.15}


def stage_times(summary: Summary) -> go.Figure:
    """Stage times of a run: draft, verify, state and other, as one stacked bar in seconds."""
    figure = go.Figure()
    for name, look in palette.STAGES.items():
        value = getattr(summary, name)
        label = f"{look.label} {numbers.seconds(value)}"
        figure.add_bar(
            x=[value],
            y=[""],
            name=label,
            orientation="h",
            marker={"color": look.colour, "pattern": HATCH | {"shape": PATTERNS[name]}},
            hovertemplate=f"{label}<br>{look.meaning}<br>{GLOSSARY[name].label}<extra></extra>",
        )
    figure.update_layout(
        barmode="stack",
        height=88,
        bargap=0,
        margin={"l": 0, "r": 8, "t": 30, "b": 24},
        legend={"orientation": "h", "y": 1.1, "yanchor": "bottom", "x": 0, "traceorder": "normal"},
        xaxis={"ticksuffix": " s", "showgrid": False, "zeroline": False, "fixedrange": True, "nticks": 6},
        yaxis={"visible": False, "fixedrange": True},
        uirevision="stages",
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        hovermode="closest",
    )
    return figure


CONFIG = {"displayModeBar": False, "displaylogo": False, "responsive": True}
