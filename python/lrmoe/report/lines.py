"""The charts over steps or time: losses, balance between ranks, what was left out."""

from __future__ import annotations

import html
import math

import plotly.graph_objects as go

from lrmoe.report import units, words
from lrmoe.report.charts import (
    HEAT_COLUMNS,
    LINE_POINTS,
    Chart,
    Section,
    bins,
    layout,
    line,
    short,
    smooth,
    step_chart,
    window_of,
    with_records,
)
from lrmoe.report.data import Report, Run, known, mean

NOTES = 4  # of a strategy's plans


def _cumulative(run: Run) -> list[float]:
    sums, so_far = [], 0.0
    for value in run.series("moe_seconds"):
        so_far += value if known(value) else 0.0
        sums.append(so_far)
    return sums


def _time_axis(report: Report) -> tuple[float, str]:
    """(factor, unit) that suits the longest run."""
    longest = max((sums[-1] for r in report.runs if (sums := _cumulative(r))), default=0.0)
    return (1e3, "ms") if 0 < longest < 0.5 else (1 / 3600, "h") if longest > 20000 else (1.0, "s")


def _loss_range(lines: list[tuple[list, list]], target: float) -> tuple[list[float], bool]:
    """Leaves a steep start above the picture, so that the strategies can be told
    apart; says whether it did."""
    everything = [v for _, y in lines for v in y if known(v)]
    late = [v for _, y in lines for v in y[len(y) // 4 :] if known(v)] or everything
    low, high = min(late), max(late)
    if known(target):
        low, high = min(low, target), max(high, target)
    gap = (high - low) or 0.1
    return [low - 0.08 * gap, high + 0.06 * gap], max(everything) > high + 0.06 * gap


def loss(report: Report) -> Section:
    return Section("Loss", "", _loss_charts(report, True) + _loss_charts(report, False))


def _loss_charts(report: Report, validation: bool) -> list[Chart]:
    """The same losses against steps and against MoE time."""
    runs = with_records(report)
    key = "validation_loss" if validation else "loss"
    what = "Validation loss" if validation else "Training loss"
    window = 1 if validation else window_of([r for _, r in runs])
    factor, unit = _time_axis(report)
    timed = any(known(r.sum_of("moe_seconds")) and r.sum_of("moe_seconds") > 0 for _, r in runs)
    charts = []
    for by_time in (False, True) if timed else (False,):
        lines = []
        for _, run in runs:
            x = (
                [s * factor for s in _cumulative(run)]
                if by_time
                else [float(s) for s in run.steps()]
            )
            y = run.series(key)
            if validation:
                points = [(a, b) for a, b in zip(x, y) if known(b)]
                lines.append(([a for a, _ in points], [b for _, b in points]))
            else:
                lines.append((bins(x, LINE_POINTS), bins(smooth(y, window), LINE_POINTS)))
        if not any(y for _, y in lines):
            return []
        x_title = f"MoE time, {unit} ({words.clock_kind(report)})" if by_time else "steps"
        target = report.target if validation else math.nan
        span, cut = _loss_range(lines, target)
        figure = go.Figure(
            layout=layout(x_title, "cross-entropy, nats per token", yaxis={"range": span})
        )
        hover = f"{what.lower()} %{{y:.4f}}<br>" + (
            f"after %{{x:.4g}} {unit}" if by_time else "step %{x}"
        )
        for (index, run), (x, y) in zip(runs, lines):
            figure.add_trace(line(index, run, x, y, hover, markers=validation))
        if known(target):
            figure.add_hline(
                y=target,
                line={"color": "var(--muted)", "dash": "dot", "width": 1.5},
                annotation={
                    "text": f"target {target:.4g}",
                    "x": 0,
                    "xanchor": "left",
                    "y": target,
                    "yanchor": "top",
                },
            )
        against = (
            f"the time that the MoE layers took ({words.clock_name(report)})"
            if by_time
            else "steps"
        )
        note = f"{what} against {against}"
        note += "." if window == 1 else f"; each point is the mean of {window} steps."
        note += " The steep start lies above the picture." if cut else ""
        charts.append(Chart(_loss_title(report, runs, lines, what, by_time, unit), note, figure))
    charts[0].header = ["strategy", "first", "lowest", "last"]
    for (_, run), (_, means) in zip(runs, lines):
        y = [v for v in run.series(key) if known(v)]
        row = [units.loss(v) for v in (y[0], min(y), y[-1])] if y else ["–"] * 3
        charts[0].rows.append([run.name, *row])
        if window > 1:
            charts[0].rows[-1].append(units.loss(means[-1]) if means else "–")
    if window > 1:
        charts[0].header.append(f"last, mean of {window // 2 + 1}")
    if len(charts) > 1:
        charts[1].header = ["strategy", f"MoE time, {unit}", "last"]
        charts[1].rows = [
            [r.name, units.amount(x[-1]), units.loss(y[-1])] if y else [r.name, "–", "–"]
            for (_, r), (x, y) in zip(runs, lines)
        ]
    return charts


def _loss_title(report: Report, runs, lines, what: str, by_time: bool, unit: str) -> str:
    ends = [(y[-1], x[-1], run.name) for (_, run), (x, y) in zip(runs, lines) if y and known(y[-1])]
    if not ends:
        return what
    if by_time and what == "Validation loss" and report.has_target():
        # Where the comparison says it got there, which may lie between two points.
        done = [(r.figure("moe_seconds"), r.name) for _, r in runs if report.reached(r)]
        if done:
            time, name = min(done)
            return f"{name} is first at the target, after {units.seconds(time)} of MoE time"
    value, x, name = min(ends)
    where = (
        f"after {units.amount(x)} {unit} of MoE time"
        if by_time
        else f"after {units.count(x)} steps"
    )
    if len(ends) == 1:
        return f"{what}: {units.loss(value)} {where}"
    return f"{what} ends lowest with {name}: {units.loss(value)} {where}"


def balance(report: Report) -> Section:
    charts = []
    for way in ("forward", "backward"):

        def title(means: list, way: str = way) -> str:
            worst, name = max(means)
            least, best = min(means)
            seen = f"{way.capitalize()}: the fullest rank holds {worst:.2f} × the mean with {name}"
            return seen + (f", {least:.2f} × with {best}" if len(means) > 1 else "")

        chart = step_chart(
            report,
            f"imbalance_{way}",
            "fullest rank / mean",
            f"Pairs of the fullest rank over the ranks' mean, {way} pass, all layers; 1 is even.",
            title,
            lambda v: f"{v:.3f}",
        )
        charts += [chart] if chart else []
    for way in ("forward", "backward"):
        chart = _heat_map(report, way)
        charts += [chart] if chart else []
    if not charts:
        return Section("Balance between ranks", "", [])
    return Section(
        "Balance between ranks",
        "Everyone waits for the fullest rank: 1 means that no one waits.",
        charts,
    )


def _heat_map(report: Report, way: str) -> Chart | None:
    key = f"imbalance_{way}"
    runs = [(i, r) for i, r in with_records(report) if any(r.layer_series(key))]
    if not runs:
        return None
    grids = []
    for _, run in runs:
        layers = [str(n) for n in run.layer_names()]
        rows = run.layer_series(key)
        by_layer = [
            [row[i] if i < len(row) else math.nan for row in rows] for i in range(len(layers))
        ]
        grids.append(
            (
                layers,
                bins([float(s) for s in run.steps()], HEAT_COLUMNS),
                [bins(v, HEAT_COLUMNS) for v in by_layer],
            )
        )
    everything = sorted(v for _, _, z in grids for row in z for v in row if known(v))
    if not everything:
        return None
    top = max(everything[int(0.99 * (len(everything) - 1))], 1.05)
    most = max(len(layers) for layers, _, _ in grids)
    figure = go.Figure(
        layout=layout(
            "steps",
            "layer",
            height=max(200, 90 + 18 * min(most, 40)),
            yaxis={"type": "category", "showgrid": False},
            xaxis={"showgrid": False},
        )
    )
    averages = [[mean(row) for row in z] for _, _, z in grids]
    shown = max(range(len(runs)), key=lambda i: max(filter(known, averages[i]), default=0))
    for place, ((_, run), (layers, x, z)) in enumerate(zip(runs, grids)):
        figure.add_trace(
            go.Heatmap(
                x=[short(v) for v in x],
                y=layers,
                z=[[short(v) for v in row] for row in z],
                zmin=1,
                zmax=short(top),
                colorscale="Cividis",
                name=html.escape(run.name),
                visible=place == shown,
                colorbar={
                    "title": {"text": "× mean"},
                    "thickness": 10,
                    "outlinewidth": 0,
                    "len": 1,
                },
                hovertemplate="layer %{y}, step %{x}: %{z:.3f} × the mean<extra></extra>",
            )
        )
    worst, layer = max((v, layer) for layer, v in zip(grids[shown][0], averages[shown]) if known(v))
    name = runs[shown][1].name
    names = max((layers for layers, _, _ in grids), key=len)
    return Chart(
        f"{way.capitalize()}, layer by layer: layer {layer} with {name} is the most uneven, "
        f"{worst:.2f} × on average",
        f"Fullest rank over mean, {way} pass; brighter is less even. "
        "One colour scale for all strategies.",
        figure,
        header=["strategy", *(f"layer {n}" for n in names)],
        rows=[
            [run.name, *(f"{v:.2f}" if known(v) else "–" for v in row)]
            for (_, run), row in zip(runs, averages)
        ],
        choice=[run.name for _, run in runs],
        shown=shown,
    )


def _kept_title(means: list[tuple[float, str]]) -> str:
    least, name = min(means)
    if len(means) == 1:
        return f"The backward pass works on {units.share(least)} of the routed pairs"
    return f"{name} keeps the fewest pairs for the backward pass: {units.share(least)} on average"


def _noise_title(means: list[tuple[float, str]]) -> str:
    most, name = max(means)
    noise = "noise" if len(means) == 1 else "the most noise"
    return f"{name} pays with {noise}: added variance {units.amount(most)} on average"


def left_out(report: Report) -> Section:
    text, charts = [], []
    kept = [r.mean_of("retained_ratio") for _, r in with_records(report)]
    if any(known(v) and v < 1 for v in kept):
        charts.append(
            step_chart(
                report,
                "retained_ratio",
                "kept / routed",
                "Share of the routed pairs that the backward pass works on.",
                _kept_title,
                units.share,
                tickformat=".0%",
                rangemode="tozero",
            )
        )
    elif any(map(known, kept)):
        text.append(
            ("The" if report.single else "Every strategy’s")
            + " backward pass worked on all routed pairs."
        )
    variance = [r.mean_of("added_variance") for _, r in with_records(report)]
    if any(known(v) and v > 0 for v in variance):
        charts.append(
            step_chart(
                report,
                "added_variance",
                "added / without sampling",
                "Variance that sampling adds to the expert gradients, over their second moment; "
                "0 is none.",
                _noise_title,
                units.amount,
                rangemode="tozero",
            )
        )
    elif any(map(known, variance)):
        text.append("Nothing was added to the gradients’ variance.")
    dropped = [r.sum_of("dropped_pairs") for _, r in with_records(report)]
    if any(known(v) and v > 0 for v in dropped):

        def title(means: list) -> str:
            sums = {r.name: (r.sum_of("dropped_pairs"), r.routed_pairs()) for r in report.runs}
            name = max(means)[1]
            lost, routed = sums[name]
            part = f", {units.share(lost / routed)} of all" if known(routed) and routed > 0 else ""
            most = "drops the most pairs" if len(means) > 1 else "drops pairs"
            return f"{name} {most}: {units.count(lost)}{part}"

        charts.append(
            step_chart(
                report,
                "dropped_pairs",
                "pairs a step",
                "Pairs of token and expert that the forward pass left out, for want of capacity.",
                title,
                units.count,
                rangemode="tozero",
            )
        )
    elif any(map(known, dropped)):
        text.append("No pair was dropped in the forward pass.")
    items = []
    for run in report.runs:
        notes = run.plan_notes()
        whole = units.count(run.figure("steps"))
        for note, steps in notes[:NOTES]:
            items.append(f"{run.name}, in {units.count(steps)} of {whole} steps: {note}")
        if len(notes) > NOTES:
            items.append(f"{run.name}: {len(notes) - NOTES} more notes in its metrics.jsonl")
    return Section("What was left out", " ".join(text), [c for c in charts if c], items)
