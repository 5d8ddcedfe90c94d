"""Options of a model's MoE layers."""

import sys
from typing import Any

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from . import ops
from .moe_layer import MoELayer


def layers(model: nn.Module) -> dict[str, ops.Layer]:
    """The states of all MoE layers of a model that LRMoE computes, by module name."""
    found: dict[str, ops.Layer] = {}
    for name, module in model.named_modules():
        layer = module.__dict__.get("_lrmoe_layer")
        if layer is not None:
            found[name] = layer
    return found


def configure(model: nn.Module, **options: Any) -> None:
    """Sets options of all MoE layers of a model: of Transformers models with the experts
    implementation ``"lrmoe"`` and of `lrmoe.MoELayer`.

    The keys are those of the configuration's section ``[lrmoe]`` (docs/configuration.md), with
    the same meaning: `ratio` (1 is plain training, and what a layer does before it is
    configured), `metric`, `mode`, `shortlist`, `router_gradient`, `activations`, ...; and `seed`
    of the selection. What is not named stays as it was.

    ValueError: an option that does not exist or has a wrong value, a model without such layers.
    """
    count = 0
    transformers = sys.modules.get("lrmoe.transformers")
    if transformers is not None:
        count = transformers.set_options(model, options)
    own = [module for module in model.modules() if isinstance(module, MoELayer)]
    for index, module in enumerate(own):
        module.layer.configure(**options, index=count + index)
    if count + len(own) == 0:
        raise ValueError(
            f"[configure] {type(model).__name__} has no MoE layers that LRMoE can compute: a "
            "Transformers model with routed experts, or one with lrmoe.MoELayer, is needed"
        )


def leave_experts_to_lrmoe(model: nn.Module) -> nn.Module:
    """Tells DistributedDataParallel, which is to wrap the model next, to leave the experts of
    `lrmoe.MoELayer` over process groups alone: their ranks hold different ones, and LRMoE has
    summed their gradients. Returns the model."""
    names = [
        f"{name}.{parameter}" if name else parameter
        for name, module in model.named_modules()
        if isinstance(module, MoELayer) and "group" in module.layer.settings
        for parameter in ("gate_up", "down")
    ]
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, names)
    return model
