"""The torch operators: the routed experts against plain autograd, and unbiased when sampled."""

import copy
import pickle
import unittest

import torch
from lrmoe import ops

from models import one_thread, relative

T, D, N, E, K = 24, 16, 12, 6, 2


def problem(dtype=torch.float64, seed=3):
    """x, ids, gates, gate_up, down; all but ids with gradients."""
    g = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=g, dtype=torch.float64)

    ids = torch.stack([torch.randperm(E, generator=g)[:K] for _ in range(T)])
    leaves = [
        normal(T, D),
        torch.rand(T, K, generator=g, dtype=torch.float64) + 0.1,
        normal(E, 2 * N, D) / 4,
        normal(E, D, N) / 4,
    ]
    x, gates, gate_up, down = (t.to(dtype).requires_grad_() for t in leaves)
    return x, ids, gates, gate_up, down


def reference(x, ids, gates, gate_up, down):
    w, v = gate_up[ids], down[ids]
    g, u = torch.einsum("tkod,td->tko", w, x).chunk(2, dim=-1)
    y = torch.einsum("tkdn,tkn->tkd", v, torch.nn.functional.silu(g) * u)
    return (gates.unsqueeze(-1) * y).sum(1)


def gradients(out, arguments):
    delta = torch.sin(torch.arange(out.numel(), dtype=torch.float64)).view_as(out).to(out.dtype)
    x, _, gates, gate_up, down = arguments
    return torch.autograd.grad(out, (x, gates, gate_up, down), delta)


