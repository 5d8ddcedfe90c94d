"""The gradient audit: how far the gradients of a pass that keeps a part of the pairs are from
those of the same batch with every pair kept."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import nn

from . import ops
from .configure import layers


@contextmanager
def _mode(model: nn.Module, mode: int) -> Iterator[None]:
    states = list(layers(model).values())
    before = [state.training_mode for state in states]
    try:
        for state in states:
            state.training_mode = mode
        yield
    finally:
        for state, kept in zip(states, before):
            state.training_mode = kept


def part_of(name: str) -> str:
    """Which part of a model a parameter belongs to: "experts", "router" or "dense"."""
    words = name.split(".")
    in_experts = words[-2:-1] == ["experts"] and words[-1] in ("gate_up_proj", "down_proj")
    if in_experts or words[-1] in ("gate_up", "down"):
        return "experts"
    if words[-1] == "router_weight" or words[-2:] == ["gate", "weight"]:
        return "router"
    return "dense"


def audit_gradients(
    model: nn.Module, loss: Callable[[], torch.Tensor]
) -> dict[str, dict[str, float]]:
    """Calls `loss` (forward passes of one batch, in training mode) once with every pair kept and
    once as configured, with the same random numbers, and compares the gradients.

    Returns, for "experts", "router" and "dense" (where there are such parameters),
    ``{"cosine": c, "relative_error": |g - g_all| / |g_all|}``. Nothing else changes: no
    ``.grad``, no random state, nothing that the layers count or learn.
    """
    named = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    random = torch.get_rng_state()

    def gradients(mode: int) -> list[torch.Tensor | None]:
        torch.set_rng_state(random)
        with _mode(model, mode), torch.enable_grad():
            return list(
                torch.autograd.grad(loss(), [p for _, p in named], allow_unused=True)
            )

    try:
        whole, sampled = gradients(ops.WHOLE), gradients(ops.SILENT)
    finally:
        torch.set_rng_state(random)
    sums: dict[str, torch.Tensor] = {}
    for (name, _), all_pairs, own in zip(named, whole, sampled):
        if all_pairs is None or own is None:
            continue
        a, b = own.double().flatten(), all_pairs.double().flatten()
        row = torch.stack([a @ b, a @ a, b @ b, (a - b) @ (a - b)])
        part = part_of(name)
        sums[part] = sums[part] + row if part in sums else row
    result = {}
    for part, row in sums.items():
        dot, own_square, all_square, difference = row.tolist()
        # Not a number where one of them is zero: there is no angle, or no scale.
        angle = (own_square * all_square) ** 0.5
        result[part] = {
            "cosine": dot / angle if angle > 0 else (1.0 if difference == 0 else float("nan")),
            "relative_error": (difference / all_square) ** 0.5 if all_square > 0 else float("nan"),
        }
    return result
