"""What a report needs of run folders: metrics, configurations, compare.json.

Everything may be missing: a field, a validation loss, a baseline, compare.json of
a comparison that was interrupted. A number that is not there is nan.
"""

from __future__ import annotations

import json
import math
import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

NAN = float("nan")
MEMORY_TERMS = ("weights", "gradients", "activations", "buffers", "workspace")
TIME_PARTS = ("plan", "statistics", "select", "weight_exchange", "scores", "rest")
AUDIT_PARTS = ("experts", "router", "dense", "rest")
AUDIT_MEASURES = ("cosine", "relative_error")


class InputError(Exception):
    """What is wrong with the input, in one line."""


def number(value: object) -> float:
    """nan for anything that is no finite number."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    return NAN


def known(value: float) -> bool:
    return not math.isnan(value)


def mean(values: list[float]) -> float:
    present = [v for v in values if known(v)]
    return sum(present) / len(present) if present else NAN


def total(values: list[float]) -> float:
    present = [v for v in values if known(v)]
    return sum(present) if present else NAN


def largest(values: list[float]) -> float:
    return max((v for v in values if known(v)), default=NAN)


@dataclass
class Run:
    """One strategy: its line in the comparison, and its steps where they are there."""

    name: str
    records: list[dict] = field(default_factory=list)
    config: dict = field(default_factory=dict)
    row: dict = field(default_factory=dict)  # of compare.json

    def series(self, key: str, part: str = "") -> list[float]:
        """The field of each step; with `part`, of that sub-object."""
        return [number(_object(r, part).get(key) if part else r.get(key)) for r in self.records]

    def steps(self) -> list[int]:
        return [r["step"] for r in self.records]

    def counted(self) -> list[dict]:
        """The steps that count: up to the target where it was reached."""
        last = number(self.row.get("steps"))
        return [r for r in self.records if not known(last) or r["step"] <= last]

    def sum_of(self, key: str, part: str = "") -> float:
        return total(
            [number(_object(r, part).get(key) if part else r.get(key)) for r in self.counted()]
        )

    def mean_of(self, key: str) -> float:
        return mean([number(r.get(key)) for r in self.counted()])

    def layer_series(self, key: str) -> list[list[float]]:
        """For each step the values of the layers; a step without them has none."""
        return [
            [number(v) for v in values]
            if isinstance(values := _object(r, "layers").get(key), list)
            else []
            for r in self.records
        ]

    def layer_names(self) -> list[int]:
        for record in self.records:
            names = _object(record, "layers").get("layer")
            if isinstance(names, list) and names:
                return names
        return list(
            range(max((len(row) for row in self.layer_series("imbalance_forward")), default=0))
        )

    def setting(self, section: str, key: str) -> object:
        return _object(self.config, section).get(key)

    def memory_terms(self) -> dict[str, float]:
        """By term, at the step whose terms sum to most; empty where the run has none."""
        best: dict[str, float] = {}
        for record in self.counted():
            terms = {t: number(v) for t, v in _object(record, "memory").items()}
            terms = {t: v for t, v in terms.items() if known(v) and t != "total"}
            if sum(terms.values()) > sum(best.values()):
                best = terms
        return best

    def audits(self) -> list[tuple[int, dict[tuple[str, str], dict[str, float]]]]:
        """(step, {(part, "cosine" | "relative_error"): {"layer N" or "": value}})."""
        found = []
        for record in self.records:
            audit = _object(record, "audit")
            layers = audit.get("layers") if isinstance(audit.get("layers"), list) else []
            places = [
                (f"layer {layer.get('layer')}", layer)
                for layer in layers
                if isinstance(layer, dict)
            ]
            values: dict[tuple[str, str], dict[str, float]] = {}
            for place, parts in [*places, ("", {"rest": audit.get("rest")})]:
                for part in AUDIT_PARTS:
                    for measure in AUDIT_MEASURES:
                        value = number(_object(parts, part).get(measure))
                        if known(value):
                            values.setdefault((part, measure), {})[place] = value
            if values:
                found.append((record["step"], values))
        return found

    def plan_notes(self) -> list[tuple[str, int]]:
        """What plans gave up: (text, in how many steps), the most frequent first."""
        steps: dict[str, set[int]] = {}
        for record in self.counted():
            notes = record.get("notes") if isinstance(record.get("notes"), list) else []
            for note in notes:
                if isinstance(note, dict) and isinstance(note.get("note"), str):
                    steps.setdefault(note["note"], set()).add(record["step"])
        return sorted(((text, len(s)) for text, s in steps.items()), key=lambda n: (-n[1], n[0]))

    def routed_pairs(self) -> float:
        """Of the steps that count, all MoE layers together."""
        return (
            self.sum_of("tokens") * number(self.setting("model", "top_k")) * len(self.layer_names())
        )

    def figure(self, key: str) -> float:
        """A number of the comparison: as compare.json has it, else from the metrics."""
        if key in self.row:
            return number(self.row[key])
        if key == "steps":
            return float(len(self.records)) if self.records else NAN
        if key == "validation_loss":
            losses = [v for v in self.series(key) if known(v)]
            return losses[-1] if losses else NAN
        if key == "final_loss":
            return self.series("loss")[-1] if self.records else NAN
        if key == "memory_subtotal":
            return largest([number(r.get("memory_peak_bytes")) for r in self.counted()])
        if key == "added_variance":
            return self.mean_of(key)
        return self.sum_of("seconds" if key == "total_seconds" else key)


def _object(record: dict, key: str) -> dict:
    value = record.get(key)
    return value if isinstance(value, dict) else {}


@dataclass
class Report:
    """A comparison, or a single run (`single`)."""

    title: str
    runs: list[Run]
    clock: str  # "measured", "virtual:PROFILE"
    target: float = NAN
    single: bool = False
    notes: list[str] = field(default_factory=list)

    def has_target(self) -> bool:
        return known(self.target)

    def reached(self, run: Run) -> bool:
        return run.row.get("reached") is True

    def baseline(self) -> Run | None:
        """What the others are compared with: symi, else the plainest there is."""
        if self.single or len(self.runs) < 2:
            return None
        for names in (("symi",), ("eplb",), ("fixed",), ("fixed-capacity",)):
            plain = [r for r in self.runs if r.name in names]
            with_settings = [r for r in self.runs if re.split(r"[:\s]", r.name)[0] in names]
            if plain or with_settings:
                return (plain or with_settings)[0]
        return self.runs[0]

    def against(self, run: Run, base: Run | None) -> float:
        """MoE time over the baseline's; nan where the two are not to the same point."""
        if base is None or not self.comparable(run, base):
            return NAN
        if base.figure("moe_seconds") > 0:
            return run.figure("moe_seconds") / base.figure("moe_seconds")
        return NAN

    def comparable(self, run: Run, base: Run) -> bool:
        if self.has_target():
            return self.reached(run) and self.reached(base)
        return run.figure("steps") == base.figure("steps")

    def time_is_modelled(self) -> bool:
        return self.clock.startswith("virtual")


