"""What a strategy saved and what it cost, in words, all of it computed from the runs.

Texts are plain; the page escapes them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from lrmoe.report.data import Report, Run, known
from lrmoe.report.units import amount, count, loss, memory, seconds, share
from lrmoe.report.words import clock_name, end_is_modelled, goal

SAME = 0.005  # relative differences below this are no difference


@dataclass
class Verdict:
    """One strategy against the baseline."""

    run: Run
    summary: str
    saved: list[str]
    cost: list[str]
    same: list[str]
    notes: list[str]


def _difference(new: float, old: float) -> str:
    """ "34% less", "2.1 times as much"."""
    ratio = new / old
    if ratio >= 2:
        return f"{amount(ratio)} times as much"
    return f"{share(abs(1 - ratio))} {'less' if ratio < 1 else 'more'}"


def verdict(report: Report, run: Run, base: Run) -> Verdict:
    result = Verdict(run, "", [], [], [], [])

    def weigh(title: str, key: str, text) -> None:
        new, old = run.figure(key), base.figure(key)
        if not known(new) or not known(old) or (new == 0 and old == 0):
            return
        pair = f"{title}: {text(new)} instead of {text(old)}"
        if old > 0 and abs(new / old - 1) < SAME:
            result.same.append(
                f"{title}: {text(new)}"
                if text(new) == text(old)
                else f"{title}: {text(new)}, about the {text(old)} of {base.name}"
            )
        elif old > 0 and new > 0:
            (result.saved if new < old else result.cost).append(f"{pair} ({_difference(new, old)})")
        else:
            (result.saved if new < old else result.cost).append(pair)

    comparable = report.comparable(run, base)
    if comparable:
        weigh("MoE time", "moe_seconds", seconds)
        if report.has_target():
            weigh("Steps", "steps", count)
        on_another_clock = report.time_is_modelled() and not end_is_modelled(report)
        weigh(
            "End-to-end time" + (", measured" if on_another_clock else ""), "total_seconds", seconds
        )
    else:
        result.notes.append(_why_not_comparable(report, run, base))
        ours, theirs = (
            r.figure("moe_seconds") / r.figure("steps") if r.figure("steps") else math.nan
            for r in (run, base)
        )
        if known(ours) and known(theirs) and theirs > 0 and ours > 0:
            (result.saved if ours < theirs else result.cost).append(
                f"MoE time per step: {seconds(ours)} instead of {seconds(theirs)} "
                f"({_difference(ours, theirs)}); says nothing of the steps needed"
            )
    modes = [r.row.get("activations") for r in (run, base)]
    unlike = all(isinstance(m, str) for m in modes) and modes[0] != modes[1]
    of = f" (activations: {modes[0]} against {modes[1]})" if unlike else ""
    weigh("MoE memory" + of, "memory_subtotal", memory)
    new, old = run.figure("validation_loss"), base.figure("validation_loss")
    if known(new) and known(old):
        gap = new - old
        where = (
            "at the evaluation that ended the run"
            if report.has_target()
            else "at the last evaluation"
        )
        text = f"Validation loss: {loss(new)} instead of {loss(old)} ({abs(gap):.4f} {{}}), {where}"
        if abs(gap) < 5e-5:
            result.same.append(f"Validation loss: {loss(new)}, {where}")
        else:
            (result.saved if gap < 0 else result.cost).append(
                text.format("lower" if gap < 0 else "higher")
            )
    weigh("Dropped pairs", "dropped_pairs", count)
    variance, others = run.figure("added_variance"), base.figure("added_variance")
    if known(variance) and known(others) and variance != others:
        (result.saved if variance < others else result.cost).append(
            f"Noise in the expert gradients: added variance {amount(variance)} "
            f"instead of {amount(others)}"
        )
    kept, others = run.mean_of("retained_ratio"), base.mean_of("retained_ratio")
    if known(kept) and known(others) and kept < others * (1 - SAME):
        result.saved.append(
            f"Backward work: {share(kept)} of the routed pairs instead of {share(others)}"
        )
    result.summary = _summary(report, run, base)
    return result


def _why_not_comparable(report: Report, run: Run, base: Run) -> str:
    if not report.has_target():
        return (
            f"Stopped after {count(run.figure('steps'))} steps, {base.name} after "
            f"{count(base.figure('steps'))}: their times are not to the same point"
        )
    late = [r for r in (run, base) if not report.reached(r)]
    return (
        "; ".join(
            f"{r.name} did not reach {goal(report)} in {count(r.figure('steps'))} steps"
            for r in late
        )
        + ": no times to that loss to compare"
    )


def _summary(report: Report, run: Run, base: Run) -> str:
    ratio = report.against(run, base)
    if report.has_target() and not report.reached(run):
        return f"{run.name} did not reach {goal(report)} in {count(run.figure('steps'))} steps"
    if not known(ratio):
        return f"{run.name} has no MoE time to compare with {base.name}’s"
    if abs(ratio - 1) < SAME:
        return f"{run.name} takes as much MoE time as {base.name}"
    if ratio >= 2:
        return f"{run.name} takes {amount(ratio)} times the MoE time of {base.name}"
    way = "less" if ratio < 1 else "more"
    return f"{run.name} takes {share(abs(1 - ratio))} {way} MoE time than {base.name}"


def headline(report: Report) -> list[tuple[str, str]]:
    """The comparison in a few sentences, each with a label or none: what the
    strategy with the least MoE time saved, what it cost, by which clock."""
    base = report.baseline()
    if base is None:
        return [("", _single_headline(report))]
    end = f"to a validation loss of {goal(report)}" if report.has_target() else "for the same steps"
    if report.has_target() and not report.reached(base):
        return [("", _headline_without_baseline(report, base))]
    rivals = [r for r in report.runs if r is not base and known(report.against(r, base))]
    if not rivals:
        return [("", f"No strategy can be compared with {base.name} {end}: see each below.")]
    best = min(rivals, key=lambda r: report.against(r, base))
    ratio = report.against(best, base)
    if ratio > 1 - SAME:
        return _headline_of_baseline(report, base, best, end)
    found = verdict(report, best, base)
    lines = [
        (
            "",
            f"{best.name} needed {seconds(best.figure('moe_seconds'))} of MoE time {end}, "
            f"{base.name} {seconds(base.figure('moe_seconds'))}: {share(1 - ratio)} saved.",
        )
    ]
    also = [text for text in found.saved if not text.startswith("MoE time")]
    lines += [("Also saved", "; ".join(map(_mid_sentence, also)) + ".")] if also else []
    lines.append(
        (
            "It cost",
            "; ".join(map(_mid_sentence, found.cost)) + "."
            if found.cost
            else f"nothing that is measured here: no figure is worse than {base.name}’s.",
        )
    )
    if report.time_is_modelled():
        clock = (
            f"MoE time is modelled ({clock_name(report)}); losses, steps, pairs and memory are "
            "those of the run."
        )
    elif report.clock == "measured":
        clock = "all times are wall time, measured where it ran."
    else:
        clock = f"times are those of the {clock_name(report)}."
    lines.append(("Clock", clock))
    return lines


def _mid_sentence(text: str) -> str:
    return text if text.startswith("MoE") else text[0].lower() + text[1:]


def _headline_of_baseline(
    report: Report, base: Run, next_best: Run, end: str
) -> list[tuple[str, str]]:
    """No strategy is faster: what the baseline's speed may have cost."""
    lines = [
        (
            "",
            f"No strategy needed less MoE time {end} than {base.name}: {next_best.name}, the next, "
            f"{seconds(next_best.figure('moe_seconds'))} instead of "
            f"{seconds(base.figure('moe_seconds'))} ({clock_name(report)}).",
        )
    ]
    own = base.figure("validation_loss")
    losses = [(v, r.name) for r in report.runs if known(v := r.figure("validation_loss"))]
    if known(own) and min(losses)[0] < own:
        lines.append(
            ("Lower loss", f"{min(losses)[1]}, {loss(min(losses)[0])} instead of {loss(own)}.")
        )
    dropped, routed = base.figure("dropped_pairs"), base.routed_pairs()
    if known(dropped) and dropped > 0:
        part = f", {share(dropped / routed)} of all" if known(routed) and routed > 0 else ""
        lines.append((f"{base.name} dropped", f"{count(dropped)} pairs{part}."))
    return lines


