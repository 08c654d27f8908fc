"""Linear regression with PyTorch's DistributedDataParallel. Process n has points along axis n only.

`torchrun` starts the processes and sets their environment. gloo averages the gradients over all processes.
"""

import os
import sys

import torch
import torch.distributed as dist
import torch.distributed.nn  # before the process group exists, which it would keep until the exit, as a default argument
from torch.nn.parallel import DistributedDataParallel

STEPS, POINTS = 200, 64

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()


def log(text: str) -> None:
    """Write a line with one system call, because the processes of a pod share its log."""
    os.write(sys.stdout.fileno(), f"rank {rank}: {text}\n".encode())


log(f"one of {size} processes, with PyTorch {torch.__version__.partition('+')[0]}")

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
total = torch.tensor(float((rank + 1) ** 2))
dist.all_reduce(total)
log(f"learned w = ({weights}), sum of all ranks: {total:.0f}")
# The model keeps the process group. A thread of gloo that is left at the exit of Python can abort the process.
del model
dist.destroy_process_group()
