"""The charts of a report, as plotly figures.

Colours are written as CSS variables, var(--s0) and the like; the page's script
puts in the values of the light or the dark scheme. A strategy keeps its colour
and dash in every chart, known by its trace's legendgroup.
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable
from dataclasses import dataclass, field

import plotly.graph_objects as go
import plotly.io

from lrmoe.report.data import Report, Run, known, mean

plotly.io.templates.default = "none"

COLOURS = 8  # --s0 .. --s7 in report.css
DASHES = ("solid", "dash", "dot", "dashdot", "longdash")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x", "cross", "star", "pentagon")
LINE_POINTS = 600  # longer runs are averaged to about this many points
HEAT_COLUMNS = 120
HEIGHT = 300


@dataclass
class Chart:
    title: str  # what one sees
    note: str  # what is drawn
    figure: go.Figure
    legend: list[tuple[str, str]] = field(default_factory=list)  # (what, its CSS colour)
    header: list[str] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)  # the numbers, for who cannot see it
    choice: list[str] = field(default_factory=list)  # one trace is shown, chosen by these names
    shown: int = 0  # the one of them at first


@dataclass
class Section:
    title: str
    text: str
    charts: list[Chart]
    items: list[str] = field(default_factory=list)  # said after the charts


def style(index: int) -> dict:
    return {
        "colour": f"var(--s{index % COLOURS})",
        "dash": DASHES[(index + index // COLOURS) % len(DASHES)],
        "symbol": SYMBOLS[(index + index // COLOURS) % len(SYMBOLS)],
    }


def short(value: float) -> float | None:
    return float(f"{value:.5g}") if known(value) else None


def bins(values: list[float], most: int) -> list[float]:
    """Means of equal parts, at most `most` of them."""
    size = math.ceil(len(values) / most)
    return (
        values if size <= 1 else [mean(values[i : i + size]) for i in range(0, len(values), size)]
    )


def smooth(values: list[float], window: int) -> list[float]:
    """Mean of the `window` steps around each; fewer at the ends."""
    half = window // 2
    return [mean(values[max(0, i - half) : i + half + 1]) for i in range(len(values))]


def window_of(runs: list[Run]) -> int:
    longest = max(len(r.records) for r in runs)
    return max(1, longest // 40) | 1


def layout(x: str, y: str, **extra) -> dict:
    axis = {
        "gridcolor": "var(--grid)",
        "linecolor": "var(--grid)",
        "zerolinecolor": "var(--grid)",
        "automargin": True,
        "title": {"standoff": 8},
    }
    layout = {
        "height": HEIGHT,
        "margin": {"l": 8, "r": 12, "t": 10, "b": 8},
        "showlegend": False,
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {
            "family": "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif",
            "size": 12,
            "color": "var(--muted)",
        },
        "hoverlabel": {
            "bgcolor": "var(--card)",
            "bordercolor": "var(--line)",
            "font": {"color": "var(--ink)"},
            "namelength": -1,
        },
        "xaxis": {**axis, "title": {"text": x, "standoff": 8}},
        "yaxis": {**axis, "title": {"text": y, "standoff": 8}},
    }
    for key, value in extra.items():
        layout[key] = {**layout.get(key, {}), **value} if isinstance(value, dict) else value
    return layout


def line(index: int, run: Run, x: list, y: list, hover: str, markers: bool = False) -> go.Scatter:
    look = style(index)
    return go.Scatter(
        x=[short(v) for v in x],
        y=[short(v) for v in y],
        name=html.escape(run.name),
        legendgroup=run.name,
        mode="lines+markers" if markers else "lines",
        connectgaps=markers,
        hovertemplate=hover,
        line={"color": look["colour"], "dash": look["dash"], "width": 2},
        marker={"color": look["colour"], "symbol": look["symbol"], "size": 7},
    )


def with_records(report: Report) -> list[tuple[int, Run]]:
    return [(i, run) for i, run in enumerate(report.runs) if run.records]


def step_chart(
    report: Report,
    key: str,
    y: str,
    note: str,
    title: Callable[[list], str],
    text: Callable[[float], str],
    **axis,
) -> Chart | None:
    """A field against steps, a line per strategy; None where no run has it."""
    runs = [(i, r) for i, r in with_records(report) if any(map(known, r.series(key)))]
    if not runs:
        return None
    window = window_of([r for _, r in runs])
    figure = go.Figure(layout=layout("steps", y, yaxis={"rangemode": "normal", **axis}))
    for index, run in runs:
        x = bins([float(s) for s in run.steps()], LINE_POINTS)
        figure.add_trace(
            line(
                index,
                run,
                x,
                bins(smooth(run.series(key), window), LINE_POINTS),
                "%{y:.4g}<br>step %{x}",
            )
        )
    means = [(run.mean_of(key), run.name) for _, run in runs]
    rows = []
    for _, run in runs:
        values = [v for v in run.series(key) if known(v)]
        rows.append([run.name, text(mean(values)), text(min(values)), text(max(values))])
    smoothed = f" Each point is the mean of {window} steps." if window > 1 else ""
    return Chart(
        title(means),
        note + smoothed,
        figure,
        header=["strategy", "mean", "least", "most"],
        rows=rows,
    )
