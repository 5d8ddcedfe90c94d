"""A layer whose experts lie on all ranks, with replicas of the busy ones.

    torchrun --nproc-per-node 2 examples/python/two_ranks.py
"""

import lrmoe
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.set_num_threads(1)
torch.manual_seed(dist.get_rank())
moe = lrmoe.MoELayer(
    32, 64, experts=8, top_k=2, ratio=0.5, slots=6, process_group=dist.group.WORLD
)
model = DistributedDataParallel(lrmoe.leave_experts_to_lrmoe(torch.nn.Sequential(moe)))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for step in range(101):
    x = torch.randn(512, 32)
    loss = (x + model(x) - torch.roll(x, 1, -1).tanh()).square().mean() + 0.01 * moe.aux_loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if step % 20 == 0 and dist.get_rank() == 0:
        counts = moe.layer.counts()
        load = max(counts["forward_load"]) * dist.get_world_size() / sum(counts["forward_load"])
        print(
            f"step {step:3}  loss {loss.item():.4f}  kept {counts['kept'] / counts['pairs']:.2f}  "
            f"fullest rank {load:.3f} of the mean  experts here {moe.layer.experts_here(False)}"
        )
dist.destroy_process_group()
