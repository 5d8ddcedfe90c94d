"""Planning over NumPy arrays: no cluster, no model. Names and figures are those of the commands
`lrmoe plan`, `lrmoe replay` and `lrmoe estimate` (docs/replay.md, docs/planner.md)."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from . import ops  # noqa: F401  (loads the library)


def _tensor(values: ArrayLike, name: str, dimensions: str, dtype: type) -> torch.Tensor:
    array = np.asarray(values)
    wanted = dimensions.count(",") + 1
    if array.ndim != wanted:
        raise ValueError(f"[lrmoe] {name} must be [{dimensions}], not of shape {array.shape}")
    if np.issubdtype(dtype, np.integer) and not np.issubdtype(array.dtype, np.integer):
        raise ValueError(f"[lrmoe] {name} must hold whole numbers, not {array.dtype}")
    return torch.from_numpy(np.ascontiguousarray(array, dtype=dtype))


@dataclass(frozen=True)
class Plan:
    """The plan of one layer: how R ranks with S slots share E experts' pairs."""

    placement: NDArray[np.int32]  #: [R, S] the expert in each slot, -1: none
    quota: NDArray[np.int32]  #: [R, E] pairs of each source that have a backward pass
    dropped: NDArray[np.int32]  #: [R, E] pairs that a capacity drops
    forward: NDArray[np.int32]  #: [routes, 4] source, expert, rank, pairs
    backward: NDArray[np.int32]  #: [routes, 4] likewise, of the kept pairs
    added_variance: float  #: predicted
    notes: list[str]  #: what was given up, and why
    json: dict[str, Any]  #: the whole plan (`lrmoe-plan`, version 1)

    def load(self, phase: str = "forward") -> NDArray[np.int64]:
        """Pairs that each rank computes, [R]; phase "forward" or "backward"."""
        routes = {"forward": self.forward, "backward": self.backward}[phase]
        return np.bincount(
            routes[:, 2], weights=routes[:, 3], minlength=len(self.placement)
        ).astype(np.int64)


def plan(
    demand: ArrayLike,
    *,
    top_k: int = 1,
    slots: int = 0,
    strategy: str = "lrmoe",
    placement: ArrayLike | None = None,
    ranks_per_node: int = 0,
    draw: float = 0.5,
) -> Plan:
    """Plans one layer for a demand.

    Args:
        demand: [R, E] pairs per source rank and expert.
        top_k: experts per token.
        slots: experts that a rank has room for; 0: ceil(E / R) + 2, or ceil(E / R) where experts
            never move.
        strategy: a name and its own settings: "lrmoe:ratio=0.25", "symi:capacity_factor=1".
        placement: [R, S] to route on; by default the one that the strategy plans for this demand.
        ranks_per_node: 0: all ranks in one node.
        draw: u in [0, 1), which rounds the quotas.

    ValueError says what cannot be.
    """
    counts = _tensor(demand, "demand", "R, E", np.int64)
    if counts.numel() == 0 or int(counts.max()) >= 2**31:
        raise ValueError("[plan] the demand must have ranks and experts, and counts below 2^31")
    if not 0 <= draw < 1:
        raise ValueError(f"[plan] draw must be at least 0 and below 1, not {draw}")
    settings: dict[str, Any] = {
        "top_k": top_k,
        "slots": slots,
        "strategy": strategy,
        "ranks_per_node": ranks_per_node,
        "draw": draw,
    }
    if placement is not None:
        rows = _tensor(placement, "placement", "R, S", np.int32)
        settings["placement"] = rows.tolist()
        settings["slots"] = rows.shape[1]
    made = json.loads(torch.ops.lrmoe.plan(counts, json.dumps(settings)))

    def table(name: str, columns: int | None = None) -> NDArray[np.int32]:
        array = np.asarray(made[name], dtype=np.int32)
        return array if columns is None else array.reshape(-1, columns)

    return Plan(
        placement=table("placement"),
        quota=table("quota"),
        dropped=table("dropped"),
        forward=table("forward", 4),
        backward=table("backward", 4),
        added_variance=made["added_variance"],
        notes=made["notes"],
        json=made,
    )


