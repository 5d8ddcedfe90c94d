"""The torch operators (``torch.ops.lrmoe``) and the states of MoE layers behind them."""

import json
import os
import weakref
from pathlib import Path
from typing import Any

import torch

#: How a call of the experts is meant (``mode`` of ``torch.ops.lrmoe.experts``).
WHOLE, TRAIN, SILENT = 0, 1, 2


def _library() -> Path:
    """Where the library of operators is: named by LRMOE_LIBRARY, beside the installed
    package, or where `make build` leaves it."""
    name = "lrmoe_ops.so"
    here = Path(__file__).resolve().parent
    named = os.environ.get("LRMOE_LIBRARY")
    built = here.parents[1] / "build/release/python" / name
    places = [Path(named)] if named else [here / name, built]
    for place in places:
        if place.is_file():
            return place
    raise ImportError(
        "lrmoe: there is no library of operators at "
        + " or ".join(map(str, places))
        + "; run `make build` in the repository, or `pip install .`"
    )


torch.ops.load_library(_library())


@torch.library.register_fake("lrmoe::experts_forward")
def _(x, ids, gates, gate_up, down, layer, mode, backward):
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    return out, x.new_empty(1, dtype=torch.int64)


@torch.library.register_fake("lrmoe::experts_backward")
def _(delta, token, x, gates, gate_up, down):
    like = torch.contiguous_format
    return tuple(torch.empty_like(t, memory_format=like) for t in (x, gates, gate_up, down))


@torch.library.register_fake("lrmoe::deliver_forward")
def _(gate_up, down, layer, train):
    slots = len(torch.ops.lrmoe.layer_experts(layer, False))
    return tuple(t.new_empty(slots, *t.shape[1:]) for t in (gate_up, down))


@torch.library.register_fake("lrmoe::deliver_backward")
def _(gate_up, down, layer):
    owned = len(torch.ops.lrmoe.layer_experts(layer, True))
    return tuple(t.new_empty(owned, *t.shape[1:]) for t in (gate_up, down))


class Layer:
    """The state of one MoE layer: options, score curves, counts. It is copied and
    pickled with its module; `handle` is its number in ``torch.ops.lrmoe``."""

    def __init__(self, experts: int, **settings: Any):
        self.settings = {"experts": experts, **settings}
        self.options: dict[str, Any] = {}
        #: What `mode` training passes have; the gradient audit changes it for a while.
        self.training_mode = TRAIN
        self._make()

    def _make(self) -> None:
        self.handle: int = torch.ops.lrmoe.layer_new(json.dumps(self.settings))
        weakref.finalize(self, torch.ops.lrmoe.layer_free, self.handle)

    def configure(self, **options: Any) -> None:
        """Keys of the configuration's section ``[lrmoe]``, and `seed` and `index`.
        ValueError names a key that is wrong; nothing has changed then."""
        torch.ops.lrmoe.layer_configure(self.handle, json.dumps(options, default=float))
        self.options.update(options)

    def experts_here(self, owned: bool) -> list[int]:
        """The expert in each slot of this rank, -1 where it is empty: of the parameters that it
        owns, or of the placement in force."""
        return torch.ops.lrmoe.layer_experts(self.handle, owned)

    def counts(self) -> dict[str, Any]:
        """Sums over the backward passes since they were last asked for."""
        return json.loads(torch.ops.lrmoe.layer_counts(self.handle))

    def set_step(self, step: int) -> None:
        """Says which step it is. Without it, a change of the weights begins a new one."""
        torch.ops.lrmoe.layer_step(self.handle, step)

    def state(self) -> torch.Tensor:
        """Step and score curves, int64."""
        return torch.ops.lrmoe.layer_state(self.handle)

    def restore(self, state: torch.Tensor) -> None:
        torch.ops.lrmoe.layer_restore(self.handle, state)

    def __getstate__(self) -> dict[str, Any]:
        return {"settings": self.settings, "options": self.options, "state": self.state()}

    def __setstate__(self, kept: dict[str, Any]) -> None:
        self.settings, self.options = kept["settings"], dict(kept["options"])
        self.training_mode = TRAIN
        self._make()
        self.configure(**self.options)
        self.restore(kept["state"])


def computing_dtype(weight: torch.Tensor) -> torch.dtype:
    """Autocast's dtype where it is on, otherwise that of the weights."""
    device = weight.device.type
    if torch.is_autocast_enabled(device) and weight.dtype != torch.float64:
        return torch.get_autocast_dtype(device)
    return weight.dtype
