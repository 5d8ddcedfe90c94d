"""What LRMoE tells a Transformers Trainer's log, and keeps in its checkpoints."""

import math
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel, TrainerCallback

from .audit import audit_gradients
from .configure import layers
from .transformers import experts_modules

_FILE = "lrmoe.pt"


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def figures(model: torch.nn.Module) -> dict[str, float]:
    """What the model's MoE layers did since they were last asked, means over the layers:

    retained_ratio: share of the pairs that had a backward pass;
    added_variance: what sampling added to the gradient's variance, relative to sum S^2;
    imbalance: the fullest expert's pairs over the mean, and imbalance_worst of any layer.
    """
    counts = [c for c in (layer.counts() for layer in layers(model).values()) if c["pairs"] > 0]
    if not counts:
        return {}
    imbalances = [max(c["demand"]) * len(c["demand"]) / sum(c["demand"]) for c in counts]
    variances = [
        c["added_variance"] / c["total_variance"] if c["total_variance"] > 0 else 0.0
        for c in counts
    ]
    return {
        "retained_ratio": _mean([c["kept"] / c["pairs"] for c in counts]),
        "added_variance": _mean(variances),
        "imbalance": _mean(imbalances),
        "imbalance_worst": max(imbalances),
    }


def _load_experts(model: torch.nn.Module, folder: Path) -> None:
    """Takes the experts' weights from a checkpoint. When it resumes, the Trainer (Transformers
    5.24) looks for them under fused names that save_pretrained does not write, warns of missing
    keys and leaves the experts as they are."""
    if not isinstance(model, PreTrainedModel):
        return
    saved = type(model).from_pretrained(folder).state_dict()
    with torch.no_grad():
        for name, module in experts_modules(model):
            for key, parameter in module.named_parameters():
                parameter.copy_(saved[f"{name}.{key}"])


class LrmoeCallback(TrainerCallback):
    """Adds to the Trainer's log, whenever it logs: ``lrmoe/retained_ratio``,
    ``lrmoe/added_variance``, ``lrmoe/imbalance`` (see `figures`); every `audit_every` steps also
    ``lrmoe/audit_{experts,router,dense}_{cosine,relative_error}``: the gradient of that step's
    first micro-batch against the one with every pair kept (two more passes of it; 0: never).

    It numbers the layers' steps and keeps their score curves in checkpoints (``lrmoe.pt``), so
    that a resumed run goes on with the same bits.

    The Trainer puts callbacks behind those of its reports (TensorBoard, ...), which then do not
    see the figures; `put_first` changes that.
    """

    def __init__(self, audit_every: int = 0):
        if not isinstance(audit_every, int) or audit_every < 0:
            raise ValueError(
                "[LrmoeCallback] audit_every must be a whole number, at least 0, not "
                f"{audit_every!r}"
            )
        self.audit_every = audit_every
        self._batch: tuple[tuple, dict] | None = None
        self._hook: Any = None
        self._audit: dict[str, float] = {}

    def put_first(self, trainer: Any) -> "LrmoeCallback":
        """Adds this callback to a Trainer, ahead of all others."""
        trainer.callback_handler.callbacks.insert(0, self)
        return self

    def on_train_begin(self, args, state, control, model=None, **kwargs):
        kept = Path(args.output_dir) / f"checkpoint-{state.global_step}" / _FILE
        found = layers(model)
        if state.global_step > 0 and kept.is_file():
            _load_experts(model, kept.parent)
            states = torch.load(kept, weights_only=True)
            for name, layer in found.items():
                if name in states:
                    layer.restore(states[name])
        for layer in found.values():
            layer.set_step(state.global_step)
        figures(model)  # what came before the training is not its own

    def on_step_begin(self, args, state, control, model=None, **kwargs):
        if self.audit_every > 0 and state.global_step % self.audit_every == 0:

            def record(_, positional, named):
                if self._batch is None:
                    self._batch = (positional, named)

            self._hook = model.register_forward_pre_hook(record, with_kwargs=True)

    def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
        if self._hook is None:
            return
        self._hook.remove()
        batch, self._hook, self._batch = self._batch, None, None
        if batch is None:
            return

        def loss() -> torch.Tensor:
            return model(*batch[0], **batch[1])["loss"]

        for part, agreement in audit_gradients(model, loss).items():
            for name, value in agreement.items():
                self._audit[f"lrmoe/audit_{part}_{name}"] = value

    def on_step_end(self, args, state, control, model=None, **kwargs):
        for layer in layers(model).values():
            layer.set_step(state.global_step)

    def on_log(self, args, state, control, model=None, logs=None, **kwargs):
        if logs is None or "loss" not in logs:
            return
        mine = {f"lrmoe/{name}": value for name, value in figures(model).items()}
        mine.update(self._audit)
        self._audit = {}
        mine = {name: value for name, value in mine.items() if math.isfinite(value)}
        logs.update(mine)
        if state.log_history:
            state.log_history[-1].update(mine)

    def on_save(self, args, state, control, model=None, **kwargs):
        folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        if state.is_world_process_zero and folder.is_dir():
            states = {name: layer.state() for name, layer in layers(model).items()}
            torch.save(states, folder / _FILE)
