"""The rule lab's own figures. Values come finished from core; tokens enter only through ``figure_token``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import plotly.graph_objects as go

from core.lab.vocabularies import LabPair
from pages.ui.kit import numbers, palette
from pages.ui.kit.charts import HATCH
from pages.ui.lab.tables import figure_token

if TYPE_CHECKING:
    from core.lab.drawing import Drawn, Share
    from core.lab.figures import Figure2, Panel

CLEAR = "rgba(0,0,0,0)"
GRID = "rgba(128,140,152,.25)"
LAW = "#9F6BE0"
"""The paper's purple line, at a lightness that both themes carry."""

CEILING = "#8A939C"
SYMBOLS = (
    "circle",
    "square",
    "diamond",
    "triangle-up",
    "cross",
    "x",
    "star",
    "hexagon",
    "pentagon",
    "bowtie",
    "hourglass",
)
DASHES = ("solid", "dash", "dot", "dashdot")
COLOURS = (palette.BLUE, palette.VERMILLION, palette.GREEN, palette.PURPLE, palette.ORANGE, palette.SKY)


@dataclass(frozen=True, slots=True)
class Point:
    """One setting of a rule: its acceptance mass, its distance, and the text that names it."""

    x: float
    y: float | None
    label: str
    marked: bool = True


@dataclass(frozen=True, slots=True)
class Path:
    """A rule along its parameter; ``here`` is the chosen setting."""

    label: str
    points: tuple[Point, ...]
    here: Point | None = None


def law(found: Figure2, panel: Panel, pair: LabPair, height: int = 300, legend: bool = True) -> go.Figure:
    """p, q, their overlap and what the rule emits, tokens by falling p (the paper's Figure 2)."""
    names = [figure_token(pair.tokens[token]) for token in found.order]
    inside = panel.inside or (True,) * len(names)
    labels = [name if kept else f"{name}<br>∉ A" for name, kept in zip(names, inside, strict=True)]
    places = list(range(len(names)))
    figure = go.Figure()
    for label, values, colour, pattern in (
        ("target p", found.p, palette.BLUE, ""),
        ("draft q", found.q, palette.PURPLE, "/"),
        ("overlap", found.overlap, palette.ORANGE, ""),
    ):
        figure.add_bar(
            x=places, y=list(values), name=label, width=0.8,
            marker={"color": colour, "pattern": HATCH | {"shape": pattern}, "line": {"width": 0}},
            customdata=[[name, numbers.probability(value)] for name, value in zip(names, values, strict=True)],
            hovertemplate=f"%{{customdata[0]}}<br>{label}: %{{customdata[1]}}<extra></extra>",
        )  # fmt: skip
    if panel.ceiling is not None:
        figure.add_scatter(
            x=[at for place in places for at in (place - 0.46, place + 0.46, None)],
            y=[at for level in panel.ceiling for at in (level, level, None)], name="ceiling", mode="lines",
            line={"color": CEILING, "dash": "dash", "width": 2}, connectgaps=False,
            hovertemplate="ceiling: %{y:.3f}<extra></extra>",
        )  # fmt: skip
    figure.add_scatter(
        x=places, y=list(panel.law), name="emitted", mode="lines+markers",
        line={"color": LAW, "width": 2.5}, marker={"color": LAW, "size": 8, "symbol": "diamond"},
        customdata=[[name, numbers.probability(value)] for name, value in zip(names, panel.law, strict=True)],
        hovertemplate="%{customdata[0]}<br>emitted: %{customdata[1]}<extra></extra>",
    )  # fmt: skip
    most = max(*found.p, *found.q, *(value for each in found.panels for value in each.law))
    dress(figure, height, f"law_{panel.title}", legend=legend, bottom=48)
    figure.update_xaxes(automargin=False)
    figure.update_layout(barmode="overlay", bargap=0.2)
    figure.update_xaxes(tickvals=places, ticktext=labels, showgrid=False, zeroline=False)
    figure.update_yaxes(title="probability", range=[0, most * 1.12], gridcolor=GRID, zeroline=False)
    return figure


