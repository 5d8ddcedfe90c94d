"""lrmoe.MoELayer: any shape, both routers, plain names, learns."""

import io
import unittest

import lrmoe
import torch

from models import one_thread, relative


def plain(layer, x):
    """The layer by plain autograd."""
    rows = x.reshape(-1, x.shape[-1])
    logits = rows @ layer.router_weight.T
    if layer.router == "softmax":
        gates, ids = logits.softmax(-1).topk(layer.top_k, -1)
    else:
        scores = logits.sigmoid()
        ids = (scores + layer.router_bias).topk(layer.top_k, -1).indices
        gates = scores.gather(1, ids)
    if layer.renormalise:
        gates = gates / gates.sum(-1, keepdim=True)
    g, u = torch.einsum("tkod,td->tko", layer.gate_up[ids], rows).chunk(2, -1)
    y = torch.einsum("tkdn,tkn->tkd", layer.down[ids], torch.nn.functional.silu(g) * u)
    return (layer.routed_scale * gates.unsqueeze(-1) * y).sum(1).view(x.shape)


class MoELayerTest(unittest.TestCase):
    def setUp(self):
        one_thread(self)
        torch.manual_seed(2)

    def test_equals_plain_autograd(self):
        for options in (
            {},
            {"renormalise": False},
            {"router": "sigmoid", "routed_scale": 2.5},
            {"router": "sigmoid", "renormalise": False},
        ):
            layer = lrmoe.MoELayer(24, 16, 6, 2, init_std=0.3, **options)
            if layer.router == "sigmoid":
                layer.router_bias.copy_(torch.linspace(-0.2, 0.2, 6))
            x = torch.randn(3, 5, 24, requires_grad=True)
            leaves = [x, *layer.parameters()]
            delta = torch.randn(3, 5, 24)
            out, truth = layer(x), plain(layer, x)
            self.assertEqual(out.shape, x.shape)
            self.assertLess(relative(out, truth), 1e-6)
            mine = torch.autograd.grad(out, leaves, delta)
            right = torch.autograd.grad(truth, leaves, delta)
            for a, b in zip(mine, right):
                self.assertLess(relative(a, b), 1e-5)

    def test_load_loss(self):
        layer = lrmoe.MoELayer(8, 4, 4, 1)
        with torch.no_grad():
            layer.router_weight.zero_()
        layer(torch.randn(10, 8))
        self.assertAlmostEqual(layer.aux_loss.item(), 1.0, places=5)  # P is even
        with torch.no_grad():
            layer.router_weight[2] = 100.0
        layer(torch.ones(10, 8))
        self.assertAlmostEqual(layer.aux_loss.item(), 4.0, places=4)  # all to one expert
        layer.aux_loss.backward()
        self.assertIsNotNone(layer.router_weight.grad)

    def test_state_dict_and_extremes(self):
        layer = lrmoe.MoELayer(8, 4, 4, 2, router="sigmoid", ratio=0.5, seed=3)
        names = {"router_weight", "router_bias", "gate_up", "down"}
        self.assertEqual(set(layer.state_dict()), names)
        memory = io.BytesIO()
        torch.save(layer, memory)
        memory.seek(0)
        copy = torch.load(memory, weights_only=False)
        x = torch.randn(9, 8)
        self.assertTrue(torch.equal(copy(x), layer(x)))
        self.assertEqual(copy.layer.options, {"ratio": 0.5, "seed": 3})
        self.assertEqual(layer(torch.zeros(0, 8)).shape, (0, 8))
        self.assertTrue(torch.isfinite(layer.aux_loss))
        strange = torch.full((3, 8), float("nan"))
        strange[1] = float("inf")
        self.assertEqual(layer(strange).shape, (3, 8))  # no id out of range

    def test_a_model_learns_with_a_part_of_the_pairs(self):
        layer = lrmoe.MoELayer(8, 16, 6, 2, ratio=0.4, init_std=0.3)
        head = torch.nn.Linear(8, 1)
        optimizer = torch.optim.AdamW([*layer.parameters(), *head.parameters()], lr=1e-2)
        x = torch.randn(256, 8)
        y = torch.sin(3 * x[:, :1]) * x[:, 1:2]
        losses = []
        for _ in range(60):
            loss = (head(x + layer(x)) - y).square().mean()
            (loss + 0.01 * layer.aux_loss).backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        self.assertLess(losses[-1], 0.5 * losses[0])
        counts = layer.layer.counts()
        self.assertAlmostEqual(counts["kept"] / counts["pairs"], 0.4, delta=0.01)
        self.assertEqual(layer.layer.state()[0].item(), 59)  # a step per change of the weights

    def test_configure_and_mistakes(self):
        model = torch.nn.Sequential(lrmoe.MoELayer(8, 4, 4, 2), lrmoe.MoELayer(8, 4, 4, 2))
        lrmoe.configure(model, ratio=0.5, metric="gate")
        for layer in model:
            self.assertEqual(layer.layer.options["ratio"], 0.5)
        for arguments, options, message in (
            ((8, 4, 4, 5), {}, "top_k must be at most the 4 experts, not 5"),
            ((8, 0, 4, 2), {}, "expert_width must be a whole number, at least 1, not 0"),
            ((8, 4, 4, 2), {"router": "sofmax"}, "router must be 'softmax' or 'sigmoid'"),
            ((8, 4, 4, 2), {"ratio": 1.5}, "ratio must be a number above 0"),
            ((8, 4, 4, 2), {"metrics": "gate"}, "no option 'metrics'; did you mean 'metric'"),
        ):
            with self.assertRaisesRegex(ValueError, message):
                lrmoe.MoELayer(*arguments, **options)


if __name__ == "__main__":
    unittest.main()
