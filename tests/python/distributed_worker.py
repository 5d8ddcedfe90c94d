"""What each rank of test_distributed.py does: torchrun starts it with the names of cases."""

import os
import sys
from datetime import timedelta

import lrmoe
import torch
import torch.distributed as dist

from models import relative

HIDDEN, WIDTH, EXPERTS, TOP_K = 24, 16, 7, 2


def layers(**options):
    """The same layer on one rank, and over the group."""
    torch.manual_seed(7)
    whole = lrmoe.MoELayer(HIDDEN, WIDTH, EXPERTS, TOP_K, init_std=0.3, **options)
    torch.manual_seed(7)
    group = dist.group.WORLD
    spread = lrmoe.MoELayer(
        HIDDEN, WIDTH, EXPERTS, TOP_K, init_std=0.3, process_group=group, **options
    )
    return whole, spread


def check_owned(spread, whole_values, name, tolerance):
    for row, expert in enumerate(spread.owned_experts()):
        if expert >= 0:
            mine = getattr(spread, name)[row]
            assert relative(mine, whole_values[expert]) < tolerance, (name, expert)


def tokens(rank, step=0):
    generator = torch.Generator().manual_seed(100 * step + rank)
    return torch.randn(30 + 5 * rank, HIDDEN, generator=generator)


def keep_all(rank, size):
    """Outputs and gradients of the one-process layer, whose loss is the mean of the ranks'."""
    whole, spread = layers()
    check_owned(spread, whole.gate_up, "gate_up", 1e-9)
    for r in range(size):
        x = tokens(r).requires_grad_()
        out = whole(x)
        (out.sin().sum() / size).backward()
        if r == rank:
            right, right_dx = out.detach(), x.grad * size
    x = tokens(rank).requires_grad_()
    out = spread(x)
    out.sin().sum().backward()
    assert relative(out, right) < 1e-6
    assert relative(x.grad, right_dx) < 1e-5
    for name in ("gate_up", "down"):
        gradient = getattr(whole, name).grad
        for row, expert in enumerate(spread.owned_experts()):
            mine = getattr(spread, name).grad[row]
            assert expert < 0 or relative(mine, gradient[expert]) < 1e-5, (name, expert)
    dist.all_reduce(spread.router_weight.grad)
    assert relative(spread.router_weight.grad / size, whole.router_weight.grad) < 1e-5


def train(rank, size, slots, ratio=1.0, steps=6):
    """A few AdamW steps under DistributedDataParallel against one process."""
    whole, _ = layers()
    torch.manual_seed(7)
    spread = lrmoe.MoELayer(
        HIDDEN,
        WIDTH,
        EXPERTS,
        TOP_K,
        init_std=0.3,
        process_group=dist.group.WORLD,
        slots=slots,
        ratio=ratio,
    )
    model = torch.nn.Sequential(spread)
    ddp = torch.nn.parallel.DistributedDataParallel(lrmoe.leave_experts_to_lrmoe(model))
    mine = torch.optim.AdamW(model.parameters(), lr=1e-2)
    theirs = torch.optim.AdamW(whole.parameters(), lr=1e-2)
    placements = set()
    for step in range(steps):
        ddp(tokens(rank, step)).sin().mean().backward()
        for r in range(size):
            (whole(tokens(r, step)).sin().mean() / size).backward()
        for optimizer in (mine, theirs):
            optimizer.step()
            optimizer.zero_grad()
        placements.add(tuple(spread.layer.experts_here(owned=False)))
    counts = spread.layer.counts()
    if ratio == 1.0:
        assert counts["kept"] == counts["pairs"]
        for name in ("gate_up", "down"):
            check_owned(spread, getattr(whole, name), name, 1e-4)
        assert relative(spread.router_weight, whole.router_weight) < 1e-4
    else:
        kept = torch.tensor([counts["kept"], counts["pairs"]], dtype=torch.float64)
        dist.all_reduce(kept)
        assert abs(kept[0] / kept[1] - ratio) < 0.02, kept
        assert all(torch.isfinite(p).all() for p in model.parameters())
        assert counts["added_variance"] > 0
    loads = counts["forward_load"]
    assert sum(loads) == sum(counts["demand"])
    return placements, max(loads) * size / sum(loads)


def replicas(rank, size):
    fixed, fixed_load = train(rank, size, None)
    assert len(fixed) == 1
    planned, planned_load = train(rank, size, EXPERTS // size + 2)
    assert planned_load < fixed_load and planned_load < 1.05, (planned_load, fixed_load)


def sampled(rank, size):
    train(rank, size, None, ratio=0.5)
    train(rank, size, EXPERTS // size + 2, ratio=0.5)
    # Evaluation drops nothing and needs no gradients.
    whole, spread = layers(ratio=0.3)
    with torch.no_grad():
        assert relative(spread.eval()(tokens(rank)), whole(tokens(rank))) < 1e-6


def lost(rank, size):
    """A rank that is gone is named."""
    _, spread = layers()
    dist.barrier()
    if rank == 1:
        os._exit(0)
    try:
        spread(tokens(rank))
    except RuntimeError as error:
        message = str(error)
        assert "rank 1 failed" in message and "[all_gather]" in message, message
        print("NAMED", message.splitlines()[0], flush=True)
        os._exit(0)
    raise AssertionError("nothing was noticed")


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=30))
    cases = {"keep_all": keep_all, "replicas": replicas, "sampled": sampled, "lost": lost}
    for case in sys.argv[1:]:
        cases[case](dist.get_rank(), dist.get_world_size())
    dist.destroy_process_group()