def trade_off(paths: Sequence[Path], across: str, up: str, revision: str, height: int = 380) -> go.Figure:
    """Acceptance against distance, a line a rule along its parameter; the chosen settings are large."""
    figure = go.Figure()
    for number, path in enumerate(paths):
        looks = look(number)
        drawn = [point for point in path.points if point.y is not None]
        figure.add_scatter(
            x=[point.x for point in drawn], y=[point.y for point in drawn], name=path.label,
            mode="lines+markers" if len(drawn) > 1 else "markers", legendgroup=path.label,
            line=looks["line"] | {"width": 1.8},
            marker={"color": looks["colour"], "symbol": looks["symbol"],
                    "size": [7 if point.marked else 0 for point in drawn]},
            customdata=[point.label for point in drawn],
            hovertemplate=f"{path.label}<br>%{{customdata}}<br>{across}: %{{x:.3f}}<br>{up}: %{{y:.4f}}<extra></extra>",
        )  # fmt: skip
        if path.here is not None and path.here.y is not None:
            figure.add_scatter(
                x=[path.here.x], y=[path.here.y], mode="markers", showlegend=False, legendgroup=path.label,
                marker={"color": looks["colour"], "symbol": looks["symbol"], "size": 15,
                        "line": {"width": 2, "color": CEILING}},
                customdata=[path.here.label],
                hovertemplate=f"{path.label}, chosen<br>%{{customdata}}<br>{across}: %{{x:.3f}}<br>{up}: %{{y:.4f}}"
                "<extra></extra>",
            )  # fmt: skip
    dress(figure, height, revision, bottom=48, legend=len(paths) > 1)
    figure.update_xaxes(title=across, gridcolor=GRID, zeroline=False)
    figure.update_yaxes(title=up, gridcolor=GRID, zeroline=False, rangemode="tozero")
    return figure


def drawn_law(found: Drawn, pair: LabPair) -> go.Figure:
    """Observed shares with their bands beside the exact law."""
    names = [figure_token(token) for token in pair.tokens]
    places = list(range(len(names)))
    figure = go.Figure()
    if all(share.exact is not None for share in found.law):
        figure.add_bar(
            x=places, y=[share.exact for share in found.law], name="exact law", width=0.6,
            marker={"color": palette.SKY, "line": {"width": 0}},
            hovertemplate="exact: %{y:.4f}<extra></extra>",
        )  # fmt: skip
    figure.add_scatter(
        x=places, y=[share.seen for share in found.law], name="drawn, 95 % band", mode="markers",
        marker={"color": palette.VERMILLION, "size": 8, "symbol": "diamond"},
        error_y={
            "type": "data", "symmetric": False, "color": palette.VERMILLION, "thickness": 2, "width": 7,
            "array": [share.high - share.seen for share in found.law],
            "arrayminus": [share.seen - share.low for share in found.law],
        },
        customdata=[[name, band(share)] for name, share in zip(names, found.law, strict=True)],
        hovertemplate="%{customdata[0]}<br>drawn: %{y:.4f}<br>band: %{customdata[1]}<extra></extra>",
    )  # fmt: skip
    dress(figure, 300, "drawn", bottom=40)
    figure.update_xaxes(tickvals=places, ticktext=names, showgrid=False, zeroline=False)
    figure.update_yaxes(title="probability", gridcolor=GRID, zeroline=False, rangemode="tozero")
    return figure


def law_key() -> str:
    """The legend of :func:`law`, for several of them side by side."""
    items = (("target p", palette.BLUE, ""), ("draft q", palette.PURPLE, ""), ("overlap", palette.ORANGE, ""),
             ("emitted", LAW, "sl-thin"), ("ceiling", CEILING, "sl-thin"))  # fmt: skip
    spans = "".join(f'<span><i class="{kind}" style="--key:{colour}"></i>{name}</span>' for name, colour, kind in items)
    return f'<div class="sl-lawkey">{spans}</div>'


def band(share: Share) -> str:
    """A band in words."""
    return f"{share.low:.4f} to {share.high:.4f}"


def look(number: int) -> dict[str, Any]:
    """Colour, symbol and dash of the ``number``-th line."""
    colour = COLOURS[number % len(COLOURS)]
    dash = DASHES[number // len(COLOURS) % len(DASHES)]
    return {"colour": colour, "symbol": SYMBOLS[number % len(SYMBOLS)], "line": {"color": colour, "dash": dash}}


def dress(figure: go.Figure, height: int, revision: str, *, bottom: int = 24, legend: bool = True) -> None:
    """Size, margins, legend above, clear ground."""
    figure.update_layout(
        height=height,
        margin={"l": 0, "r": 14, "t": 14, "b": bottom},
        showlegend=legend,
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.02, "x": 0, "xanchor": "left", "traceorder": "normal"},
        paper_bgcolor=CLEAR,
        plot_bgcolor=CLEAR,
        hovermode="closest",
        dragmode=False,
        uirevision=revision,
    )
    figure.update_xaxes(automargin=True)
    figure.update_yaxes(automargin=True)
