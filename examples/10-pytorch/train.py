"""A line in many directions by PyTorch: process number n sees points along axis n only, so no process can find the others' weights.

`torchrun` starts it and tells it who the others are; the gradients are averaged over all processes by gloo.
"""

import os
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS, POINTS = 200, 64

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()


def say(text: str) -> None:
    """A line at a time, and in one piece: the processes of a pod share its log."""
    os.write(sys.stdout.fileno(), f"rank {rank}: {text}\n".encode())


say(f"one of {size} processes, with PyTorch {torch.__version__.partition('+')[0]}")

torch.manual_seed(rank)
points = torch.zeros(POINTS, size)
points[:, rank] = torch.randn(POINTS)
values = points[:, rank] * (rank + 1)  # the weight of axis n is n + 1

model = DistributedDataParallel(torch.nn.Linear(size, 1, bias=False))
optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
for _ in range(STEPS):
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(points).squeeze(), values).backward()
    optimizer.step()

weights = ", ".join(f"{weight:.2f}" for weight in model.module.weight[0].tolist())
together = torch.tensor(float((rank + 1) ** 2))
dist.all_reduce(together)
say(f"learned w = ({weights}), and all together have {together:.0f}")
dist.destroy_process_group()
