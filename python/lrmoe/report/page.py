"""The page: the words, the table and the charts as one HTML file.

Styles, script, plotly and the numbers are in it, and it asks no network for anything.
"""

from __future__ import annotations

import html
import json
from pathlib import Path

from plotly.offline import get_plotlyjs

from lrmoe.report import bars, lines, verdict, words
from lrmoe.report.charts import Chart, Section, style
from lrmoe.report.data import Report, known

HERE = Path(__file__).parent
# The browser itself keeps the page from loading anything.
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
)


def _mark(index: int) -> str:
    """The strategy's line and symbol, as in the charts."""
    look = style(index)
    dashes = {"dash": "7 4", "dot": "2 3", "dashdot": "7 3 2 3", "longdash": "11 4"}.get(
        look["dash"], ""
    )
    return (
        '<svg class="mark" width="26" height="10" aria-hidden="true">'
        f'<line x1="0" y1="5" x2="26" y2="5" style="stroke:{look["colour"]}" stroke-width="3"'
        f' stroke-dasharray="{dashes}"/></svg>'
    )


def _name(name: str) -> str:
    """May break where a setting begins, so that a narrow column shows it well."""
    return html.escape(name).replace(":", ":<wbr>").replace("=", "=<wbr>").replace("_", "_<wbr>")


def _table(header: list[str], rows: list[list[str]], name: str) -> str:
    """Header cells are HTML already; the rows' cells are texts."""
    head = "".join(f'<th scope="col">{cell}</th>' for cell in header)
    body = "".join(
        f'<tr><th scope="row">{_name(row[0])}</th>'
        + "".join(f"<td>{html.escape(cell)}</td>" for cell in row[1:])
        + "</tr>"
        for row in rows
    )
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{html.escape(name)}">'
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _comparison(report: Report) -> str:
    columns = words.columns(report)
    head = '<th scope="col">Strategy</th>' + "".join(
        f'<th scope="col">{html.escape(c.title)}<small>{html.escape(c.unit)}</small></th>'
        for c in columns
    )
    body = ""
    for i, run in enumerate(report.runs):
        cells = ""
        for column in columns:
            present = [v for v in column.values if known(v)]
            best = (
                column.best and len(present) > 1 and column.values[i] == min(present) < max(present)
            )
            cells += f"<td{' class=best' if best else ''}>{html.escape(column.texts[i])}</td>"
        body += f'<tr><th scope="row">{_mark(i)}{_name(run.name)}</th>{cells}</tr>'
    return (
        '<div class="card scroll" tabindex="0" role="region" aria-label="Comparison">'
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
        + (
            '<p class="muted" style="margin-top:6px">Green: the least of its column.</p>'
            if len(report.runs) > 1
            else ""
        )
    )


def _verdicts(report: Report) -> str:
    base = report.baseline()
    if base is None:
        return ""
    cards = ""
    for i, run in enumerate(report.runs):
        if run is base:
            continue
        found = verdict.verdict(report, run, base)
        facts = "".join(
            f'<li class="{kind}"><b>{label}</b><span>{html.escape(text)}</span></li>'
            for kind, label, texts in (
                ("saved", "Saved", found.saved),
                ("cost", "Cost", found.cost),
                ("same", "Same", found.same),
                ("same", "Note", found.notes),
            )
            for text in texts
        )
        cards += (
            f'<details class="card verdict" open><summary>{_mark(i)}'
            f"<h3>{html.escape(found.summary)}</h3></summary>"
            f'<ul class="facts">{facts}</ul></details>'
        )
    return (
        f"<h2>What each saves and costs against {html.escape(base.name)}</h2>"
        f'<div class="grid verdicts">{cards}</div>'
    )


def _strategies(report: Report) -> str:
    """Shows and hides strategies; the charts' common legend."""
    buttons = "".join(
        f'<button type="button" aria-pressed="true" data-strategy="{html.escape(run.name)}">'
        f"{_mark(i)}{html.escape(run.name)}</button>"
        for i, run in enumerate(report.runs)
        if run.records
    )
    return (
        '<nav class="strategies" aria-label="Show or hide a strategy in the charts">'
        f"{buttons}</nav>"
    )


