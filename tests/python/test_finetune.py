"""Fine-tuning from a Hugging Face folder by the program: the loss falls, a resumed run has
the same bits, and what is exported is what Transformers computes."""

import json
import pathlib
import tempfile
import unittest

import numpy
from families import lrmoe, program, qwen3, torch, transformers

STEPS = 24
CONFIG = """
[data]
path = "{lines}"
validation_fraction = 0.2
[model]
path = "{model}"
sequence = 24
[train]
steps = 24
tokens_per_step = 384
learning_rate = 3e-3
warmup = 3
weight_decay = 0.0
aux_loss = 0.0
evaluate_every = 0
evaluate_tokens = 480
accumulation = 2
[parallel]
ranks = 2
"""


def write_lines(path):
    """Prompts of a few ids; the completion counts on from the last of them."""
    random = numpy.random.default_rng(0)
    with path.open("w") as file:
        for _ in range(100):
            prompt = random.integers(3, 40, random.integers(3, 12)).tolist()
            completion = [(prompt[-1] + 1 + i) % 50 for i in range(random.integers(3, 12))]
            file.write(json.dumps({"tokens": prompt + completion, "prompt": len(prompt)}) + "\n")


class Finetune(unittest.TestCase):
    def setUp(self):
        program()
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)
        self.model = self.folder / "model"
        torch.manual_seed(3)
        qwen3().save_pretrained(self.model)
        write_lines(self.folder / "lines.jsonl")
        (self.folder / "config.toml").write_text(
            CONFIG.format(lines=self.folder / "lines.jsonl", model=self.model)
        )

    def train(self, run, *settings, resume=False):
        arguments = [part for setting in settings for part in ("--set", setting)]
        if resume:
            arguments.append("--resume")
        lrmoe("train", self.folder / "config.toml", "--run", self.folder / run, "--quiet", *arguments)
        lines = (self.folder / run / "metrics.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def evaluate(self, model, name):
        """Loss and logits of `lrmoe eval` on some ids."""
        ids = numpy.random.default_rng(1).integers(0, 131, (6, 20))
        numpy.save(self.folder / "ids.npy", ids)
        result = json.loads(
            lrmoe("eval", model, "--tokens", self.folder / "ids.npy", "--json", "-", "--ranks", 2,
                  "--logits", self.folder / name)
        )  # fmt: skip
        return torch.from_numpy(ids), result["loss"], torch.from_numpy(numpy.load(self.folder / name))

    def test_both_strategies_learn_resume_and_export(self):
        for strategy in ("fixed", "lrmoe"):
            with self.subTest(strategy):
                name = [f"strategy.name={strategy}", "lrmoe.ratio=0.5"]
                steps = self.train(strategy, *name)
                self.assertEqual(len(steps), STEPS)
                first = sum(s["loss"] for s in steps[:3]) / 3
                last = sum(s["loss"] for s in steps[-3:]) / 3
                self.assertLess(last, 0.85 * first)
                for step in steps:  # prompts and padding cost nothing in the last layer
                    zero = step["layers"]["zero_pairs"]
                    self.assertGreater(zero[-1], zero[0])

                half = strategy + "-half"
                self.train(half, *name, "train.checkpoint_every=10", "train.keep=9")
                for later in (20, STEPS):
                    (folder,) = self.folder.glob(f"{half}/step-{later}")
                    folder.rename(self.folder / f"{half}-{later}")
                again = self.train(half, *name, "train.checkpoint_every=10", "train.keep=9", resume=True)
                self.assertEqual([s["loss"] for s in again], [s["loss"] for s in steps])

                out = self.folder / (strategy + "-tuned")
                lrmoe("export", self.folder / strategy, out)
                ids, loss, logits = self.evaluate(self.folder / strategy, "run.npy")
                _, hf_loss, hf_logits = self.evaluate(out, "hf.npy")
                self.assertEqual(loss, hf_loss)
                self.assertTrue(torch.equal(logits, hf_logits))
                tuned = transformers.AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32)
                with torch.no_grad():
                    theirs = tuned(ids).logits.reshape(logits.shape)
                self.assertLess(((logits - theirs).abs().max() / theirs.abs().max()).item(), 1e-5)

    def test_the_run_starts_from_the_folders_weights(self):
        steps = self.train("run", "train.steps=1", "train.accumulation=1")
        model = transformers.AutoModelForCausalLM.from_pretrained(self.model, dtype=torch.float32)
        self.assertEqual(steps[0]["tokens"], 384)
        # The first step's loss is a mean over some of the training lines: those of all lie near.
        losses, counts = 0.0, 0
        for line in (self.folder / "lines.jsonl").read_text().splitlines()[:80]:
            example = json.loads(line)
            ids = torch.tensor([example["tokens"]])
            labels = ids.clone()
            labels[0, : example["prompt"]] = -100
            with torch.no_grad():
                logits = model(ids).logits[0, :-1]
            losses += torch.nn.functional.cross_entropy(logits, labels[0, 1:], reduction="sum").item()
            counts += int((labels[0, 1:] != -100).sum())
        self.assertLess(abs(steps[0]["loss"] - losses / counts), 0.05)

    def test_frozen_parts_and_bf16_weights_come_back_as_they_were(self):
        torch.manual_seed(4)
        qwen3().to(torch.bfloat16).save_pretrained(self.model)
        self.train("run", "train.train_only=experts", "train.dtype=bfloat16", "train.dense_dtype=float32")
        out = self.folder / "tuned"
        lrmoe("export", self.folder / "run", out)
        before = transformers.AutoModelForCausalLM.from_pretrained(self.model).state_dict()
        after = transformers.AutoModelForCausalLM.from_pretrained(out).state_dict()
        self.assertEqual(before.keys(), after.keys())
        for name, value in before.items():
            self.assertEqual(value.dtype, after[name].dtype)
            self.assertEqual(torch.equal(value, after[name]), ".experts." not in name, name)

    def test_mistakes_are_one_line(self):
        config = self.folder / "config.toml"
        for settings, part in (
            (["model.experts=16"], "contradicts"),
            ([f"model.path={self.folder}"], "config.json"),
            (["train.freeze=[\"rooter\"]"], "there are: embedding, attention, norms, router, experts, head"),
        ):
            arguments = [p for s in settings for p in ("--set", s)]
            error = lrmoe("train", config, "--run", self.folder / "x", *arguments, fails=True)
            self.assertEqual(error.count("\n"), 1, error)
            self.assertIn(part, error)
        weights = self.model / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[:-100])
        error = lrmoe("train", config, "--run", self.folder / "y", fails=True)
        self.assertEqual(error.count("\n"), 1, error)
        self.assertIn("model.safetensors", error)
        self.assertFalse((self.folder / "y").exists())


if __name__ == "__main__":
    unittest.main()
