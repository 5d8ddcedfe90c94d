"""The charts of a report that sum a run up: time and memory as bars, gradient audits."""

from __future__ import annotations

import html
import math
from collections.abc import Callable

import plotly.graph_objects as go

from lrmoe.report import units, words
from lrmoe.report.charts import (
    DASHES,
    SYMBOLS,
    Chart,
    Section,
    layout,
    line,
    short,
    with_records,
)
from lrmoe.report.data import (
    AUDIT_MEASURES,
    AUDIT_PARTS,
    MEMORY_TERMS,
    TIME_PARTS,
    Report,
    known,
    largest,
    mean,
)


def _bars(
    report: Report,
    parts: list[tuple[str, str, str]],
    values: list[dict[str, float]],
    text: Callable[[float], str],
    axis: str,
    factor: float,
    thin: tuple[str, str, str] | None = None,
) -> go.Figure:
    """Stacked bars, one per strategy, its name and total above it. `parts` are
    (key, title, colour); `thin` is drawn as a narrow bar below the stack."""
    shown = [i for i, v in enumerate(values) if any(known(x) for x in v.values())]
    # A row is as high as its name, its bar and what is below the bar.
    figure = go.Figure(
        layout=layout(
            axis,
            "",
            height=70 + (60 if thin else 50) * len(shown),
            barmode="overlay",
            bargap=0,
            hovermode="closest",
            yaxis={"visible": False, "range": [len(shown) - 0.5, -0.7], "fixedrange": True},
            xaxis={"rangemode": "tozero"},
        )
    )
    starts = [0.0] * len(shown)
    for key, title, colour in parts:
        sizes = [values[i].get(key, math.nan) for i in shown]
        figure.add_trace(
            go.Bar(
                y=list(range(len(shown))),
                x=[short(s * factor) for s in sizes],
                base=[short(s) for s in starts],
                width=0.36,
                orientation="h",
                name=title,
                marker={"color": colour, "line": {"color": "var(--card)", "width": 1}},
                customdata=[
                    [html.escape(report.runs[i].name), text(s)] for i, s in zip(shown, sizes)
                ],
                hovertemplate="%{customdata[0]}<br>" + title + ": %{customdata[1]}<extra></extra>",
            )
        )
        starts = [a + (s * factor if known(s) else 0) for a, s in zip(starts, sizes)]
    if thin:
        key, title, colour = thin
        sizes = [values[i].get(key, math.nan) for i in shown]
        figure.add_trace(
            go.Bar(
                y=[row + 0.26 for row in range(len(shown))],
                x=[short(s * factor) for s in sizes],
                width=0.11,
                orientation="h",
                name=title,
                marker={"color": colour},
                customdata=[
                    [html.escape(report.runs[i].name), text(s)] for i, s in zip(shown, sizes)
                ],
                hovertemplate="%{customdata[0]}<br>" + title + ": %{customdata[1]}<extra></extra>",
            )
        )
    for row, i in enumerate(shown):
        whole = sum(v for key, _, _ in parts if known(v := values[i].get(key, math.nan)))
        figure.add_annotation(
            x=0,
            y=row - 0.4,
            xref="paper",
            xanchor="left",
            yanchor="middle",
            showarrow=False,
            align="left",
            text=f"{html.escape(report.runs[i].name)} · <b>{text(whole)}</b>",
            font={"color": "var(--ink)"},
        )
    return figure


def memory(report: Report) -> Section:
    values = []
    for run in report.runs:
        terms = run.memory_terms()
        values.append(terms or {"peak": run.figure("memory_subtotal")})
    if not any(known(v) and v > 0 for terms in values for v in terms.values()):
        return Section("Memory", "", [])
    present = [t for t in MEMORY_TERMS if any(known(v.get(t, math.nan)) for v in values)]
    present += sorted({t for v in values for t in v} - set(present))
    parts = [
        (t, "peak, not split" if t == "peak" else t.replace("_", " "), f"var(--t{i % 6})")
        for i, t in enumerate(present)
    ]
    unit, size = next(
        (u, s)
        for u, s in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))
        if largest([sum(v.values()) for v in values]) >= s or u == "KiB"
    )
    sums = [(sum(x for x in v.values() if known(x)), r.name) for v, r in zip(values, report.runs)]
    most, least = max(sums), min(sums)
    title = f"The fullest rank's MoE layers need {units.memory(most[0])}"
    if len(sums) > 1 and least[0] < most[0]:
        title = (
            f"{least[1]} needs the least memory, {units.memory(least[0])}; "
            f"{most[1]} the most, {units.memory(most[0])}"
        )
    rows = [
        [r.name, *(units.memory(v.get(key, math.nan)) for key, _, _ in parts), units.memory(s)]
        for r, v, (s, _) in zip(report.runs, values, sums)
    ]
    note = "Bytes of the MoE layers on the fullest rank, at the step that needed most" + (
        ", by term, as the plans count it."
        if present != ["peak"]
        else "; the metrics do not split them by term."
    )
    chart = Chart(
        title,
        note,
        _bars(report, parts, values, units.memory, f"{unit} on the fullest rank", 1 / size),
        [(name, colour) for _, name, colour in parts],
        ["strategy", *(n for _, n, _ in parts), "sum"],
        rows,
    )
    return Section("Memory", "", [chart])