def _figure(chart: Chart, name: str) -> str:
    """A chart's HTML but for the drawing, which the script puts into `name`."""
    text = f"<h3>{html.escape(chart.title)}</h3><figcaption>{html.escape(chart.note)}</figcaption>"
    if chart.choice:
        options = "".join(
            f"<option{' selected' if i == chart.shown else ''}>{html.escape(choice)}</option>"
            for i, choice in enumerate(chart.choice)
        )
        text += f'<div><select data-chart="{name}" aria-label="Strategy">{options}</select></div>'
    if chart.legend:
        marks = "".join(
            f'<span><i style="background:{colour}"></i>{html.escape(what)}</span>'
            for what, colour in chart.legend
        )
        text += f'<div class="legend">{marks}</div>'
    label = html.escape(f"{chart.title}. {chart.note}")
    text += (
        f'<div class="plot" id="{name}" style="height:{chart.figure.layout.height}px"'
        f' role="img" aria-label="{label}"></div>'
    )
    if chart.rows:
        table = _table([html.escape(h) for h in chart.header], chart.rows, chart.title)
        text += f"<details><summary>The numbers</summary>{table}</details>"
    return f'<figure class="card">{text}</figure>'


def _items(items: list[str]) -> str:
    if not items:
        return ""
    lines_ = "".join(f"<li>{html.escape(item)}</li>" for item in items)
    return f'<div class="card notes"><h3>What plans gave up</h3><ul>{lines_}</ul></div>'


def _sections(report: Report) -> tuple[str, dict]:
    """The charts' HTML, and their figures by the id of their place."""
    return render(
        [
            lines.loss(report),
            bars.time(report),
            lines.balance(report),
            lines.left_out(report),
            bars.memory(report),
            bars.audit(report),
        ]
    )


def render(sections: list[Section]) -> tuple[str, dict]:
    """The sections' HTML, and their figures by the id of their place."""
    text, figures = "", {}
    for section in sections:
        if not (section.charts or section.text or section.items):
            continue
        charts = ""
        for chart in section.charts:
            name = f"chart-{len(figures)}"
            figures[name] = json.loads(chart.figure.to_json())
            figures[name]["layout"].pop("template", None)
            charts += _figure(chart, name)
        note = f'<p class="muted">{html.escape(section.text)}</p>' if section.text else ""
        text += (
            f"<section><h2>{html.escape(section.title)}</h2>{note}"
            f'<div class="grid">{charts}</div>{_items(section.items)}</section>'
        )
    return text, figures


def page(report: Report) -> str:
    kind = "training run" if report.single else "comparison of strategies"
    figures_html, figures = _sections(report)
    notes = "".join(f'<p class="card note">{html.escape(note)}</p>' for note in report.notes)
    lead = "".join(
        f"<p>{f'<b>{html.escape(label)}:</b> ' if label else ''}{html.escape(text)}</p>"
        for label, text in verdict.headline(report)
    )
    sources = "".join(
        f"<dt>{html.escape(w)}</dt><dd>{html.escape(t)}</dd>" for w, t in words.provenance(report)
    )
    return document(
        title=report.title,
        kind=kind,
        eyebrow=words.clock_name(report),
        setting=words.setting_line(report),
        body=f"""<div class="card lead">{lead}</div>
{notes}
{_comparison(report)}
{_verdicts(report)}
{"" if report.single else _strategies(report)}
<noscript><p class="card note">The charts need JavaScript; their numbers do not.</p></noscript>
{figures_html}
<section><h2>Which clock, and what was measured</h2>
<div class="card"><dl>{sources}</dl></div></section>""",
        figures=figures,
    )


def document(title: str, kind: str, eyebrow: str, setting: str, body: str, figures: dict) -> str:
    """The whole file; `body` and the figures' places in it are HTML."""
    numbers = json.dumps(figures, separators=(",", ":")).replace("<", "\\u003c")
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<title>{html.escape(title)} · LRMoE {kind}</title>
<style>{(HERE / "page.css").read_text(encoding="utf-8")}</style>
</head>
<body>
<header>
<p class="eyebrow">LRMoE {kind} · {html.escape(eyebrow)}</p>
<h1>{html.escape(title)}</h1>
<p class="muted">{html.escape(setting)}</p>
</header>
<main>
{body}
</main>
<footer class="muted">Written by lrmoe.report from the run’s own files; works offline.</footer>
<script type="application/json" id="charts">{numbers}</script>
<script>{get_plotlyjs()}</script>
<script>{(HERE / "page.js").read_text(encoding="utf-8")}</script>
</body>
</html>
"""