def read_metrics(path: Path) -> list[dict]:
    """The lines that are complete; the last may have been cut off."""
    text = path.read_bytes().decode("utf-8", errors="replace")
    records = []
    for index, line in enumerate(text[: text.rfind("\n") + 1].split("\n")[:-1], 1):
        try:
            record = json.loads(line)
            record["step"] = int(record["step"])
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(
                f"{path}:{index}: not a line of metrics (a JSON object with `step`):"
                f" {type(error).__name__}: {error}"
            ) from error
        records.append(record)
    return records


def _read_run(folder: Path, name: str, row: dict) -> Run:
    run = Run(name, row=row)
    if (folder / "metrics.jsonl").is_file():
        run.records = read_metrics(folder / "metrics.jsonl")
    if (folder / "config.toml").is_file():
        try:
            run.config = tomllib.loads((folder / "config.toml").read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InputError(f"{folder / 'config.toml'}: not a TOML file: {error}") from error
    return run


def _read_compare(path: Path) -> dict:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"{path}: not JSON: {error}") from error
    rows = document.get("results") if isinstance(document, dict) else None
    if not isinstance(rows, list) or not all(isinstance(r, dict) and "strategy" in r for r in rows):
        raise InputError(f"{path}: not a comparison: `results` must list objects with `strategy`")
    return document


def _clock_of(runs: list[Run]) -> str:
    """Without compare.json: as the steps say; a `measured` part tells modelled seconds."""
    for run in runs:
        for record in run.records:
            if isinstance(record.get("clock"), str):
                return record["clock"]
            if _object(record, "measured"):
                return f"virtual:{run.setting('clock', 'profile') or 'unnamed'}"
    return "measured"


def read_report(folder: Path) -> Report:
    """A run folder or a comparison's folder. InputError where it is neither."""
    if not folder.is_dir():
        raise InputError(
            f"{folder} is no folder: give the folder of `lrmoe train` or `lrmoe compare`"
        )
    title = folder.resolve().name
    if (folder / "metrics.jsonl").is_file():
        run = _read_run(folder, title, {})
        run.name = str(run.setting("strategy", "name") or title)
        if not run.records:
            raise InputError(
                f"{folder / 'metrics.jsonl'} holds no complete step yet: there is nothing to report"
            )
        return Report(title, [run], _clock_of([run]), single=True)

    notes: list[str] = []
    document: dict = {}
    runs: list[Run] = []
    if (folder / "compare.json").is_file():
        document = _read_compare(folder / "compare.json")
        for row in document["results"]:
            own = Path(str(row.get("run", "")))
            place = folder / own.name if own.name and (folder / own.name).is_dir() else own
            runs.append(_read_run(place, str(row["strategy"]), row))
    else:

        def position(path: Path) -> tuple[int, str]:
            lead = re.match(r"\d+", path.name)
            return (int(lead[0]) if lead else 10**9, path.name)

        for place in sorted((p.parent for p in folder.glob("*/metrics.jsonl")), key=position):
            run = _read_run(place, re.sub(r"^\d+-", "", place.name), {})
            own = str(run.setting("strategy", "name") or "")
            if own and run.name.startswith(own + "-"):
                run.name = own + ":" + run.name[len(own) + 1 :]
            runs.append(run)
        notes.append(
            "There is no compare.json, so the comparison has not ended: figures are those of "
            "the steps done so far."
        )
    if not any(run.records for run in runs):
        raise InputError(
            f"{folder} holds no metrics: neither a metrics.jsonl with a step (as `lrmoe train`"
            " writes) nor folders with one (as `lrmoe compare` does)"
        )
    missing = [run.name for run in runs if not run.records]
    if missing:
        notes.append(f"No metrics of {', '.join(missing)}: only in the table, not in the charts.")
    names: dict[str, int] = {}
    for run in runs:
        names[run.name] = names.get(run.name, 0) + 1
        if names[run.name] > 1:
            run.name += f" ({names[run.name]})"
    clock = str(document.get("clock") or _clock_of(runs))
    return Report(title, runs, clock, number(document.get("target_loss")), notes=notes)
