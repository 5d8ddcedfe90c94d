"""A report's table, and what it says of where its numbers come from.

Texts are plain; the page escapes them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from lrmoe.report.data import Report, known
from lrmoe.report.units import amount, count, loss, memory, seconds, share


def goal(report: Report) -> str:
    return f"{report.target:.4g}"


def clock_kind(report: Report) -> str:
    """ "virtual clock", for where there is little room."""
    return clock_name(report).partition(",")[0]


def clock_name(report: Report) -> str:
    if report.time_is_modelled():
        return "virtual clock, " + (report.clock.partition(":")[2] or "profile not named")
    return "measured clock" if report.clock == "measured" else f"clock “{report.clock}”"


def end_is_modelled(report: Report) -> bool:
    """Whole steps' seconds are modelled only where the run also kept measured ones."""
    return report.time_is_modelled() and any(
        known(r.sum_of("seconds", "measured")) for r in report.runs
    )


@dataclass
class Column:
    title: str
    unit: str  # said below the title
    values: list[float]
    texts: list[str]
    best: bool = True  # the least is marked


def columns(report: Report) -> list[Column]:
    runs, base = report.runs, report.baseline()

    def column(title: str, unit: str, key: str, text, best: bool = True) -> Column:
        values = [r.figure(key) for r in runs]
        return Column(title, unit, values, [text(v) for v in values], best)

    table = [
        column(
            "Steps",
            f"to loss {goal(report)}" if report.has_target() else "done",
            "steps",
            count,
            best=report.has_target(),
        )
    ]
    if report.has_target():
        for i, run in enumerate(runs):
            if not report.reached(run):
                table[0].texts[i] = f"> {table[0].texts[i]}"
                table[0].values[i] = math.nan
    table.append(column("MoE time", clock_kind(report), "moe_seconds", seconds))
    if base is not None:
        ratios = [run.row.get("against_symi") for run in runs]
        given = [
            float(r) if isinstance(r, (int, float)) else report.against(run, base)
            for r, run in zip(ratios, runs)
        ]
        table.append(
            Column(
                "Ratio",
                f"to {base.name}’s MoE time",
                given,
                [f"{v:.2f}" if known(v) else "–" for v in given],
            )
        )
    table.append(
        column(
            "End to end",
            "virtual clock" if end_is_modelled(report) else "measured",
            "total_seconds",
            seconds,
        )
    )
    table.append(column("Loss", "validation, last", "validation_loss", loss))
    table.append(column("Dropped", "pairs, forward", "dropped_pairs", count, best=False))
    kept = [r.mean_of("retained_ratio") for r in runs]
    table.append(Column("Kept", "pairs, backward", kept, [share(v) for v in kept], False))
    table.append(column("Noise", "added variance", "added_variance", amount, best=False))
    table.append(column("Memory", "MoE, fullest rank", "memory_subtotal", memory))
    if report.has_target():  # a time that is none to the target is not the best one
        for entry in table:
            if entry.title in ("MoE time", "End to end"):
                entry.values = [
                    v if report.reached(r) else math.nan for v, r in zip(entry.values, runs)
                ]
    return table


def setting_line(report: Report) -> str:
    """The model and the cluster, from the first configuration there is."""
    run = next((r for r in report.runs if r.config), None)
    if run is None:
        return ""
    words = [
        ("model", "layers", "{} layers"),
        ("model", "hidden", "hidden size {}"),
        ("model", "experts", "{} experts"),
        ("model", "top_k", "top-{}"),
        ("model", "expert_width", "expert width {}"),
        ("parallel", "ranks", "{} ranks"),
        ("parallel", "slots", "{} slots a rank"),
        ("train", "tokens_per_step", "{:,} tokens a step"),
        ("train", "seed", "seed {}"),
    ]
    parts = []
    for section, key, text in words:
        value = run.setting(section, key)
        if isinstance(value, int) and not isinstance(value, bool) and (value or key == "seed"):
            parts.append(text.format(value))
    return " · ".join(parts)


def provenance(report: Report) -> list[tuple[str, str]]:
    """(what, where it comes from): modelled, measured, estimated."""
    found, measured = [], []
    if report.time_is_modelled():
        run = next((r for r in report.runs if r.config), report.runs[0])
        shape, scale = run.setting("clock", "shape"), run.setting("clock", "scale")
        text = (
            f"Seconds of the MoE layers are those of the {clock_name(report)}: a model of that "
            "hardware, fed with the routing of the run"
        )
        if isinstance(shape, str) and shape not in ("", "own"):
            text += f", at the dimensions of {shape}"
        if isinstance(scale, (int, float)) and scale not in (0, 1):
            text += f", each token standing for {scale:g}"
        text += ". It is good for comparing strategies, and no promise of a step time."
        if end_is_modelled(report):
            text += " End-to-end seconds are modelled as well, by the same clock."
        else:
            measured.append(
                "End-to-end seconds are wall time of the machine that ran it: another clock than "
                "that of MoE time."
            )
        found.append(("Modelled", text))
        own = [(r.name, r.sum_of("moe_seconds", "measured")) for r in report.runs]
        own = [f"{name} {seconds(s)}" for name, s in own if known(s)]
        if own:
            measured.append(
                f"On the machine that ran it, the MoE layers took {', '.join(own)} of wall time."
            )
    elif report.clock == "measured":
        measured.append(
            "All seconds are wall time on the machine that ran it, of the slowest rank; ranks "
            "that share cores also share their speed. No time is modelled."
        )
    else:
        found.append(
            ("Clock", f"Seconds are those of the {clock_name(report)}, as compare.json names it.")
        )
    measured.append(
        "Losses, steps, routing, imbalance, dropped pairs and memory are those of the run itself."
    )
    found.append(("Measured", " ".join(measured)))
    found.append(
        (
            "Estimated",
            "Added variance is the trainer’s own estimate of the variance that sampling adds "
            "to the expert gradients, relative to their second moment; 0 without sampling.",
        )
    )
    if not report.single:
        found.append(
            (
                "With care",
                "Each strategy was trained once, from the same start on the same data: "
                "small differences in loss may be noise.",
            )
        )
    return found
