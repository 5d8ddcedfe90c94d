"""Transformers with experts_implementation="lrmoe": the same function and gradients, unless asked
for a part; under checkpointing, compilation, autocast and gradient accumulation."""

import copy
import tempfile
import unittest

import torch

from models import (
    equal,
    glm4,
    needs_transformers,
    one_thread,
    passes,
    qwen3,
    relative,
    token_ids,
    transformers,
    worst,
)

if transformers is not None:
    import lrmoe

FAMILIES = (
    (qwen3, {}),
    (qwen3, {"norm_topk_prob": False, "num_experts_per_tok": 3}),
    (glm4, {}),
    (glm4, {"norm_topk_prob": False, "routed_scaling_factor": 1.0, "use_qk_norm": True}),
)


@needs_transformers
class ExpertsImplementation(unittest.TestCase):
    def setUp(self):
        one_thread(self)

    def test_keep_all_equals_eager(self):
        ids = token_ids()
        for make, changes in FAMILIES:
            model = make(**changes)
            model.set_experts_implementation("eager")
            logits, gradients = passes(model, ids)
            model.set_experts_implementation("lrmoe")
            mine, my_gradients = passes(model, ids)
            self.assertLess((mine - logits).abs().max().item(), 1e-6)
            self.assertLess(worst(my_gradients, gradients)[0], 1e-5)

    def test_bfloat16_is_as_exact_as_eager(self):
        ids = token_ids()
        right = passes(qwen3(), ids)
        model = qwen3().bfloat16()
        errors = {}
        for name in ("eager", "lrmoe"):
            model.set_experts_implementation(name)
            logits, gradients = passes(model, ids)
            errors[name] = (relative(logits, right[0]), worst(gradients, right[1])[0])
        self.assertLess(errors["lrmoe"][0], 1.5 * errors["eager"][0])
        self.assertLess(errors["lrmoe"][1], 1.5 * errors["eager"][1])

    def test_autocast_computes_as_eager_does(self):
        ids = token_ids()
        model = qwen3()
        right = passes(model, ids)[0]
        with torch.autocast("cpu", torch.bfloat16):
            eager = passes(model, ids)
            model.set_experts_implementation("lrmoe")
            mine = passes(model, ids)
        self.assertLess(relative(mine[0], right), 1.5 * relative(eager[0], right))
        self.assertEqual({g.dtype for g in mine[1].values()}, {torch.float32})

    def test_from_pretrained_and_configure(self):
        with tempfile.TemporaryDirectory() as folder:
            qwen3().save_pretrained(folder)
            model = transformers.AutoModelForCausalLM.from_pretrained(
                folder, experts_implementation="lrmoe"
            ).train()
        ids = token_ids()
        whole = passes(model, ids)
        names = [f"model.layers.{i}.mlp.experts" for i in range(2)]
        self.assertEqual(list(lrmoe.layers(model)), names)
        lrmoe.configure(model, ratio=0.5, metric="update-norm", seed=4)
        sampled = passes(model, ids)
        self.assertTrue(torch.equal(sampled[0], whole[0]))  # the function is the same
        self.assertGreater(worst(sampled[1], whole[1])[0], 0.05)
        for layer in lrmoe.layers(model).values():
            counts = layer.counts()
            self.assertEqual(counts["pairs"], 2 * 2 * ids.numel())
            self.assertEqual(counts["kept"], 2 * ids.numel() + ids.numel())
        self.assertTrue(equal(passes(model, ids)[1], sampled[1]))
        self.assertTrue(equal(passes(copy.deepcopy(model), ids)[1], sampled[1]))
        lrmoe.configure(model, ratio=1)
        self.assertTrue(equal(passes(model, ids)[1], whole[1]))
        lrmoe.configure(model, ratio=0.5)
        self.assertTrue(equal(passes(model.eval(), ids)[1], whole[1]))

    def test_mistakes(self):
        model = qwen3()
        with self.assertRaisesRegex(ValueError, 'uses the experts implementation "grouped_mm"'):
            lrmoe.configure(model, ratio=0.5)
        model.set_experts_implementation("lrmoe")
        with self.assertRaisesRegex(ValueError, "ratio must be a number above 0 .*, not 0"):
            lrmoe.configure(model, ratio=0)
        with self.assertRaisesRegex(ValueError, "Linear has no MoE layers"):
            lrmoe.configure(torch.nn.Linear(2, 2))
        other = qwen3(hidden_act="gelu")
        other.set_experts_implementation("lrmoe")
        with self.assertRaisesRegex(ValueError, "Qwen3MoeExperts has the activation GELU"):
            passes(other, token_ids())

    def test_checkpointing_gives_the_same_bits(self):
        ids = token_ids()
        model = qwen3()
        model.set_experts_implementation("lrmoe")
        lrmoe.configure(model, ratio=0.5)
        right = passes(model, ids)
        for reentrant in (False, True):
            model.gradient_checkpointing_enable({"use_reentrant": reentrant})
            if reentrant:
                model.enable_input_require_grads()
            mine = passes(model, ids)
            self.assertTrue(torch.equal(mine[0], right[0]))
            self.assertTrue(equal(mine[1], right[1]))

    def test_compile_gives_the_same_bits(self):
        """Traced whole by Dynamo and AOTAutograd; Inductor's own kernels would round otherwise."""
        ids = token_ids()
        model = qwen3()
        model.set_experts_implementation("lrmoe")
        lrmoe.configure(model, ratio=0.5)
        right = passes(model, ids)
        mine = passes(torch.compile(model, backend="aot_eager", fullgraph=True), ids)
        self.assertTrue(torch.equal(mine[0], right[0]))
        self.assertTrue(equal(mine[1], right[1]))

    def test_accumulated_batches_are_sampled_apart(self):
        model = qwen3()
        model.set_experts_implementation("lrmoe")
        lrmoe.configure(model, ratio=0.5)
        parts = [passes(model, token_ids(seed=s))[1] for s in (1, 2)]
        model.zero_grad()
        for seed in (1, 2):
            ids = token_ids(seed=seed)
            model(input_ids=ids, labels=ids).loss.backward()
        for name, parameter in model.named_parameters():
            self.assertLess(relative(parameter.grad, parts[0][name] + parts[1][name]), 1e-6)
        self.assertEqual({layer.state()[0].item() for layer in lrmoe.layers(model).values()}, {0})


if __name__ == "__main__":
    unittest.main()
