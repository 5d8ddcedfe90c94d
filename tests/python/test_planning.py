"""lrmoe.plan, lrmoe.replay and lrmoe.estimate over NumPy arrays."""

import unittest

import lrmoe
import numpy as np

RANKS, EXPERTS, SLOTS = 4, 8, 4


def demand():
    generator = np.random.default_rng(3)
    return generator.multinomial(4000, generator.dirichlet(np.full(EXPERTS, 0.5)), RANKS)


class Planning(unittest.TestCase):
    def test_plan(self):
        counts = demand()
        plan = lrmoe.plan(counts, top_k=2, slots=SLOTS, strategy="lrmoe:ratio=0.25")
        self.assertEqual(plan.placement.shape, (RANKS, SLOTS))
        self.assertEqual(set(plan.placement.flatten()) - {-1}, set(range(EXPERTS)))
        for routes, table in ((plan.forward, counts), (plan.backward, plan.quota)):
            sums = np.zeros_like(counts)
            np.add.at(sums, (routes[:, 0], routes[:, 1]), routes[:, 3])
            self.assertTrue((sums == table).all())
        self.assertAlmostEqual(plan.quota.sum() / counts.sum(), 0.25, places=3)
        load = plan.load("forward")
        self.assertEqual(load.sum(), counts.sum())
        self.assertLess(load.max() / load.mean(), 1.01)
        fixed = lrmoe.plan(counts, top_k=2, strategy="fixed")
        self.assertEqual(fixed.placement.tolist(), [[0, 1], [2, 3], [4, 5], [6, 7]])
        self.assertGreater(fixed.load().max(), load.max())
        again = lrmoe.plan(counts, top_k=2, strategy="lrmoe:ratio=1", placement=plan.placement)
        self.assertTrue((again.placement == plan.placement).all())
        self.assertTrue((again.quota == counts).all())

    def test_replay(self):
        generator = np.random.default_rng(4)
        shape = (2, 1, 256, 2)
        weights = generator.dirichlet(np.full(EXPERTS, 0.5))
        ids = np.argsort(
            np.log(weights) + generator.gumbel(size=(2, 1, 256, EXPERTS)),
            axis=-1,
        )[..., -2:]
        gates = np.full(shape, 0.5)
        report = lrmoe.replay(
            ids, gates, experts=EXPERTS, ranks=RANKS, strategies=["fixed", "lrmoe:ratio=0.5"]
        )
        self.assertEqual(report["format"], "lrmoe-replay")
        fixed, ours = report["results"]
        self.assertEqual(len(ours["layers"]), 2)
        for result in (fixed, ours):
            for layer in result["layers"]:
                self.assertEqual(sum(layer["forward_load"]), 512)
        self.assertEqual(sum(fixed["layers"][0]["backward_load"]), 512)
        self.assertEqual(sum(ours["layers"][0]["backward_load"]), 256)
        of_last = np.bincount(ids[1].flatten() * RANKS // EXPERTS, minlength=RANKS)
        self.assertEqual(fixed["layers"][1]["forward_load"], of_last.tolist())

    def test_estimate(self):
        made = lrmoe.estimate("qwen3-30b-a3b", ranks=8, tokens=65536, strategy="lrmoe:ratio=0.5")
        self.assertEqual(made["routed_pairs"], 8 * 65536)
        self.assertEqual(made["kept_pairs"], 4 * 65536)
        self.assertEqual(len(made["memory"]), 8)
        weights = 48 * made["slots"] * 3 * 2048 * 768 * 2  # layers, slots, 3dn, bf16
        self.assertEqual(made["memory"][0]["weights"], weights)

    def test_mistakes(self):
        for arguments, message in (
            ({"demand": [1, 2]}, r"demand must be \[R, E\], not of shape \(2,\)"),
            ({"demand": [[0.5, 1.0]]}, "demand must hold whole numbers, not float64"),
            ({"demand": [[-1, 2]]}, "counts pairs, 0 or more, not -1"),
            ({"demand": [[1, 2]], "strategy": "simi"}, "simi"),
            ({"demand": [[1, 2]], "top_k": 3}, "top_k 3 is more than the 2 experts"),
            ({"demand": [[1, 2]], "placement": [[0, 5]]}, "experts from 0 to 1"),
            ({"demand": [[1, 2]], "draw": 1}, "draw must be at least 0 and below 1"),
        ):
            with self.assertRaisesRegex(ValueError, message):
                lrmoe.plan(**arguments)
        with self.assertRaisesRegex(ValueError, "qwen3-30b-a3b"):
            lrmoe.estimate("qwen", ranks=2, tokens=64)
        with self.assertRaisesRegex(ValueError, "gates must have the shape of ids"):
            ids = np.zeros((1, 1, 4, 1), dtype=int)
            lrmoe.replay(ids, np.ones((1, 1, 3, 1)), experts=2, ranks=1)


if __name__ == "__main__":
    unittest.main()
