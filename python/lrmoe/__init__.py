"""LRMoE in Python: Mixture-of-Experts layers whose backward pass keeps a planned part of the
routed pairs, for PyTorch and Transformers; and what works on the `lrmoe` program's files.

Importing it registers the Transformers experts implementation ``"lrmoe"``.
"""

import importlib
import importlib.util
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .audit import audit_gradients as audit_gradients
    from .callback import LrmoeCallback as LrmoeCallback
    from .configure import configure as configure
    from .configure import layers as layers
    from .configure import leave_experts_to_lrmoe as leave_experts_to_lrmoe
    from .moe_layer import MoELayer as MoELayer
    from .planning import estimate as estimate
    from .planning import plan as plan
    from .planning import replay as replay

_PUBLIC = {
    "LrmoeCallback": "callback",
    "MoELayer": "moe_layer",
    "audit_gradients": "audit",
    "configure": "configure",
    "estimate": "planning",
    "layers": "configure",
    "leave_experts_to_lrmoe": "configure",
    "plan": "planning",
    "replay": "planning",
}
__all__ = sorted(_PUBLIC)


def __getattr__(name: str):
    if name not in _PUBLIC:
        raise AttributeError(f"module 'lrmoe' has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_PUBLIC[name]}", __name__), name)
    globals()[name] = value
    return value


def _wanted(package: str) -> bool:
    return package in sys.modules or importlib.util.find_spec(package) is not None


# `python -m lrmoe.report` and its like need neither and start quicker without.
if sys.argv[:1] != ["-m"] and _wanted("torch") and _wanted("transformers"):
    from . import transformers as _register  # noqa: F401
