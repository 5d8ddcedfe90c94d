"""A Mixture-of-Experts layer for any PyTorch model."""

from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from . import ops


class _Scaled(torch.autograd.Function):
    """The identity, whose gradient is multiplied by a number."""

    @staticmethod
    def forward(ctx, tensor: torch.Tensor, scale: float) -> torch.Tensor:
        ctx.scale = scale
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx, gradient: torch.Tensor):
        return gradient * ctx.scale, None


class MoELayer(nn.Module):
    """Routed experts: ``[..., hidden]`` in and out, whatever the model around it.

        p, e = top-k of softmax(W x), or of sigmoid(W x) (+ a bias that only chooses)
        y = sum over the k experts of p_k down_k(silu(gate_k x) * (up_k x))

    Every pair is computed forward. In training the backward pass keeps `ratio` of the pairs,
    unbiased; 1 keeps all and is plain autograd's gradient. Further keyword arguments are the
    options of `lrmoe.configure` (`metric`, `seed`, ...).

    Parameters: `router_weight` [E, d]; `gate_up` [E, 2n, d], gate first; `down` [E, d, n]. With
    ``router="sigmoid"`` also the buffer `router_bias` [E]: set its values to steer the choice.
    After a forward pass in training, `aux_loss` is the load loss ``E * sum_e f_e P_e`` of its
    tokens (Fedus et al., arXiv 2101.03961): add it, weighted, to the model's own loss.

    Args:
        hidden: d.
        expert_width: n.
        experts: E.
        top_k: k, experts per token.
        router: "softmax" (Qwen3-MoE, Mixtral) or "sigmoid" (GLM-4.5, DeepSeek-V3).
        renormalise: gates divided by their sum over the top-k.
        routed_scale: gates are multiplied by it.
        ratio: share of the pairs that has a backward pass.
        init_std: of the normal distribution of the first weights.
        process_group: expert parallelism over these ranks (CPU tensors, so Gloo). Expert e's
            parameters are those of rank floor(e R / E): `gate_up` and `down` have ceil(E / R)
            rows, those of `owned_experts()`, and each rank's optimizer steps its own. Every
            rank calls the layer, and its backward pass, in the same order. The router is
            replicated; its gradient, like that of any replicated parameter, is this rank's
            share (see `average_gradients`).
        slots: experts that a rank has room for, S. More than ceil(E / R): the planner gives
            the busiest experts replicas and places all of them anew for every step, from the
            demand of the step before; every forward pass then brings the weights from their
            owners, and every backward pass the gradients back.
        average_gradients: over a group, divide the experts' gradients by R: they then are, as
            DistributedDataParallel makes the others', of the mean of the ranks' losses.
        device, dtype: of the parameters; routing is in fp32 at least.
    """

    def __init__(
        self,
        hidden: int,
        expert_width: int,
        experts: int,
        top_k: int,
        *,
        router: str = "softmax",
        renormalise: bool = True,
        routed_scale: float = 1.0,
        ratio: float = 1.0,
        init_std: float = 0.02,
        process_group: dist.ProcessGroup | None = None,
        slots: int | None = None,
        average_gradients: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **options: Any,
    ):
        super().__init__()
        sizes = {"hidden": hidden, "expert_width": expert_width, "experts": experts, "top_k": top_k}
        for name, size in sizes.items():
            if not isinstance(size, int) or size < 1:
                raise ValueError(
                    f"[MoELayer] {name} must be a whole number, at least 1, not {size!r}"
                )
        if top_k > experts:
            raise ValueError(f"[MoELayer] top_k must be at most the {experts} experts, not {top_k}")
        if router not in ("softmax", "sigmoid"):
            raise ValueError(f"[MoELayer] router must be 'softmax' or 'sigmoid', not {router!r}")
        self.hidden, self.expert_width, self.experts, self.top_k = sizes.values()
        self.router, self.renormalise, self.routed_scale = router, renormalise, routed_scale
        self.init_std = init_std

        if process_group is None:
            if slots not in (None, experts):
                raise ValueError(
                    f"[MoELayer] slots must be the {experts} experts without a process_group, "
                    f"not {slots}"
                )
            self._lrmoe_layer = ops.Layer(experts)
            self.scale = 1.0
        else:
            room = {} if slots is None else {"slots": slots}
            self._lrmoe_layer = ops.Layer(experts, group=process_group.group_name, **room)
            self.scale = 1.0 / process_group.size() if average_gradients else 1.0
        rows = len(self.owned_experts())
        self.delivers = len(self.layer.experts_here(owned=False)) > rows
        self.layer.configure(ratio=ratio, **options)
        made = {"device": device, "dtype": dtype}
        self.router_weight = nn.Parameter(torch.empty(experts, hidden, **made))
        if router == "sigmoid":
            self.register_buffer("router_bias", torch.zeros(experts, device=device))
        self.gate_up = nn.Parameter(torch.empty(rows, 2 * expert_width, hidden, **made))
        self.down = nn.Parameter(torch.empty(rows, hidden, expert_width, **made))
        self.aux_loss: torch.Tensor | None = None
        self.reset_parameters(process_group)

    @property
    def layer(self) -> ops.Layer:
        """Options, counts and score curves."""
        return self._lrmoe_layer

    def owned_experts(self) -> list[int]:
        """The experts that the rows of `gate_up` and `down` are of; -1: of none."""
        return self.layer.experts_here(owned=True)

    def reset_parameters(self, process_group: dist.ProcessGroup | None = None) -> None:
        """Random weights: each expert's depend on torch's seed (over a group, rank 0's) and on
        its number alone. Collective."""
        seed = torch.randint(2**62, ())
        if process_group is not None:
            dist.broadcast(seed, group=process_group, group_src=0)
        generator = torch.Generator().manual_seed(int(seed))

        def normal_(tensor: torch.Tensor) -> None:
            drawn = torch.empty(tensor.shape).normal_(std=self.init_std, generator=generator)
            tensor.copy_(drawn)

        with torch.no_grad():
            normal_(self.router_weight)
            for row, expert in enumerate(self.owned_experts()):
                generator.manual_seed((int(seed) + expert + 1) % 2**62)
                normal_(self.gate_up[row])
                normal_(self.down[row])

    def load_experts(self, gate_up: torch.Tensor, down: torch.Tensor) -> None:
        """Takes this rank's experts from the weights of all, [E, 2n, d] and [E, d, n]."""
        with torch.no_grad():
            for row, expert in enumerate(self.owned_experts()):
                if expert >= 0:
                    self.gate_up[row].copy_(gate_up[expert])
                    self.down[row].copy_(down[expert])

    def route(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Gates [T, k], ids [T, k] and every expert's share of the scores [T, E] of x [T, d]."""
        wide = torch.promote_types(self.router_weight.dtype, torch.float32)
        with torch.autocast(x.device.type, enabled=False):
            logits = nn.functional.linear(x.to(wide), self.router_weight.to(wide))
        # Never an id out of range, whatever the logits hold.
        logits = logits.nan_to_num(torch.finfo(wide).min / 4)
        if self.router == "softmax":
            scores = share = logits.softmax(-1)
            gates, ids = scores.topk(self.top_k, dim=-1)
        else:
            scores = logits.sigmoid()
            ids = (scores + self.router_bias).topk(self.top_k, dim=-1).indices
            gates = scores.gather(1, ids)
            share = scores / scores.sum(-1, keepdim=True).clamp_min(1e-20)
        if self.renormalise:
            gates = gates / gates.sum(-1, keepdim=True).clamp_min(1e-20)
        return gates * self.routed_scale, ids, share

    def _load_loss(self, share: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        flat = ids.flatten()
        ones = torch.ones_like(flat, dtype=share.dtype)
        counts = share.new_zeros(self.experts).scatter_add_(0, flat, ones)
        mean_share = share.sum(0) / max(share.shape[0], 1)
        return self.experts * (counts / max(ids.numel(), 1) * mean_share).sum()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """y, of the shape and dtype of x."""
        rows = x.reshape(-1, x.shape[-1])
        gates, ids, share = self.route(rows)
        if self.training:
            self.aux_loss = self._load_loss(share, ids)
        mode = self.layer.training_mode if self.training else ops.WHOLE
        gate_up, down = self.gate_up, self.down
        if self.scale != 1.0:
            gate_up, down = _Scaled.apply(gate_up, self.scale), _Scaled.apply(down, self.scale)
        if self.delivers:
            training = mode == ops.TRAIN and torch.is_grad_enabled()
            gate_up, down = torch.ops.lrmoe.deliver(gate_up, down, self.layer.handle, training)
        out = torch.ops.lrmoe.experts(
            rows.to(ops.computing_dtype(self.gate_up)),
            ids,
            gates,
            gate_up,
            down,
            self.layer.handle,
            mode,
        )
        return out.to(x.dtype).view(x.shape)

    def extra_repr(self) -> str:
        return (
            f"hidden={self.hidden}, expert_width={self.expert_width}, experts={self.experts}, "
            f"top_k={self.top_k}, router={self.router}, options={self.layer.options}"
        )
