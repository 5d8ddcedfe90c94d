"""`lrmoe eval` against Transformers' own eager implementation of the families."""

import tempfile
import unittest

from families import (
    Run, eager, error, glm4, lrmoe, mixtral, olmoe, program, qwen3, randomise, tokens,
)  # fmt: skip

FP32 = 1e-5

CASES = {
    "qwen3": (qwen3, {}),
    "qwen3 not renormalised, biases, tied, padding": (
        qwen3,
        dict(norm_topk_prob=False, attention_bias=True, tie_word_embeddings=True, pad_token_id=5),
    ),
    "qwen3 dense layers between, rope": (
        qwen3,
        dict(
            num_hidden_layers=4, decoder_sparse_step=2, mlp_only_layers=[3], num_experts=16,
            num_experts_per_tok=4, rope_parameters={"rope_type": "default", "rope_theta": 1e6},
        ),
    ),
    "qwen3 wide": (
        qwen3,
        dict(
            hidden_size=256, num_experts=64, num_experts_per_tok=8, head_dim=64, rms_norm_eps=1e-3
        ),
    ),
    "glm": (glm4, {}),
    "glm scaled, norms, biases": (
        glm4,
        dict(routed_scaling_factor=2.5, use_qk_norm=True, attention_bias=True, n_shared_experts=2),
    ),
    "glm groups": (
        glm4,
        dict(
            n_routed_experts=32, n_group=8, topk_group=3, num_experts_per_tok=5,
            routed_scaling_factor=2.5, first_k_dense_replace=0, num_hidden_layers=3,
        ),
    ),
    "glm not renormalised, rotary part, tied": (
        glm4,
        dict(
            norm_topk_prob=False, routed_scaling_factor=2.5, tie_word_embeddings=True,
            first_k_dense_replace=2, num_hidden_layers=3, hidden_size=128, pad_token_id=7,
            rope_parameters={
                "rope_type": "default", "rope_theta": 5e5, "partial_rotary_factor": 0.25
            },
        ),
    ),
    "olmoe": (olmoe, {}),
    "olmoe renormalised": (olmoe, dict(norm_topk_prob=True, num_key_value_heads=4)),
    "mixtral": (mixtral, {}),
}  # fmt: skip


class Parity(unittest.TestCase):
    def setUp(self):
        program()

    def compare(self, run, logits, gradients, limit):
        self.assertLess(error(run.logits, logits), limit)
        self.assertEqual(set(run.gradients), set(gradients))
        for name, wanted in gradients.items():
            self.assertLess(error(run.gradients[name], wanted), limit, name)

    def test_logits_and_every_gradient(self):
        ids = tokens(3, 40)
        for seed, (name, (make, options)) in enumerate(CASES.items()):
            model = randomise(make(**options), seed)
            logits, gradients, _ = eager(model, ids)
            with tempfile.TemporaryDirectory() as folder:
                model.save_pretrained(folder)
                for ranks in (1, 2, 4) if seed % 3 == 0 else (1, 4):
                    with self.subTest(name, ranks=ranks):
                        run = Run(folder, ids, "--ranks", ranks)
                        self.compare(run, logits, gradients, FP32)


if __name__ == "__main__":
    unittest.main()
