"""Compare's figures. ``core`` computes all values; runs differ in letter, symbol and dash as well as in colour."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from core.records import Summary
from core.results.comparison import measured, scaled
from core.results.glossary import GLOSSARY
from core.results.traces import Curve, Gap, stages_per_token
from pages.ui.compare.metrics import PER_PROMPT
from pages.ui.kit import numbers, palette
from pages.ui.kit.charts import HATCH, PATTERNS
from pages.ui.kit.sides import Side

CLEAR = "rgba(0,0,0,0)"
GRID = "rgba(128,140,152,.25)"
AXIS_LINE = "rgba(128,140,152,.6)"
LINE_HEIGHT = 34
"""Height of a bar's line, in pixels."""

SPELT_OUT = 4
"""Number of runs above which the legend shows letters alone, explained in the tables above."""

Drawn = tuple[Side, Summary]


def parallel(drawn: Sequence[Drawn], ratios: Sequence[float | None]) -> go.Figure | None:
    """Parallel axes: one axis per metric, one line per run, better values higher; a line has a gap if its run has no
    value. None with fewer than two axes on which two runs have a value."""
    figure = go.Figure()
    axes: dict[str, list[float | None]] = {"speed_up": list(ratios)}
    axes |= {name: [measured(name, summary) for _, summary in drawn] for name in PER_PROMPT}
    axes = {name: found for name, found in axes.items() if len(found) - found.count(None) > 1}
    if len(axes) < 2:
        return None
    places = {name: scaled(name, found) for name, found in axes.items()}
    for number, (side, _) in enumerate(drawn):
        figure.add_scatter(
            x=list(range(len(axes))),
            y=[places[name][number] for name in axes],
            customdata=[[GLOSSARY[name].label, numbers.metric(name, found[number])] for name, found in axes.items()],
            hovertemplate=f"{side.name}<br>%{{customdata[0]}}: %{{customdata[1]}}<extra></extra>",
            **_line(side, len(drawn), size=9),
        )
    for place, (name, found) in enumerate(axes.items()):
        known = sorted(each for each in found if each is not None)
        ends = known[::-1] if GLOSSARY[name].better == "lower" else known
        figure.add_shape(
            type="line", x0=place, x1=place, y0=0, y1=1, line={"color": AXIS_LINE, "width": 1}, layer="below"
        )
        if known[0] == known[-1]:
            figure.add_annotation(
                x=place, y=0.5, text=numbers.metric(name, known[0]), **_tick("middle", xshift=8, left=True)
            )
            continue
        figure.add_annotation(x=place, y=1, text=numbers.metric(name, ends[-1]), **_tick("bottom", yshift=8))
        figure.add_annotation(x=place, y=0, text=numbers.metric(name, ends[0]), **_tick("top", yshift=-8))
    titles = [_wrapped(GLOSSARY[name].label) for name in axes]
    _dress(figure, 330, "parallel", top=62)
    figure.update_xaxes(
        tickvals=list(range(len(axes))), ticktext=titles, showgrid=False, side="bottom", range=[-0.4, len(axes) - 0.6]
    )
    figure.update_yaxes(visible=False, range=[-0.16, 1.16])
    return figure


def stages(drawn: Sequence[Drawn]) -> go.Figure:
    """Stage times per committed token, one stacked bar per run."""
    figure = go.Figure()
    per_token = [stages_per_token(summary) for _, summary in drawn]
    for name, look in palette.STAGES.items():
        figure.add_bar(
            x=[found[name] for found in per_token],
            y=[_name(side, len(drawn)) for side, _ in drawn],
            name=look.label,
            orientation="h",
            marker={"color": look.colour, "pattern": HATCH | {"shape": PATTERNS[name]}},
            customdata=[
                [side.name, numbers.seconds(found[name])] for (side, _), found in zip(drawn, per_token, strict=True)
            ],
            hovertemplate=f"%{{customdata[0]}}<br>{look.label}: %{{customdata[1]}} per token<br>{look.meaning}"
            "<extra></extra>",
        )
    _dress(figure, 96 + LINE_HEIGHT * len(drawn), "stages_per_token", bottom=44)
    figure.update_layout(barmode="stack", bargap=0.3)
    figure.update_xaxes(title="time per committed token", tickformat="~s", ticksuffix="s", zeroline=False)
    figure.update_yaxes(autorange="reversed", automargin=True, showgrid=False)
    return figure


def acceptance(drawn: Sequence[Drawn]) -> go.Figure | None:
    """Acceptance by position, both definitions side by side. None if nothing was drafted."""
    figure = make_subplots(
        cols=2, shared_yaxes=True, horizontal_spacing=0.05, subplot_titles=["unconditional", "conditional"]
    )
    deepest = max((len(summary.acceptance_unconditional) for _, summary in drawn), default=0)
    if not deepest:
        return None
    for side, summary in drawn:
        for column, name in enumerate(("acceptance_unconditional", "acceptance_conditional"), start=1):
            found = getattr(summary, name)
            if not found:
                continue
            figure.add_scatter(
                x=list(range(1, len(found) + 1)),
                y=list(found),
                legendgroup=side.mark.letter,
                showlegend=column == 1,
                customdata=[numbers.rate(each) for each in found],
                hovertemplate=f"{side.name}<br>position %{{x}}: %{{customdata}}<extra></extra>",
                row=1,
                col=column,
                **_line(side, len(drawn)),
            )
    figure.update_annotations(font={"size": 12})
    _dress(figure, 330, "acceptance", bottom=44, top=72)
    figure.update_xaxes(title="position in the draft", dtick=max(1, round(deepest / 8)), showgrid=False)
    figure.update_yaxes(range=[-0.03, 1.06], tickformat=".0%", gridcolor=GRID, zeroline=False)
    return figure


