"""Transformers' Trainer with the lrmoe experts: it learns, logs, saves and resumes."""

import tempfile
import unittest
from pathlib import Path

import torch

from models import equal, needs_transformers, one_thread, qwen3, transformers

if transformers is not None:
    import lrmoe


class Counting(torch.utils.data.Dataset):
    """Sequences that count upwards from a random start: easy to learn."""

    def __len__(self):
        return 400

    def __getitem__(self, i):
        ids = (torch.arange(16) + i * 7) % 64
        return {"input_ids": ids, "labels": ids}


@needs_transformers
class TrainerTest(unittest.TestCase):
    def setUp(self):
        one_thread(self)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def trainer(self, name):
        model = qwen3(experts_implementation="lrmoe")
        lrmoe.configure(model, ratio=0.5)
        arguments = transformers.TrainingArguments(
            str(self.folder / name),
            max_steps=50,
            per_device_train_batch_size=4,
            gradient_accumulation_steps=2,
            learning_rate=3e-3,
            logging_steps=5,
            save_steps=25,
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
            seed=3,
        )
        callback = lrmoe.LrmoeCallback(audit_every=10)
        return transformers.Trainer(
            model, arguments, train_dataset=Counting(), callbacks=[callback]
        )

    def test_trains_logs_saves_and_resumes(self):
        whole = self.trainer("run")
        whole.train()
        history = [line for line in whole.state.log_history if "loss" in line]
        self.assertLess(history[-1]["loss"], 0.5 * history[0]["loss"])
        for line in history:
            self.assertAlmostEqual(line["lrmoe/retained_ratio"], 0.5, delta=0.01)
            self.assertGreater(line["lrmoe/added_variance"], 0.0)
            self.assertGreaterEqual(line["lrmoe/imbalance"], 1.0)
        audits = [line for line in history if "lrmoe/audit_experts_cosine" in line]
        self.assertEqual(len(audits), 5)
        for line in audits:
            self.assertGreater(line["lrmoe/audit_experts_cosine"], 0.3)
            self.assertGreater(line["lrmoe/audit_experts_relative_error"], 0.01)
            self.assertGreater(line["lrmoe/audit_dense_cosine"], line["lrmoe/audit_experts_cosine"])
        steps = {layer.state()[0].item() for layer in lrmoe.layers(whole.model).values()}
        self.assertEqual(steps, {50})

        resumed = self.trainer("run")
        resumed.train(resume_from_checkpoint=str(self.folder / "run" / "checkpoint-25"))
        self.assertTrue(equal(dict(resumed.model.state_dict()), dict(whole.model.state_dict())))


if __name__ == "__main__":
    unittest.main()