class ExpertsOperator(unittest.TestCase):
    def setUp(self):
        one_thread(self)

    def experts(self, arguments, layer, mode=ops.TRAIN):
        return torch.ops.lrmoe.experts(*arguments, layer.handle, mode)

    def test_keep_all_equals_autograd(self):
        tolerances = {torch.float64: 1e-13, torch.float32: 1e-6, torch.bfloat16: 2e-2}
        for dtype, tolerance in tolerances.items():
            arguments = problem(dtype)
            layer = ops.Layer(E)
            out = self.experts(arguments, layer)
            truth_arguments = problem(torch.float64)
            truth = reference(*truth_arguments)
            self.assertEqual(out.dtype, dtype)
            self.assertLess(relative(out, truth), tolerance)
            for mine, right in zip(gradients(out, arguments), gradients(truth, truth_arguments)):
                self.assertEqual(mine.dtype, dtype)
                self.assertLess(relative(mine, right), tolerance)

    def test_operator_checks_of_torch(self):
        arguments = problem(torch.float32)
        layer = ops.Layer(E)
        values = [t.detach() for t in arguments]  # `experts` alone is differentiable
        torch.library.opcheck(
            torch.ops.lrmoe.experts_forward, (*values, layer.handle, ops.TRAIN, False)
        )
        torch.library.opcheck(
            torch.ops.lrmoe.experts,
            (*arguments, layer.handle, ops.TRAIN),
            test_utils=("test_schema", "test_faketensor", "test_aot_dispatch_dynamic"),
        )

    def test_sampled_is_unbiased(self):
        """Mean gradients of many draws against the whole ones, along random directions."""
        for options in (
            {"metric": "update-router", "router_gradient": "centred"},
            {"metric": "gate-grad", "router_gradient": "kept", "activations": "recompute"},
        ):
            arguments = problem()
            whole = gradients(reference(*arguments), arguments)
            directions = [torch.randn(t.shape, dtype=t.dtype) for t in whole]
            layer = ops.Layer(E)
            layer.configure(ratio=0.4, floor=0.0, **options)
            draws = 600
            rows = torch.zeros(draws, 4, dtype=torch.float64)
            for draw in range(draws):
                layer.configure(seed=draw)
                grads = gradients(self.experts(arguments, layer), arguments)
                rows[draw] = torch.stack([(g * d).sum() for g, d in zip(grads, directions)])
            counts = layer.counts()
            self.assertEqual(counts["pairs"], draws * T * K)
            self.assertAlmostEqual(counts["kept"] / counts["pairs"], 0.4, delta=0.02)
            self.assertGreater(counts["added_variance"], 0.1 * counts["total_variance"])
            right = torch.stack([(g * d).sum() for g, d in zip(whole, directions)])
            z = (rows.mean(0) - right) / (rows.std(0) / draws**0.5)
            self.assertLess(z.abs().max().item(), 4.5, f"{options}: {z.tolist()}")
            self.assertGreater(rows.std(0).min().item(), 0.0)

    def test_a_change_of_the_weights_is_a_new_step(self):
        arguments = problem(torch.float32)
        layer = ops.Layer(E)
        layer.configure(ratio=0.5)
        first, again = (gradients(self.experts(arguments, layer), arguments) for _ in range(2))
        self.assertTrue(all(map(torch.equal, first, again)))
        with torch.no_grad():
            arguments[3].add_(0.0)
        other = gradients(self.experts(arguments, layer), arguments)
        self.assertFalse(torch.equal(first[3], other[3]))
        self.assertEqual(layer.state()[0].item(), 1)
        self.assertGreater(layer.state()[1:].sum().item(), 0)  # scores have been learnt
        layer.set_step(7)
        with torch.no_grad():
            arguments[3].add_(0.0)
        gradients(self.experts(arguments, layer), arguments)
        self.assertEqual(layer.state()[0].item(), 7)

    def test_state_travels(self):
        arguments = problem(torch.float32)
        layer = ops.Layer(E)
        layer.configure(ratio=0.5, seed=3)
        gradients(self.experts(arguments, layer), arguments)
        layer.set_step(5)
        right = gradients(self.experts(arguments, layer), arguments)
        for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
            self.assertNotEqual(other.handle, layer.handle)
            mine = gradients(self.experts(arguments, other), arguments)
            self.assertTrue(all(map(torch.equal, right, mine)))
        with self.assertRaisesRegex(ValueError, "6 experts has 1927 numbers, not 3"):
            layer.restore(torch.zeros(3, dtype=torch.int64))

    def test_modes_without_selection(self):
        arguments = problem(torch.float32)
        layer = ops.Layer(E)
        layer.configure(ratio=0.3)
        whole = gradients(self.experts(arguments, layer, ops.WHOLE), arguments)
        truth = gradients(reference(*arguments), arguments)
        self.assertTrue(all(relative(a, b) < 1e-5 for a, b in zip(whole, truth)))
        with torch.no_grad():
            self.assertFalse(self.experts(arguments, layer).requires_grad)
        self.assertEqual(layer.counts()["passes"], 0)
        silent = gradients(self.experts(arguments, layer, ops.SILENT), arguments)
        self.assertEqual(layer.counts()["passes"], 0)
        counted = gradients(self.experts(arguments, layer), arguments)
        self.assertEqual(layer.counts()["passes"], 1)
        self.assertTrue(all(map(torch.equal, silent, counted)))

    def test_mistakes(self):
        arguments = list(problem(torch.float32))
        layer = ops.Layer(E)

        def refused(message, changed):
            with self.assertRaisesRegex(ValueError, message):
                self.experts(changed, layer)

        ids = arguments[1].clone()
        ids[3, 1] = E
        refused("ids must be from 0 to 5, not 6", [arguments[0], ids, *arguments[2:]])
        refused(r"gate_up must be \[E, 2n, 16\]", [*arguments[:3], arguments[4], arguments[3]])
        five = [weight[:5] for weight in arguments[3:]]
        refused("6 slots, and the weights are of 5", [*arguments[:3], *five])
        halves = [t.half() if t.is_floating_point() else t for t in arguments]
        refused("float32, bfloat16 or float64", halves)
        for options, message in (
            ({"ratio": 2}, "ratio must be a number above 0 and at most 1, not 2"),
            ({"metric": "gates"}, "metric must be 'gate' or .*, not \"gates\""),
            ({"ratoi": 1}, "no option 'ratoi'; did you mean 'ratio'"),
            ({"seed": -1}, "seed must be a whole number"),
        ):
            with self.assertRaisesRegex(ValueError, message):
                layer.configure(**options)
        out = self.experts(arguments, layer)
        gradients(out, arguments)
        again = self.experts(arguments, layer)
        torch.autograd.grad(again.sum(), arguments[0], retain_graph=True)
        with self.assertRaisesRegex(RuntimeError, "runs once per forward pass"):
            torch.autograd.grad(again.sum(), arguments[0])


if __name__ == "__main__":
    unittest.main()
