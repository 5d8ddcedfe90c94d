"""Numbers as a report prints them; a dash where one is not there."""

from __future__ import annotations

import math

from lrmoe.report.data import known


def amount(value: float, digits: int = 3) -> str:
    """Three significant digits, thousands apart, no exponent where people read one badly."""
    if not known(value):
        return "–"
    if value == 0:
        return "0"
    size = abs(value)
    if size >= 1e9 or size < 1e-4:
        return f"{value:.{digits - 1}e}"
    decimals = max(0, digits - 1 - math.floor(math.log10(size)))
    return f"{value:,.{decimals}f}"


def count(value: float) -> str:
    return f"{value:,.0f}" if known(value) else "–"


def loss(value: float) -> str:
    return f"{value:.4f}" if known(value) else "–"


def share(value: float) -> str:
    """0.254 is 25%; what is not nothing does not become 0%."""
    if not known(value):
        return "–"
    percent = 100 * value
    return f"{percent:.0f}%" if percent == 0 or abs(percent) >= 10 else f"{amount(percent, 2)}%"


def seconds(value: float) -> str:
    if not known(value):
        return "–"
    if value and value < 1e-3:
        return f"{amount(value * 1e6)} µs"
    if value and value < 1:
        return f"{amount(value * 1e3)} ms"
    return f"{amount(value)} s" if value < 7200 else f"{amount(value / 3600)} h"


def memory(value: float) -> str:
    if not known(value):
        return "–"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{count(value)} {unit}" if unit == "B" else f"{amount(value)} {unit}"
        value /= 1024
    return f"{amount(value)} TiB"
