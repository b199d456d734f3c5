"""Figures of the rule lab's paper and article tabs. Values come finished from core."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import plotly.graph_objects as go

from pages.ui.kit import palette
from pages.ui.lab.charts import CEILING, GRID, LAW, dress, look

if TYPE_CHECKING:
    from core.lab.alignment import Figure4
    from core.lab.figures import DivergenceCurves, Figure8a, Figure8b


def alignment(found: Figure4, axis: str) -> go.Figure:
    """Net ΔBE over the grid: mean lines in bands of one standard deviation."""
    figure = go.Figure()
    for number, curve in enumerate(found.curves):
        looks = look(number)
        label = "/".join(f"{share:g}" for share in curve.alignment)
        figure.add_scatter(
            x=[*found.grid, *reversed(found.grid)], y=list(curve.band),
            fill="toself", fillcolor=_faint(looks["colour"]), line={"width": 0}, hoverinfo="skip",
            showlegend=False, legendgroup=label, mode="lines",
        )  # fmt: skip
        figure.add_scatter(
            x=list(found.grid), y=list(curve.mean), name=label, legendgroup=label, mode="lines+markers",
            line=looks["line"] | {"width": 2}, marker={"color": looks["colour"], "symbol": looks["symbol"], "size": 8},
            customdata=list(zip(curve.sd, curve.gain, curve.loss, curve.positive, strict=True)),
            hovertemplate=f"{label}<br>{axis} = %{{x:g}}<br>ΔBE %{{y:+.4f}} ± %{{customdata[0]:.4f}}<br>"
            "gain %{customdata[1]:.4f}, loss %{customdata[2]:.4f}<br>above 0 in %{customdata[3]:.0%} of pairs"
            "<extra></extra>",
        )  # fmt: skip
    figure.add_hline(y=0, line={"color": CEILING, "width": 1.5})
    dress(figure, 360, f"f4_{found.kind}", bottom=46)
    figure.update_xaxes(title=axis, tickvals=list(found.grid), showgrid=False, zeroline=False)
    figure.update_yaxes(title="net ΔBE", gridcolor=GRID, zeroline=False)
    return figure


def delta(found: Figure8a) -> go.Figure:
    """Δ against TV."""
    figure = go.Figure()
    for number, curve in enumerate(found.curves):
        looks = look(number)
        figure.add_scatter(
            x=list(found.tv), y=list(curve.delta), name=f"ℓ = {curve.ell:g}", mode="lines",
            line=looks["line"] | {"width": 2.2}, connectgaps=False,
            hovertemplate=f"ℓ = {curve.ell:g}<br>TV %{{x:.3f}}<br>Δ %{{y:.3f}}<extra></extra>",
        )  # fmt: skip
    dress(figure, 340, "f8a", bottom=46)
    figure.update_xaxes(title="TV(p, q)", showgrid=False, zeroline=False, rangemode="tozero")
    figure.update_yaxes(title="Δ", gridcolor=GRID, zeroline=False, rangemode="tozero")
    return figure


def ceiling(found: Figure8b) -> go.Figure:
    """Mixture, ceiling and the ablation's formula against q(x)."""
    figure = go.Figure()
    for label, values, colour, dash in (
        ("mixture ℓp + (1−ℓ)q", found.mixture, palette.BLUE, "solid"),
        ("ceiling min(q, p/ℓ)", found.ceiling, LAW, "solid"),
        ("ablation of §4", found.ablation, palette.ORANGE, "dot"),
    ):
        figure.add_scatter(
            x=list(found.q), y=list(values), name=label, mode="lines",
            line={"color": colour, "dash": dash, "width": 2.4},
            hovertemplate=f"{label}<br>q %{{x:.3f}}<br>emitted %{{y:.3f}}<extra></extra>",
        )  # fmt: skip
    for at, text in ((found.p, "p"), (found.ceiling_at, "p/ℓ"), (found.crossing, "p(1+ℓ)/ℓ")):
        if at <= 1.0:
            figure.add_vline(x=at, line={"color": CEILING, "dash": "dash", "width": 1.5})
            figure.add_annotation(x=at, y=1, yref="paper", text=text, showarrow=False, xanchor="left", yanchor="top",
                                  xshift=4, font={"size": 12})  # fmt: skip
    dress(figure, 340, "f8b", bottom=46)
    figure.update_xaxes(title="draft's q(x)", showgrid=False, zeroline=False, range=[0, 1])
    figure.update_yaxes(title="emitted", gridcolor=GRID, zeroline=False, rangemode="tozero")
    return figure


def divergences(found: DivergenceCurves) -> go.Figure:
    """Both divergences against TV, the draft nearing the target to the left."""
    figure = go.Figure()
    for label, values, number in (("KL_SD, drawn from q", found.kl_sd, 0), ("KL_EAGLE, q's best", found.kl_eagle, 1)):
        looks = look(number)
        figure.add_scatter(
            x=list(found.tv), y=list(values), name=label, mode="lines",
            line=looks["line"] | {"width": 2.4, "shape": "hv" if number else "linear"}, connectgaps=False,
            hovertemplate=f"{label}<br>TV %{{x:.3f}}<br>%{{y:.4f}} nats<extra></extra>",
        )  # fmt: skip
    figure.add_hline(
        y=found.floor, line={"color": CEILING, "dash": "dash", "width": 1.5},
        annotation={"text": "floor log(1/max p_Θ)", "font": {"size": 11}}, annotation_position="bottom right",
    )  # fmt: skip
    dress(figure, 350, "p1", bottom=46)
    figure.update_xaxes(title="TV(p, q): the draft nears the target to the left", showgrid=False, zeroline=False)
    figure.update_yaxes(title="nats", gridcolor=GRID, zeroline=False, rangemode="tozero")
    return figure


def speed_ups(
    drafters: Sequence[tuple[str, Sequence[float], Sequence[float], float, float]], most_ms: float
) -> go.Figure:
    """Speed-up against the draft's cost: (label, costs, speed-ups, own cost, own speed-up) of each drafter."""
    figure = go.Figure()
    for number, (label, costs, ratios, cost, ratio) in enumerate(drafters):
        looks = look(number)
        figure.add_scatter(
            x=list(costs), y=list(ratios), name=label, mode="lines", line=looks["line"] | {"width": 2.2},
            hovertemplate=f"{label}<br>draft %{{x:.2f}} ms<br>%{{y:.3f}} ×<extra></extra>",
        )  # fmt: skip
        figure.add_scatter(
            x=[cost], y=[ratio], mode="markers", showlegend=False,
            marker={"color": looks["colour"], "symbol": looks["symbol"], "size": 14,
                    "line": {"width": 2, "color": CEILING}},
            hovertemplate=f"{label}, chosen<br>draft %{{x:.2f}} ms<br>%{{y:.3f}} ×<extra></extra>",
        )  # fmt: skip
    figure.add_hline(y=1, line={"color": CEILING, "dash": "dash", "width": 1.5})
    dress(figure, 320, "speed_ups", bottom=46)
    figure.update_xaxes(title="draft cost, ms a token", range=[0, most_ms], showgrid=False, zeroline=False)
    figure.update_yaxes(title="speed-up, ×", gridcolor=GRID, zeroline=False, rangemode="tozero")
    return figure


def _faint(colour: str) -> str:
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return f"rgba({red},{green},{blue},.08)"
