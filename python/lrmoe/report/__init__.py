"""The report of a training run or of a comparison: one HTML file that works offline."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from lrmoe.report.data import InputError, read_report


def write_report(folder: Path) -> Path:
    """Reads the folder, writes its report.html whole or not at all."""
    report = read_report(folder)
    try:
        from lrmoe.report.page import page
    except ModuleNotFoundError as error:
        raise InputError(
            f"{error.name} is missing in {sys.executable}: install what python/requirements.txt"
            " names"
        ) from error
    path = folder / "report.html"
    partial = folder / ".report.html.partial"
    partial.write_text(page(report), encoding="utf-8")
    os.replace(partial, path)
    return path
