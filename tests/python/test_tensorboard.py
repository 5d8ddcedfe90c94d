"""The event files hold what metrics.jsonl says, read back by TensorBoard itself."""

import io
import json
import tempfile
import unittest
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

from lrmoe import tensorboard
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.util.tensor_util import make_ndarray


def line(step):
    return {
        "step": step,
        "loss": 5.0 / step,
        "tokens": 4096,
        "added_variance": None,
        "engine": "threads",
        "layers": {"layer": [0, 2], "imbalance_forward": [1.0 + step, 2.0], "note": ["a", "b"]},
    }


def read(run):
    """{tag: [(step, value)]} of the event files of a run folder."""
    events = EventAccumulator(str(run / "tensorboard"))
    events.Reload()
    return {
        tag: [(e.step, float(make_ndarray(e.tensor_proto))) for e in events.Tensors(tag)]
        for tag in events.Tags()["tensors"]
    }


class TensorBoardTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.run_folder = Path(folder.name)
        self.metrics = self.run_folder / "metrics.jsonl"

    def write(self, text):
        self.metrics.write_text(text, encoding="utf-8")

    def test_scalars_and_layers_come_back(self):
        self.write("".join(json.dumps(line(step)) + "\n" for step in (1, 2, 4)))
        self.assertEqual(tensorboard.convert(self.run_folder), 3)
        self.assertEqual(
            read(self.run_folder),
            {
                "loss": [(1, 5.0), (2, 2.5), (4, 1.25)],
                "tokens": [(1, 4096.0), (2, 4096.0), (4, 4096.0)],
                "imbalance_forward/layer-0": [(1, 2.0), (2, 3.0), (4, 5.0)],
                "imbalance_forward/layer-2": [(1, 2.0), (2, 2.0), (4, 2.0)],
            },
        )

    def test_audits_and_objects_come_back(self):
        record = line(3)
        record["parts"] = {"plan": 0.5, "select": None}
        record["audit"] = {
            "seconds": 0.25,
            "layers": [
                {"layer": 0, "dense": {"cosine": 0.875, "relative_error": 0.5}},
                {
                    "layer": 1,
                    "experts": {"cosine": 0.75, "relative_error": None},
                    "router": {"cosine": 0.5, "relative_error": 2.0},
                    "dense": {"cosine": 1.0, "relative_error": 0.0},
                },
            ],
            "rest": {"cosine": 0.25, "relative_error": 4.0},
        }
        self.write(json.dumps(line(2)) + "\n" + json.dumps(record) + "\n")
        self.assertEqual(tensorboard.convert(self.run_folder), 2)
        found = read(self.run_folder)
        self.assertEqual(found["parts/plan"], [(3, 0.5)])
        self.assertNotIn("parts/select", found)
        self.assertEqual(
            {tag: values for tag, values in found.items() if tag.startswith("audit")},
            {
                "audit_dense_cosine/layer-0": [(3, 0.875)],
                "audit_dense_cosine/layer-1": [(3, 1.0)],
                "audit_dense_relative_error/layer-0": [(3, 0.5)],
                "audit_dense_relative_error/layer-1": [(3, 0.0)],
                "audit_experts_cosine/layer-1": [(3, 0.75)],
                "audit_router_cosine/layer-1": [(3, 0.5)],
                "audit_router_relative_error/layer-1": [(3, 2.0)],
                "audit_rest_cosine": [(3, 0.25)],
                "audit_rest_relative_error": [(3, 4.0)],
            },
        )

    def test_a_cut_line_is_left_out_until_it_is_whole(self):
        whole, rest = json.dumps(line(1)) + "\n", json.dumps(line(2)) + "\n"
        self.write(whole + rest[:20])
        conversion = tensorboard.Conversion(self.run_folder)
        self.assertEqual(conversion.advance(), 1)
        self.assertEqual(conversion.advance(), 0)
        self.write(whole + rest)
        self.assertEqual(conversion.advance(), 1)
        conversion.close()
        self.assertEqual(read(self.run_folder)["loss"], [(1, 5.0), (2, 2.5)])

    def test_converting_again_replaces(self):
        self.write(json.dumps(line(1)) + "\n")
        tensorboard.convert(self.run_folder)
        tensorboard.convert(self.run_folder)
        self.assertEqual(read(self.run_folder)["loss"], [(1, 5.0)])
        self.assertEqual(len(list((self.run_folder / "tensorboard").iterdir())), 1)

    def test_mistakes_are_one_line_and_status_2(self):
        self.write(json.dumps(line(1)) + "\nnonsense\n")
        for folder, expected in (
            (self.run_folder, "metrics.jsonl:2: not a line of metrics"),
            (self.run_folder / "missing", "is no run folder"),
        ):
            message = io.StringIO()
            with redirect_stderr(message), redirect_stdout(io.StringIO()):
                self.assertEqual(tensorboard.main([str(folder)]), 2)
            self.assertIn(expected, message.getvalue())
            self.assertEqual(message.getvalue().count("\n"), 1)


if __name__ == "__main__":
    unittest.main()