def _headline_without_baseline(report: Report, base: Run) -> str:
    text = (
        f"{base.name}, the baseline, did not reach a validation loss of {goal(report)} "
        f"in {count(base.figure('steps'))} steps"
    )
    finished = [r for r in report.runs if report.reached(r)]
    if not finished:
        return text + ", nor did any other strategy; times to that loss cannot be compared."
    first = min(finished, key=lambda r: r.figure("moe_seconds"))
    return (
        text + f"; {first.name} did, after {count(first.figure('steps'))} steps and "
        f"{seconds(first.figure('moe_seconds'))} of MoE time ({clock_name(report)})."
    )


def _single_headline(report: Report) -> str:
    run = report.runs[0]
    moe, whole = run.figure("moe_seconds"), run.figure("total_seconds")
    text = f"{run.name}: {count(run.figure('steps'))} steps"
    text += f", training loss {loss(run.figure('final_loss'))}"
    if known(run.figure("validation_loss")):
        text += f", validation loss {loss(run.figure('validation_loss'))}"
    text += f". The MoE layers took {seconds(moe)} ({clock_name(report)})"
    if (
        known(whole)
        and whole > 0
        and known(moe)
        and report.time_is_modelled() == end_is_modelled(report)
    ):
        text += f", {share(moe / whole)} of the {seconds(whole)} of all steps"
    kept = run.mean_of("retained_ratio")
    if known(kept):
        text += f"; their backward pass worked on {share(kept)} of the routed pairs"
    dropped, routed = run.figure("dropped_pairs"), run.routed_pairs()
    if known(dropped) and dropped > 0:
        text += f"; {count(dropped)} pairs were dropped in the forward pass"
        text += f" ({share(dropped / routed)} of all)" if known(routed) and routed > 0 else ""
    return text + "."
