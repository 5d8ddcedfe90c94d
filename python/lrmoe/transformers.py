"""LRMoE inside Transformers: the experts implementation ``"lrmoe"`` and its options.

    model = AutoModelForCausalLM.from_pretrained(path, experts_implementation="lrmoe")
    lrmoe.configure(model, ratio=0.5)

Importing `lrmoe` registers the implementation. Without `configure` every pair is kept:
the gradients of plain training. In evaluation and without gradients nothing is selected.
"""

from typing import Any

import torch
from torch import nn
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS

from . import ops

_STATE = "_lrmoe_layer"


def _refuse_unless_supported(module: nn.Module) -> None:
    def refuse(what: str) -> None:
        raise ValueError(
            f"[lrmoe] {type(module).__name__} {what}; the lrmoe experts compute "
            "down(silu(gate x) * (up x)) with weights [E, 2n, d] and [E, d, n], gate first"
        )

    if not getattr(module, "has_gate", True):
        refuse("has no gate")
    if getattr(module, "has_bias", False):
        refuse("has biases")
    if getattr(module, "has_post_expert_norm", False):
        refuse("normalises its experts' outputs")
    if getattr(module, "is_transposed", False):
        refuse("stores its weights transposed")
    if not getattr(module, "is_concatenated", True):
        refuse("interleaves gate and up")
    if not isinstance(module.act_fn, nn.SiLU) and type(module.act_fn).__name__ != "SiLUActivation":
        refuse(f"has the activation {type(module.act_fn).__name__}")
    if getattr(type(module), "_apply_gate").__module__ != "transformers.integrations.moe":
        refuse("has a gate of its own")
    if getattr(module, "_is_expert_parallel", False):
        refuse("is split over ranks by Transformers; use lrmoe.MoELayer over a process group")


def layer_of(module: nn.Module) -> ops.Layer:
    """The state of an experts module, made at its first use."""
    layer = module.__dict__.get(_STATE)
    if layer is None:
        _refuse_unless_supported(module)
        layer = module.__dict__[_STATE] = ops.Layer(module.gate_up_proj.shape[0])
    return layer


@torch.compiler.assume_constant_result
def _handle(module: nn.Module) -> int:
    return layer_of(module).handle


def experts_forward(
    self: nn.Module,
    hidden_states: torch.Tensor,
    top_k_index: torch.Tensor,
    top_k_weights: torch.Tensor,
) -> torch.Tensor:
    """The routed experts' sum [T, d] of hidden_states [T, d] (Transformers' interface)."""
    mode = layer_of(self).training_mode if self.training else ops.WHOLE
    x = hidden_states.to(ops.computing_dtype(self.gate_up_proj))
    out = torch.ops.lrmoe.experts(
        x, top_k_index, top_k_weights, self.gate_up_proj, self.down_proj, _handle(self), mode
    )
    return out.to(hidden_states.dtype)


ALL_EXPERTS_FUNCTIONS.register("lrmoe", experts_forward)


def experts_modules(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """The modules of a Transformers model that hold routed experts, by name."""
    return [
        (name, module)
        for name, module in model.named_modules()
        if hasattr(module, "gate_up_proj") and hasattr(module, "is_concatenated")
    ]


def set_options(model: nn.Module, options: dict[str, Any]) -> int:
    """`lrmoe.configure` for the Transformers layers of a model; how many there are."""
    found = experts_modules(model)
    if found:
        used = found[0][1].config._experts_implementation
        if used != "lrmoe":
            raise ValueError(
                f'[configure] the model uses the experts implementation "{used}"; load it with '
                'experts_implementation="lrmoe" or call '
                'model.set_experts_implementation("lrmoe") first'
            )
    for index, (_, module) in enumerate(found):
        layer_of(module).configure(**options, index=index)
    return len(found)
