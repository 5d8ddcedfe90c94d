"""The report's words for a terminal: the same sentences that head the page."""

from __future__ import annotations

import textwrap

from lrmoe.report.data import Report
from lrmoe.report.verdict import headline, verdict

WIDTH = 100


def _item(label: str, text: str, indent: str) -> str:
    start = f"{indent}{label}: " if label else indent
    return textwrap.fill(text, WIDTH, initial_indent=start, subsequent_indent=indent + "  ")


def to_text(report: Report) -> str:
    """What was saved and what it cost, first in short, then strategy by strategy."""
    lines = [_item(label, text, "") for label, text in headline(report)]
    base = report.baseline()
    for run in report.runs if base is not None else []:
        if run is base:
            continue
        found = verdict(report, run, base)
        lines += ["", _item("", found.summary, "")]
        lines += [_item("saved", text, "  ") for text in found.saved]
        lines += [_item("cost", text, "  ") for text in found.cost]
        lines += [_item("note", text, "  ") for text in found.notes]
    return "\n".join(lines) + "\n"