def replay(
    ids: ArrayLike,
    gates: ArrayLike,
    *,
    experts: int,
    ranks: int,
    strategies: Sequence[str] = ("fixed", "symi", "eplb", "lrmoe:ratio=1", "lrmoe"),
    slots: int = 0,
    model: str = "qwen3-30b-a3b",
    profile: str = "h200-ib",
    scores: ArrayLike | None = None,
    sources: ArrayLike | None = None,
    scale: float = 1.0,
    ranks_per_node: int = -1,
    chunks: int = 1,
    seed: int = 1,
) -> dict[str, Any]:
    """Runs a routing trace through strategies: loads, bytes, modelled seconds, memory.

    Args:
        ids: [steps, layers, tokens, k] the experts of each token; -1: not routed.
        gates: of the same shape; scores too, where pairs' contributions are known.
        sources: [steps, layers, tokens] the rank that each token comes from; by default equal
            runs of the tokens.
        experts: E. ranks: R. slots: per rank, 0 as in `plan`.
        model, profile: whose dimensions, on what hardware.
        scale: tokens that each traced token stands for.

    Returns `lrmoe-replay`, version 1, as the command writes it. With several steps, each is placed
    by the demand of the one before, as in training; a single one by its own.
    """
    shape = "steps, layers, tokens, k"
    choice = _tensor(ids, "ids", shape, np.int32)
    arrays = {
        "gates": _tensor(gates, "gates", shape, np.float32),
        "scores": None if scores is None else _tensor(scores, "scores", shape, np.float32),
    }
    for name, tensor in arrays.items():
        if tensor is not None and tensor.shape != choice.shape:
            raise ValueError(f"[replay] {name} must have the shape of ids {tuple(choice.shape)}")
    ranks_of = None
    if sources is not None:
        ranks_of = _tensor(sources, "sources", "steps, layers, tokens", np.int32)
        if ranks_of.shape != choice.shape[:3]:
            raise ValueError(f"[replay] sources must be {tuple(choice.shape[:3])}")
    settings = {
        "experts": experts,
        "ranks": ranks,
        "slots": slots,
        "strategies": list(strategies),
        "model": model,
        "profile": profile,
        "scale": scale,
        "ranks_per_node": ranks_per_node,
        "chunks": chunks,
        "seed": seed,
    }
    text = json.dumps(settings)
    return json.loads(
        torch.ops.lrmoe.replay(choice, arrays["gates"], arrays["scores"], ranks_of, text)
    )


def estimate(
    model: str,
    *,
    ranks: int,
    tokens: int,
    slots: int = 0,
    strategy: str = "lrmoe",
    budget: int = 0,
    imbalance: float = 1.0,
    chunks: int = 1,
    layers_in_flight: int = 0,
) -> dict[str, Any]:
    """Memory of a model's MoE layers per rank and term for an assumed demand, what a budget of
    bytes holds, and the smallest that would do: as `lrmoe estimate --json` writes it.

    Args:
        model: "qwen3-30b-a3b", "glm-4.5-air", ... (a wrong name lists them).
        ranks: R. tokens: over all ranks, in flight together.
        imbalance: pairs of the fullest expert over the mean.
        layers_in_flight: MoE layers whose memory counts; 0: the model's.
    """
    settings = {
        "model": model,
        "ranks": ranks,
        "slots": slots,
        "tokens": tokens,
        "strategy": strategy,
        "budget": budget,
        "imbalance": imbalance,
        "chunks": chunks,
        "layers_in_flight": layers_in_flight,
    }
    return json.loads(torch.ops.lrmoe.estimate(json.dumps(settings)))
