"""Run folders with the trainer's fields and made-up numbers, for the tests of the report."""

import json
import math
import random

TOP_K = 4
LAYERS = [0, 1, 2, 3]
CONFIG = """[model]
layers = 4
hidden = 128
experts = 32
top_k = 4
expert_width = 64
[train]
tokens_per_step = 4096
seed = 1
[parallel]
ranks = 8
slots = 6
[strategy]
name = "{name}"
[clock]
profile = "h200-nvlink"
shape = "qwen3-30b-a3b"
scale = 16
"""

# strategy: (seconds of a forward pass and of a backward pass, loss it tends to, imbalance,
# share of pairs kept, pairs dropped a step)
STRATEGIES = {
    "fixed": (0.020, 0.040, 1.60, 1.9, 1.0, 0),
    "symi": (0.014, 0.028, 1.64, 1.25, 1.0, 900),
    "symi:capacity_factor=inf": (0.016, 0.032, 1.60, 1.25, 1.0, 0),
    "eplb": (0.0145, 0.029, 1.60, 1.2, 1.0, 0),
    "lrmoe:ratio=0.25": (0.012, 0.009, 1.67, 1.01, 0.25, 0),
    "lrmoe:ratio=0.5": (0.012, 0.015, 1.63, 1.01, 0.5, 0),
    "lrmoe:ratio=1": (0.012, 0.025, 1.60, 1.01, 1.0, 0),
}


def steps_of(name, count, evaluate_every=25, memory=True, virtual=True, audit_every=0):
    """The records of metrics.jsonl."""
    forward, backward, floor, imbalance, kept, drops = STRATEGIES[name]
    random_ = random.Random(name)
    records = []
    for step in range(1, count + 1):
        loss = floor + 3.9 * math.exp(-step / 60)

        def near(value, part=0.03):
            return value * (1 + random_.uniform(-part, part))

        def layers(value, part=0.1):
            return [near(value, part) for _ in LAYERS]

        uneven = 1 + (imbalance - 1) * (0.6 + 0.4 * math.exp(-step / 100))
        record = {
            "step": step,
            "loss": near(loss, 0.02),
            "aux_loss": 0.001,
            "lr": 0.002,
            "grad_norm": near(1.0, 0.3),
            "clip_coefficient": 1.0,
            "tokens": 4096,
            "seconds": near(0.9),
            "moe_exchange_seconds": near(0.3 * (forward + backward)),
            "moe_update_seconds": near(0.004),
            "bytes_update": 1 << 20,
            "moe_forward_seconds": near(forward),
            "moe_backward_seconds": near(backward),
            "retained_ratio": kept,
            "added_variance": near(0.22 / kept, 0.2) if kept < 1 else 0.0,
            "imbalance_forward": near(uneven),
            "imbalance_backward": near(uneven),
            "bytes_forward": 1 << 22,
            "bytes_backward": int((1 << 22) * kept),
            "dropped_pairs": drops and drops + step % 7,
            "memory_peak_bytes": int((40 + 20 * imbalance * kept) * (1 << 20)),
            "layers": {
                "layer": LAYERS,
                "imbalance_forward": layers(uneven),
                "imbalance_backward": layers(uneven),
                "retained_ratio": [kept] * 4,
                "dropped_pairs": [drops // 4] * 4,
            },
        }
        record["moe_seconds"] = sum(
            record[f"moe_{part}_seconds"] for part in ("forward", "backward", "update")
        )
        if step % evaluate_every == 0:
            record["validation_loss"] = loss + 0.1
        record["clock"] = "virtual:h200-nvlink" if virtual else "measured"
        if virtual:
            record["measured"] = {
                "seconds": near(0.9),
                "moe_seconds": near(0.5),
                "moe_forward_seconds": near(0.2),
            }
            record["seconds"] = record["moe_seconds"] + near(0.02)
            record["parts"] = {
                "plan": 0.001,
                "statistics": 0.0005,
                "select": 0.0,
                "weight_exchange": 0.002,
                "scores": 0.0001,
                "rest": 0.02,
            }
        if kept < 1 and step % 10 == 0:
            record["notes"] = [{"layer": 2, "note": "2 replicas fewer, for the memory budget"}]
        if memory:
            peak = record["memory_peak_bytes"]
            record["memory"] = {
                "weights": peak // 4,
                "gradients": peak // 4,
                "activations": peak // 4,
                "buffers": peak // 8,
                "workspace": peak // 8,
            }
        if audit_every and step % audit_every == 0 and kept < 1:

            def agreement(x):
                return {"cosine": 1 - near(x, 0.3), "relative_error": near(2 * x, 0.3)}

            record["audit"] = {
                "seconds": 1.0,
                "layers": [
                    {
                        "layer": n,
                        "experts": agreement(0.3),
                        "router": agreement(0.1),
                        "dense": agreement(0.02),
                    }
                    for n in LAYERS
                ],
                "rest": agreement(0.01),
            }
        records.append(record)
    return records


def row_of(name, folder, records, target):
    """A line of compare.json as the trainer would have it, but for against_symi."""
    total = lambda key: sum(r[key] for r in records)  # noqa: E731
    last = [r["validation_loss"] for r in records if "validation_loss" in r]
    return {
        "strategy": name,
        "activations": "recompute" if name.startswith("lrmoe") else "keep",
        "reached": target is not None and last[-1] <= target,
        "steps": len(records),
        **{
            key: total(key)
            for key in (
                "moe_seconds",
                "moe_forward_seconds",
                "moe_backward_seconds",
                "moe_exchange_seconds",
                "moe_update_seconds",
            )
        },
        "total_seconds": total("seconds"),
        "against_symi": None,
        "added_variance": total("added_variance") / len(records),
        "final_loss": records[-1]["loss"],
        "validation_loss": last[-1],
        "memory_subtotal": max(r["memory_peak_bytes"] for r in records),
        "dropped_pairs": total("dropped_pairs"),
        "run": f"somewhere/else/{folder.name}",
    }


def write_run(folder, name, records):
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(CONFIG.format(name=name.split(":")[0]))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))


def write_comparison(folder, names, count=300, target=None, clock="virtual:h200-nvlink", **fields):
    """A comparison's folder; returns its compare.json."""
    rows = []
    for i, name in enumerate(names):
        run = folder / f"{i + 1}-{name.replace(':', '-')}"
        records = steps_of(name, count, virtual=clock.startswith("virtual"), **fields)
        if target is not None:
            done = [r["step"] for r in records if r.get("validation_loss", math.inf) <= target]
            records = records[: done[0]] if done else records
        write_run(run, name, records)
        rows.append(row_of(name, run, records, target))
    symi = next((r for r in rows if r["strategy"] == "symi"), None)
    for row in rows:
        if symi and (target is None or (row["reached"] and symi["reached"])):
            row["against_symi"] = row["moe_seconds"] / symi["moe_seconds"]
    document = {
        "format": "lrmoe-compare",
        "version": 1,
        "target_loss": target,
        "clock": clock,
        "results": rows,
    }
    (folder / "compare.json").write_text(json.dumps(document))
    return document