def gaps(drawn: Sequence[tuple[Side, Sequence[Gap]]]) -> go.Figure:
    """Wait before each burst, at the number of its first token; tokens between two bars were emitted at once."""
    figure = make_subplots(rows=len(drawn), shared_xaxes=True, shared_yaxes="all", vertical_spacing=0.3 / len(drawn))  # type: ignore[arg-type]
    for row, (side, found) in enumerate(drawn, start=1):
        figure.add_bar(
            x=[gap.first for gap in found],
            y=[gap.gap_s for gap in found],
            width=_widths(found),
            name=side.name,
            showlegend=False,
            marker={"color": side.mark.colour, "line": {"width": 0}},
            customdata=[[numbers.seconds(gap.gap_s), _burst(gap)] for gap in found],
            hovertemplate=f"{side.name}<br>token %{{x}}: after %{{customdata[0]}}<br>%{{customdata[1]}}<extra></extra>",
            row=row,
            col=1,
        )
        figure.add_annotation(
            text=side.name, x=0, y=1, xref="x domain", yref="y domain", row=row, col=1, showarrow=False,
            xanchor="left", yanchor="bottom", font={"size": 11},
        )  # fmt: skip
    _dress(figure, 70 + 84 * len(drawn), "gaps", bottom=40, top=22)
    figure.update_layout(bargap=0, showlegend=False)
    figure.update_yaxes(tickformat="~s", ticksuffix="s", nticks=3, gridcolor=GRID, zeroline=False, rangemode="tozero")
    figure.update_xaxes(showgrid=False, zeroline=False)
    figure.update_xaxes(title="token", row=len(drawn), col=1)
    return figure


def over_time(drawn: Sequence[tuple[Side, Curve]]) -> go.Figure:
    """Tokens emitted by each moment since the request was accepted."""
    figure = go.Figure()
    for side, curve in drawn:
        figure.add_scatter(
            x=list(curve.seconds),
            y=list(curve.tokens),
            hovertemplate=f"{side.name}<br>%{{y}} tokens after %{{x:.3~s}}s<extra></extra>",
            **_line(side, len(drawn), markers=False, step=True),
        )
        figure.add_annotation(
            x=curve.seconds[-1], y=curve.tokens[-1], text=side.mark.letter, showarrow=False, xshift=9, font={"size": 12}
        )
    _dress(figure, 320, "over_time", bottom=44)
    figure.update_xaxes(title="seconds since the request", gridcolor=GRID, zeroline=False, rangemode="tozero")
    figure.update_yaxes(title="tokens", gridcolor=GRID, zeroline=False, rangemode="tozero")
    return figure


def _name(side: Side, runs: int) -> str:
    return side.name if runs <= SPELT_OUT else side.mark.letter


def _line(side: Side, runs: int, *, size: int = 8, markers: bool = True, step: bool = False) -> dict[str, Any]:
    mark = side.mark
    return {
        "name": _name(side, runs),
        "mode": "lines+markers" if markers else "lines",
        "line": {"color": mark.colour, "dash": mark.dash, "width": 2, "shape": "hv" if step else "linear"},
        "marker": {"color": mark.colour, "symbol": mark.symbol, "size": size},
        "connectgaps": False,
    }


def _tick(yanchor: str, xshift: int = 0, yshift: int = 0, left: bool = False) -> dict[str, Any]:
    anchor = "left" if left else "center"
    return {
        "showarrow": False, "yanchor": yanchor, "xanchor": anchor, "xshift": xshift, "yshift": yshift,
        "font": {"size": 11},
    }  # fmt: skip


def _burst(gap: Gap) -> str:
    size = "1 token" if gap.size == 1 else f"{gap.size} tokens at once"
    return size if gap.merged == 1 else f"{size}; the longest wait of {gap.merged} bursts"


def _widths(found: Sequence[Gap]) -> float:
    """Width of the bars: one token, or more if bars are merged bursts, so that they stay visible."""
    return max((2.0 * gap.merged for gap in found if gap.merged > 1), default=0.8)


def _wrapped(label: str) -> str:
    """A long label on two lines."""
    words = label.split()
    half = -(-len(words) // 2)
    return label if len(label) < 14 else " ".join(words[:half]) + "<br>" + " ".join(words[half:])


def _dress(figure: go.Figure, height: int, revision: str, *, top: int = 48, bottom: int = 24) -> None:
    figure.update_layout(
        height=height,
        margin={"l": 0, "r": 14, "t": top, "b": bottom},
        legend={
            "orientation": "h",
            "y": 1,
            "yanchor": "top",
            "yref": "container",
            "x": 0,
            "xref": "container",
            "traceorder": "normal",
        },
        paper_bgcolor=CLEAR,
        plot_bgcolor=CLEAR,
        hovermode="closest",
        dragmode=False,
        uirevision=revision,
    )
