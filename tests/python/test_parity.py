"""`lrmoe eval` against Transformers' own eager implementation of the families."""

import tempfile
import unittest

from families import (
    Run, eager, error, glm4, hf_named, mixtral, olmoe, program, qwen3, randomise, tokens, torch,
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
            every = name in ("qwen3", "glm groups")
            with tempfile.TemporaryDirectory() as folder:
                model.save_pretrained(folder)
                for ranks in (1, 2, 4) if every else ((4, 2, 1)[seed % 3],):
                    with self.subTest(name, ranks=ranks):
                        run = Run(folder, ids, "--ranks", ranks)
                        self.compare(run, logits, gradients, FP32)

    def rounded_runs(self, model, ids, *options):
        """Gradients with the logits among them: of fp32, of eager in bf16, of lrmoe in bf16."""
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(folder)
            # Rounds the weights; GLM's gate stays fp32.
            rounded = type(model).from_pretrained(folder, dtype=torch.bfloat16)
            rounded.save_pretrained(folder)
            exact = type(model).from_pretrained(folder, dtype=torch.float32)
            run = Run(folder, ids, *options)
        found = [eager(exact, ids), eager(rounded, ids), (run.logits, run.gradients, None)]
        return [gradients | {"logits": logits} for logits, gradients, _ in found]

    def test_bfloat16_is_no_worse_than_eager(self):
        """Every token uses every expert, so that no choice hangs on a rounding."""
        ids = tokens(4, 48)
        every = dict(num_hidden_layers=3, hidden_size=128, num_experts_per_tok=8)
        for make, options in ((qwen3, {}), (glm4, dict(routed_scaling_factor=2.5))):
            model = randomise(make(**every, **options), 1)
            exact, rough, ours = self.rounded_runs(model, ids, "--ranks", 2)
            for name, wanted in exact.items():
                with self.subTest(make.__name__, tensor=name):
                    self.assertLess(
                        error(ours[name], wanted), 1.5 * error(rough[name], wanted)
                    )

    def test_bfloat16_choices_are_no_worse_than_eager(self):
        """With real choices a rounding may send a token elsewhere: on the average of seeds."""
        ids = tokens(4, 48)
        for make in (qwen3, glm4):
            sums = {"logits": [0.0, 0.0], "gradients": [0.0, 0.0]}
            for seed in range(3):
                runs = self.rounded_runs(
                    randomise(make(num_hidden_layers=3, hidden_size=128), seed), ids
                )
                for i in range(2):
                    exact = dict(runs[0])
                    found = dict(runs[1 + i])
                    sums["logits"][i] += error(found.pop("logits"), exact.pop("logits"))
                    names = sorted(exact)
                    flat = [torch.cat([t[n].flatten().float() for n in names]) for t in (found, exact)]
                    sums["gradients"][i] += error(*flat)
            for part, (eager_error, own_error) in sums.items():
                with self.subTest(make.__name__, part=part):
                    self.assertLess(own_error, 1.5 * eager_error)

    def test_auxiliary_loss_of_transformers(self):
        ids = tokens(3, 40)
        for seed, (make, options) in enumerate(
            ((qwen3, dict(num_hidden_layers=3)), (olmoe, {}), (mixtral, {}))
        ):
            model = randomise(make(**options), seed)
            logits, gradients, aux = eager(model, ids, aux_weight=0.5)
            with self.subTest(make.__name__), tempfile.TemporaryDirectory() as folder:
                model.save_pretrained(folder)
                run = Run(
                    folder, ids, "--ranks", 1 + seed,
                    "--aux-loss", 0.5, "--aux-loss-kind", "transformers",
                )  # fmt: skip
                self.assertAlmostEqual(run.json["aux_loss"], aux, delta=1e-6 * aux)
                self.compare(run, logits, gradients, FP32)

    def test_auxiliary_loss_of_each_layer(self):
        """Megatron's: E / (k T^2) sum_e pairs_e sum_t share_te of each layer, summed."""
        ids = tokens(3, 40)
        for make in (qwen3, glm4):
            model = randomise(make(num_hidden_layers=3), 5)
            seen = []
            for module in model.modules():
                if type(module).__name__.endswith("outer"):
                    module.register_forward_hook(lambda m, args, out: seen.append(out))
            model.train()
            batch = torch.from_numpy(ids)
            out = model(input_ids=batch, labels=batch, use_cache=False)
            aux = 0
            for router_logits, _, chosen in seen:
                if make is qwen3:
                    share = router_logits.softmax(-1)
                else:
                    share = router_logits.sigmoid()
                    share = share / share.sum(-1, keepdim=True)
                rows, experts = share.shape
                pairs = torch.bincount(chosen.flatten(), minlength=experts)
                scale = experts / (chosen.shape[1] * rows**2)
                aux = aux + scale * (pairs * share.sum(0)).sum()
            self.assertEqual(len(seen), 3 if make is qwen3 else 2)
            (out.loss + 0.25 * aux).backward()
            gradients = hf_named(model, {n: p.grad for n, p in model.named_parameters()})
            with self.subTest(make.__name__), tempfile.TemporaryDirectory() as folder:
                model.save_pretrained(folder)
                run = Run(folder, ids, "--ranks", 2, "--aux-loss", 0.25)
                self.assertAlmostEqual(run.json["aux_loss"], float(aux), delta=1e-6 * float(aux))
                self.compare(run, out.logits.detach(), gradients, FP32)


if __name__ == "__main__":
    unittest.main()
