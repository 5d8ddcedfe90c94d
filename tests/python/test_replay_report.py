"""The page of a replay says what its JSON says, and needs no network."""

import copy
import importlib.util
import io
import json
import tempfile
import unittest
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

from lrmoe.report.__main__ import main
from lrmoe.report.data import InputError
from lrmoe.report.replay import read_replay

HAS_PLOTLY = importlib.util.find_spec("plotly") is not None


def result(name: str, loads: list[int], seconds: float, memory: int) -> dict:
    terms = {"weights": 1, "gradients": 2, "activations": 3, "buffers": memory, "workspace": 5}
    layers = [
        {"layer": n, "step": 0, "forward_load": loads, "backward_load": loads, "notes": ["a: 1"]}
        for n in range(3)
    ]
    total = {
        "seconds": seconds,
        "forward_seconds": seconds / 2,
        "backward_seconds": seconds / 4,
        "update_seconds": seconds / 4,
        "imbalance_forward": 1.5,
        "imbalance_backward": 1.25,
        "routed_pairs": 100,
        "kept_pairs": 25,
        "dropped_pairs": 0,
        "memory_subtotal": 6 + memory,
        "memory": terms,
        "against": {"fixed": {"seconds": 0.5, "memory": 0.25}},
    }
    return {"strategy": name, "slots": 4, "layers": layers, "total": total}


REPLAY = {
    "format": "lrmoe-replay",
    "version": 1,
    "model": "glm <b>",
    "profile": "h200-ib",
    "ranks": 2,
    "tokens": 100,
    "scale": 2,
    "placement": "same-step",
    "layers_in_flight": 3,
    "trace": {"file": "'t'", "experts": 8, "top_k": 2, "layers": 3, "steps": 1, "scores": "gates"},
    "results": [result("fixed", [10, 30], 2.0, 2**30), result("lrmoe", [20, 20], 1.0, 2**20)],
}


class ReplayReport(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = Path(self.folder.name) / "r.json"

    def write(self, data) -> None:
        self.path.write_text(json.dumps(data), encoding="utf-8")

    def run_main(self, *arguments: str) -> tuple[int, str, str]:
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            status = main([str(a) for a in arguments])
        return status, out.getvalue(), err.getvalue()

    @unittest.skipUnless(HAS_PLOTLY, "plotly is not installed in this interpreter")
    def test_page(self):
        self.write(REPLAY)
        target = self.path.with_name("page.html")
        status, out, err = self.run_main(self.path, "-o", target)
        self.assertEqual((status, out.strip(), err), (0, str(target), ""))
        text = target.read_text(encoding="utf-8")
        self.assertIn("glm &lt;b&gt; on 2 ranks", text)
        self.assertIn("lrmoe takes the least time, 1.00 s a step", text)
        self.assertIn("lrmoe is the most even, 1.0000", text)
        self.assertIn("What plans gave up", text)
        self.assertIn("default-src 'none'", text)
        figures = json.loads(
            text.split('<script type="application/json" id="charts">')[1].split("</script>")[0]
        )
        self.assertEqual(figures["chart-0"]["data"][0]["y"], [1.5, 1.5, 1.5])
        self.assertEqual(len(figures), 4)
        self.run_main(self.path)
        self.assertTrue(self.path.with_suffix(".html").exists())

    def test_load_per_layer(self):
        self.write(REPLAY)
        runs = read_replay(self.path).runs
        self.assertEqual(runs[0].per_layer("forward_load"), {0: 1.5, 1: 1.5, 2: 1.5})

    def test_what_is_no_replay(self):
        missing = copy.deepcopy(REPLAY)
        del missing["results"][0]["total"]["memory"]
        for data, part in (
            ([], "no replay"),
            ({"format": "lrmoe-plan"}, "no replay"),
            ({**REPLAY, "version": 2}, "version 2"),
            (missing, "'memory' is missing"),
            ({**REPLAY, "results": []}, "no strategy"),
        ):
            self.write(data)
            with self.assertRaisesRegex(InputError, part):
                read_replay(self.path)
            status, _, err = self.run_main(self.path)
            self.assertEqual(status, 2)
            self.assertEqual(err.count("\n"), 1)
        self.path.write_text("{", encoding="utf-8")
        with self.assertRaisesRegex(InputError, "no JSON"):
            read_replay(self.path)


if __name__ == "__main__":
    unittest.main()
