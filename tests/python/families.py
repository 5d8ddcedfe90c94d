"""Small random models of the families, in Transformers, and `lrmoe` run on them."""

import json
import os
import pathlib
import subprocess
import unittest

import numpy

try:
    import safetensors.torch
    import torch
    import transformers

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
except ImportError:  # the tests say so
    torch = transformers = None


def program():
    """The lrmoe program, or why the test is skipped."""
    if transformers is None:
        raise unittest.SkipTest("torch or transformers is not installed")
    path = os.environ.get("LRMOE_PROGRAM", "")
    if not os.access(path, os.X_OK):
        raise unittest.SkipTest("LRMOE_PROGRAM does not name the lrmoe program")
    return path


def lrmoe(*arguments, fails=False):
    """Runs a command; its standard output, or its standard error where it must fail."""
    done = subprocess.run(
        [program(), *map(str, arguments)], capture_output=True, text=True, timeout=120
    )
    if fails:
        assert done.returncode == 2, (done.returncode, done.stderr)
        return done.stderr
    assert done.returncode == 0, done.stderr
    return done.stdout


COMMON = dict(vocab_size=131, num_attention_heads=4, max_position_embeddings=96)


def qwen3(**options):
    sizes = dict(
        hidden_size=64, intermediate_size=80, num_hidden_layers=2, num_key_value_heads=2,
        head_dim=24, moe_intermediate_size=40, num_experts=8, num_experts_per_tok=2,
        norm_topk_prob=True,
    )  # fmt: skip
    config = transformers.Qwen3MoeConfig(**COMMON, **(sizes | options))
    return transformers.Qwen3MoeForCausalLM(config)


def glm4(**options):
    sizes = dict(
        hidden_size=64, intermediate_size=80, num_hidden_layers=2, num_key_value_heads=2,
        head_dim=24, moe_intermediate_size=40, n_routed_experts=8, num_experts_per_tok=2,
        first_k_dense_replace=1,
    )  # fmt: skip
    config = transformers.Glm4MoeConfig(**COMMON, **(sizes | options))
    return transformers.Glm4MoeForCausalLM(config)


def olmoe(**options):
    sizes = dict(
        hidden_size=64, intermediate_size=40, num_hidden_layers=2, num_key_value_heads=2,
        num_experts=8, num_experts_per_tok=2, pad_token_id=1, eos_token_id=2,
    )  # fmt: skip
    config = transformers.OlmoeConfig(**COMMON, **(sizes | options))
    return transformers.OlmoeForCausalLM(config)


def mixtral(**options):
    sizes = dict(
        hidden_size=64, intermediate_size=40, num_hidden_layers=2, num_key_value_heads=2,
        num_local_experts=8, num_experts_per_tok=2,
    )  # fmt: skip
    config = transformers.MixtralConfig(**COMMON, **(sizes | options))
    return transformers.MixtralForCausalLM(config)


def randomise(model, seed):
    """Weights at which every part of the model matters, biases and norms included."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, value in [*model.named_parameters(), *model.named_buffers()]:
            noise = torch.randn(value.shape, generator=generator)
            if name.endswith("inv_freq"):
                continue
            if name.endswith("norm.weight") or "layernorm" in name:
                value.copy_(1 + 0.2 * noise)
            elif name.endswith("e_score_correction_bias"):
                value.copy_(0.3 * noise)
            elif value.dim() == 1:
                value.copy_(0.2 * noise)
            else:
                value.copy_(noise * (0.7 / value.shape[-1] ** 0.5))
    return model


def tokens(rows, length, seed=3):
    return numpy.random.default_rng(seed).integers(0, COMMON["vocab_size"], (rows, length))


def hf_named(model, grads):
    """Tensors by the names that a checkpoint has: experts one by one."""
    out = {}
    mixtral_names = model.config.model_type == "mixtral"
    for name, value in grads.items():
        if ".experts.gate_up_proj" in name or ".experts.down_proj" in name:
            prefix = name.rsplit(".", 1)[0]
            if mixtral_names:
                prefix = prefix.replace(".mlp.", ".block_sparse_moe.")
            for e, one in enumerate(value):
                if "gate_up" in name:
                    gate, up = one.chunk(2)
                    pair = ("w1", "w3") if mixtral_names else ("gate_proj", "up_proj")
                    out[f"{prefix}.{e}.{pair[0]}.weight"] = gate
                    out[f"{prefix}.{e}.{pair[1]}.weight"] = up
                else:
                    down = "w2" if mixtral_names else "down_proj"
                    out[f"{prefix}.{e}.{down}.weight"] = one
        else:
            if mixtral_names:
                name = name.replace(".mlp.gate.", ".block_sparse_moe.gate.")
            out[name] = value
    return out


def eager(model, ids, aux_weight=0.0):
    """Logits and gradients by Transformers' eager implementation, and its auxiliary loss."""
    model.set_attn_implementation("eager")
    model.set_experts_implementation("eager")
    model.train()
    model.zero_grad()
    ids = torch.from_numpy(numpy.asarray(ids))
    extra = dict(output_router_logits=True) if aux_weight else {}
    model.config.router_aux_loss_coef = model.router_aux_loss_coef = aux_weight
    out = model(input_ids=ids, labels=ids, use_cache=False, **extra)
    out.loss.backward()
    grads = {
        n: torch.zeros_like(p) if p.grad is None else p.grad for n, p in model.named_parameters()
    }
    aux = float(out.aux_loss.detach()) if aux_weight else None
    return out.logits.detach().float(), hf_named(model, grads), aux


class Run:
    """What `lrmoe eval` writes for a folder."""

    def __init__(self, folder, ids, *options):
        self.folder = pathlib.Path(folder)
        numpy.save(self.folder / "ids.npy", ids)
        output = lrmoe(
            "eval", self.folder, "--tokens", self.folder / "ids.npy",
            "--logits", self.folder / "logits.npy",
            "--gradients", self.folder / "gradients.safetensors", "--json", "-", *options,
        )  # fmt: skip
        self.json = json.loads(output)
        logits = torch.from_numpy(numpy.load(self.folder / "logits.npy"))
        self.logits = logits.view(*ids.shape, -1)
        self.gradients = safetensors.torch.load_file(self.folder / "gradients.safetensors")


def error(found, wanted):
    """Relative, in norm."""
    found, wanted = found.double(), wanted.double()
    scale = float(wanted.norm())
    return float((found - wanted).norm()) / scale if scale > 0 else float(found.norm())