def time(report: Report) -> Section:
    keys = (
        "moe_forward_seconds",
        "moe_backward_seconds",
        "moe_update_seconds",
        "moe_exchange_seconds",
    )
    values = [{k: r.figure(k) for k in keys} for r in report.runs]
    sums = [sum(v for k in keys[:3] if known(v := row[k])) for row in values]
    if not any(sums):
        return Section("Where MoE time goes", "", [])
    parts = [
        (keys[0], "forward", "var(--t0)"),
        (keys[1], "backward", "var(--t2)"),
        (keys[2], "update", "var(--t4)"),
    ]
    thin = (keys[3], "exchange, within forward and backward", "var(--t6)")
    if not any(known(v[keys[3]]) for v in values):
        thin = None
    factor, unit = (
        (1e3, "ms") if max(sums) < 0.5 else (1 / 3600, "h") if max(sums) > 20000 else (1.0, "s")
    )
    at = max(range(len(sums)), key=lambda i: sums[i])
    key, part, _ = max(parts, key=lambda p: values[at][p[0]] if known(values[at][p[0]]) else -1)
    title = (
        f"{part.capitalize()} takes most of {report.runs[at].name}’s MoE time: "
        f"{units.share(values[at][key] / sums[at])} of {units.seconds(sums[at])}"
    )
    rows = []
    for run, row, whole in zip(report.runs, values, sums):
        steps = run.figure("steps")
        rows.append(
            [
                run.name,
                *(units.seconds(row[k]) for k in keys),
                units.seconds(whole),
                units.seconds(whole / steps) if steps else "–",
            ]
        )
    header = ["strategy", "forward", "backward", "update", "exchange (within)"]
    header += ["sum", "sum per step"]
    for part in TIME_PARTS:  # of a virtual clock
        spent = [r.sum_of(part, "parts") for r in report.runs]
        if any(map(known, spent)):
            header.append(part.replace("_", " ") + (" (beside)" if part == "rest" else " (within)"))
            for row, value in zip(rows, spent):
                row.append(units.seconds(value))
    upto = (
        " up to the target, or of all steps where it was not reached"
        if report.has_target()
        else " of all steps"
    )
    chart = Chart(
        title,
        f"MoE seconds{upto}, {words.clock_name(report)}.",
        _bars(
            report,
            parts,
            values,
            units.seconds,
            f"MoE time, {unit} ({words.clock_kind(report)})",
            factor,
            thin,
        ),
        [(n, c) for _, n, c in [*parts, *([thin] if thin else [])]],
        header,
        rows,
    )
    return Section("Where MoE time goes", "", [chart])


def audit(report: Report) -> Section:
    """Gradients against those of all pairs, where steps were audited."""
    runs = [(i, r, r.audits()) for i, r in with_records(report)]
    charts = []
    for measure, y in zip(AUDIT_MEASURES, ("cosine", "norm of difference / norm")):
        figure = go.Figure(layout=layout("steps", y))
        seen, found = [], []
        for place, part in enumerate(AUDIT_PARTS):
            for index, run, audits in runs:
                points = [(s, v[part, measure]) for s, v in audits if (part, measure) in v]
                if not points:
                    continue
                middle = [mean(list(v.values())) for _, v in points]
                name = measure.replace("_", " ")
                trace = line(
                    index,
                    run,
                    [float(s) for s, _ in points],
                    middle,
                    f"{part}, {name} %{{y:.4f}}<br>step %{{x}}",
                    markers=True,
                )
                trace.marker.symbol, trace.line.dash = SYMBOLS[place], DASHES[place]
                trace.error_y = {
                    "type": "data",
                    "symmetric": False,
                    "thickness": 1,
                    "width": 3,
                    "array": [short(max(v.values()) - m) for (_, v), m in zip(points, middle)],
                    "arrayminus": [short(m - min(v.values())) for (_, v), m in zip(points, middle)],
                }
                figure.add_trace(trace)
                seen.append((mean(middle), part, run.name))
                layers = dict.fromkeys(k for _, v in points for k in v if k)
                means = {k: mean([v[k] for _, v in points if k in v]) for k in layers}
                found.append((run.name, part, mean(middle), means))
        if seen:
            worst = min(seen) if measure == "cosine" else max(seen)
            names = list(dict.fromkeys(k for *_, means in found for k in means))
            charts.append(
                Chart(
                    f"{name.capitalize()} against the whole gradient is worst for the {worst[1]} "
                    f"of {worst[2]}: {units.amount(worst[0])} on average",
                    "Mean over layers; the bar goes from the least to the largest layer. Experts: "
                    "circles, solid; router: squares, dashed; dense parts of a layer: diamonds, "
                    "dotted; rest (embedding, last norm, head): triangles.",
                    figure,
                    header=["strategy", "part", "mean", *names],
                    rows=[
                        [
                            run,
                            part,
                            units.amount(m),
                            *(units.amount(v.get(k, math.nan)) for k in names),
                        ]
                        for run, part, m, v in found
                    ],
                )
            )
    if not charts:
        return Section("Gradient audit", "", [])
    return Section(
        "Gradient audit",
        "The gradients of audited steps against those of a backward pass over all pairs: "
        "cosine 1 and error 0 are exact.",
        charts,
    )
