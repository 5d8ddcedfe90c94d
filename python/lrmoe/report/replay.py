"""The report of a replay (`lrmoe replay --json FILE`): one HTML file that works offline."""

from __future__ import annotations

import html
import json
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path

from lrmoe.report import units
from lrmoe.report.data import MEMORY_TERMS, InputError, mean

TIMES = ("forward", "backward", "update")


@dataclass
class Strategy:
    """One result of the replay, under the name that charts and tables show."""

    name: str
    result: dict
    records: list = field(default_factory=list)

    @property
    def total(self) -> dict:
        return self.result["total"]

    def per_layer(self, key: str) -> dict[int, float]:
        """Fullest rank over mean of each layer, the mean over steps."""
        found: dict[int, list[float]] = {}
        for layer in self.result["layers"]:
            loads = layer[key]
            whole = sum(loads)
            if whole:
                found.setdefault(layer["layer"], []).append(max(loads) * len(loads) / whole)
        return {layer: mean(values) for layer, values in sorted(found.items())}


@dataclass
class Replay:
    data: dict
    runs: list[Strategy]


def read_replay(path: Path) -> Replay:
    """InputError of one line for a file that is no replay."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise InputError(f"{path}: no JSON: {error}") from error
    if not isinstance(data, dict) or data.get("format") != "lrmoe-replay":
        raise InputError(f"{path}: no replay; name what `lrmoe replay --json FILE` wrote")
    if data.get("version") != 1:
        raise InputError(f"{path}: version {data.get('version')}; this program reads version 1")
    try:
        runs = [Strategy(r["strategy"], r, r["layers"]) for r in data["results"]]
        for run in runs:
            run.per_layer("forward_load")
            [run.total["memory"][t] for t in MEMORY_TERMS]
            [run.total[f"{t}_seconds"] for t in TIMES]
    except (KeyError, TypeError) as error:
        raise InputError(f"{path}: {error} is missing or not what it should be") from error
    if not runs:
        raise InputError(f"{path}: no strategy took part")
    return Replay(data, runs)


def _load_chart(replay: Replay, key: str, way: str):
    import plotly.graph_objects as go

    from lrmoe.report.charts import Chart, layout, style

    figure = go.Figure(layout=layout("MoE layer", "fullest rank / mean"))
    rows, means = [], []
    for index, run in enumerate(replay.runs):
        values = run.per_layer(key)
        look = style(index)
        figure.add_trace(
            go.Scatter(
                x=list(values),
                y=[round(v, 5) for v in values.values()],
                name=html.escape(run.name),
                legendgroup=run.name,
                mode="lines+markers",
                line={"color": look["colour"], "dash": look["dash"], "width": 2},
                marker={"color": look["colour"], "symbol": look["symbol"], "size": 6},
                hovertemplate="layer %{x}: %{y:.4f} × the mean",
            )
        )
        if values:
            means.append((mean(list(values.values())), run.name))
            rows.append([run.name, *(f"{v:.4f}" for v in values.values()), f"{means[-1][0]:.4f}"])
    layers = list(replay.runs[0].per_layer(key))
    best = min(means) if means else (1.0, "")
    return Chart(
        f"{way.capitalize()}: {best[1]} is the most even, {best[0]:.4f} × the mean on average",
        f"Pairs on the fullest rank over the mean, {way} pass; 1 is even. Mean over the steps.",
        figure,
        header=["strategy", *(f"layer {n}" for n in layers), "mean"],
        rows=rows,
    )


def _stack(replay: Replay, title: str, note: str, parts: list, values: list, text, factor, axis):
    from lrmoe.report.bars import _bars
    from lrmoe.report.charts import Chart

    figure = _bars(replay, parts, values, text, axis, factor)
    rows = [
        [run.name, *(text(v[key]) for key, _, _ in parts), text(sum(v[key] for key, _, _ in parts))]
        for run, v in zip(replay.runs, values)
    ]
    return Chart(
        title,
        note,
        figure,
        [(name, colour) for _, name, colour in parts],
        header=["strategy", *(name for _, name, _ in parts), "all"],
        rows=rows,
    )


def _time_chart(replay: Replay):
    steps = max(int(replay.data["trace"]["steps"]), 1)
    values = [{t: r.total[f"{t}_seconds"] / steps for t in TIMES} for r in replay.runs]
    least = min(zip((sum(v.values()) for v in values), (r.name for r in replay.runs)))
    return _stack(
        replay,
        f"{least[1]} takes the least time, {units.seconds(least[0])} a step",
        "Modelled seconds of the MoE layers a step, by phase.",
        [(t, t, f"var(--t{i})") for i, t in enumerate(TIMES)],
        values,
        units.seconds,
        1e3,
        "ms a step",
    )


def _memory_chart(replay: Replay):
    values = [{t: r.total["memory"][t] for t in MEMORY_TERMS} for r in replay.runs]
    least = min((r.total["memory_subtotal"], r.name) for r in replay.runs)
    return _stack(
        replay,
        f"{least[1]} needs the least memory, {units.memory(least[0])} without workspace",
        f"Fullest rank: weights, gradients and activations of {replay.data['layers_in_flight']} "
        "MoE layers in flight, buffers and workspace of the layer that needs most.",
        [(t, t, f"var(--t{i})") for i, t in enumerate(MEMORY_TERMS)],
        values,
        units.memory,
        2.0**-30,
        "GiB",
    )


def _table(replay: Replay) -> str:
    from lrmoe.report.page import _table as table

    rows = []
    for run in replay.runs:
        total = run.total
        against = total["against"]

        def ratio(base: str, key: str) -> str:
            value = against.get(base, {}).get(key)
            return "–" if value is None else f"{value:.3f}"

        rows.append(
            [
                run.name,
                str(run.result["slots"]),
                f"{total['imbalance_forward']:.4f}",
                f"{total['imbalance_backward']:.4f}",
                units.share(total["kept_pairs"] / max(total["routed_pairs"], 1)),
                units.count(total["dropped_pairs"]),
                units.seconds(total["seconds"]),
                ratio("fixed", "seconds"),
                ratio("symi", "seconds"),
                units.memory(total["memory_subtotal"]),
                ratio("fixed", "memory"),
            ]
        )
    header = [
        "Strategy",
        "slots",
        "forward<small>max / mean</small>",
        "backward<small>max / mean</small>",
        "kept",
        "dropped",
        "MoE time",
        "<small>to fixed</small>",
        "<small>to symi</small>",
        "memory",
        "<small>to fixed</small>",
    ]
    return f'<div class="card">{table(header, rows, "Strategies")}</div>'


def _notes(replay: Replay) -> list[str]:
    found: dict[str, int] = {}
    for run in replay.runs:
        for layer in run.result["layers"]:
            for note in layer.get("notes", []):
                text = f"{run.name}: {note.split(':')[0]}"
                found[text] = found.get(text, 0) + 1
    return [f"{text} ({count} layers)" for text, count in list(found.items())[:12]]


def replay_page(replay: Replay) -> str:
    from lrmoe.report.charts import Section
    from lrmoe.report.page import _strategies, document, render

    data, trace = replay.data, replay.data["trace"]
    sections = [
        Section(
            "Load of the ranks",
            "",
            [
                _load_chart(replay, "forward_load", "forward"),
                _load_chart(replay, "backward_load", "backward"),
            ],
        ),
        Section("Modelled time", "", [_time_chart(replay)]),
        Section("Memory", "", [_memory_chart(replay)], _notes(replay)),
    ]
    figures_html, figures = render(sections)
    scores = (
        "the trace’s scores" if trace["scores"] == "trace" else "gates (the trace has no scores)"
    )
    body = f"""{_table(replay)}
{_strategies(replay)}
<noscript><p class="card note">The charts need JavaScript; their numbers do not.</p></noscript>
{figures_html}
<section><h2>What was replayed</h2><div class="card"><dl>
<dt>Trace</dt><dd>{html.escape(str(trace["file"]))}: {trace["layers"]} layers, {trace["steps"]}
 steps, {trace["experts"]} experts, top {trace["top_k"]}</dd>
<dt>Tokens</dt><dd>{units.count(data["tokens"])} a step, each standing for
 {units.amount(data["scale"])}</dd>
<dt>Placement</dt><dd>{html.escape(data["placement"])}; pairs selected by {scores}</dd>
<dt>Time</dt><dd>modelled by profile {html.escape(data["profile"])}; nothing was run</dd>
</dl></div></section>"""
    return document(
        title=f"{data['model']} on {data['ranks']} ranks",
        kind="replay",
        eyebrow=f"virtual:{data['profile']}",
        setting=f"{Path(str(trace['file']).strip(chr(39))).name}, {len(replay.runs)} strategies",
        body=body,
        figures=figures,
    )


def write_replay(path: Path, output: Path | None = None) -> Path:
    """Reads the replay, writes its HTML whole or not at all: beside it, or to `output`."""
    replay = read_replay(path)
    try:
        text = replay_page(replay)
    except ModuleNotFoundError as error:
        raise InputError(
            f"{error.name} is missing in {sys.executable}: install what python/requirements.txt"
            " names"
        ) from error
    target = output or path.with_suffix(".html")
    partial = target.with_name(f".{target.name}.partial")
    partial.write_text(text, encoding="utf-8")
    os.replace(partial, target)
    return target
