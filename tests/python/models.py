"""Tiny models for the tests, and what is compared of them."""

import unittest

import torch

try:
    import transformers
except ImportError:
    transformers = None

needs_transformers = unittest.skipIf(
    transformers is None, "transformers is not installed (python/requirements-test.txt)"
)
VOCABULARY = 64


def one_thread(test):
    """Torch computes with one thread during the test: tests run side by side."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    test.addCleanup(torch.set_num_threads, threads)


def qwen3(**changes):
    """A Qwen3-MoE of two layers, 8 experts, top-2."""
    torch.manual_seed(5)
    config = transformers.Qwen3MoeConfig(
        **{
            "vocab_size": VOCABULARY,
            "hidden_size": 64,
            "intermediate_size": 96,
            "moe_intermediate_size": 48,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 16,
            "num_experts": 8,
            "num_experts_per_tok": 2,
            "norm_topk_prob": True,
            "use_cache": False,
            **changes,
        }
    )
    return transformers.Qwen3MoeForCausalLM(config).train()


def glm4(**changes):
    """A GLM-4.5 of three layers, the first dense; groups, a shared expert, scale 2.5."""
    torch.manual_seed(6)
    config = transformers.Glm4MoeConfig(
        **{
            "vocab_size": VOCABULARY,
            "hidden_size": 64,
            "intermediate_size": 96,
            "moe_intermediate_size": 48,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 16,
            "n_routed_experts": 8,
            "num_experts_per_tok": 2,
            "n_group": 2,
            "topk_group": 1,
            "first_k_dense_replace": 1,
            "routed_scaling_factor": 2.5,
            "use_cache": False,
            **changes,
        }
    )
    return transformers.Glm4MoeForCausalLM(config).train()


def token_ids(batch=3, length=17, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, VOCABULARY, (batch, length), generator=generator)


def passes(model, ids):
    """Logits and gradients of one forward and backward pass."""
    model.zero_grad()
    out = model(input_ids=ids, labels=ids)
    out.loss.backward()
    named = {n.removeprefix("_orig_mod."): p for n, p in model.named_parameters()}
    gradients = {n: p.grad.clone() for n, p in named.items() if p.grad is not None}
    return out.logits.detach().clone(), gradients


def relative(a, b):
    """|a - b| / |b|."""
    return ((a.double() - b.double()).norm() / b.double().norm().clamp_min(1e-30)).item()


def worst(a, b):
    """The greatest relative error of any tensor of two dictionaries, and its name."""
    assert a.keys() == b.keys()
    return max((relative(a[name], b[name]), name) for name in b)


def equal(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in b)
