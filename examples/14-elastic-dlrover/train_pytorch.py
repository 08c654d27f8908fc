"""Linear regression with PyTorch, started by `dlrover-run`. Rank 0 writes a checkpoint after each step."""

import os
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS = 60
CHECKPOINT = Path(os.environ["CHECKPOINTS"]) / f"{os.environ['JOB_UID']}.pt"
CRASH_MARKER = CHECKPOINT.with_suffix(".crashed")
CRASH_STEP = int(os.environ.get("CRASH_STEP", "0"))


def log(text: str) -> None:
    """Write a line with one system call, because the processes of a pod share its log."""
    os.write(sys.stdout.fileno(), f"rank {rank}: {text}\n".encode())


dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
model = DistributedDataParallel(torch.nn.Linear(2, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
first = 0
if CHECKPOINT.exists():
    state = torch.load(CHECKPOINT)
    first = state["step"]
    model.module.load_state_dict(state["model"])
log(f"{'continuing from the checkpoint' if first else 'starting'} as one of {size} processes")

for step in range(first + 1, STEPS + 1):
    torch.manual_seed(size * step + rank)
    points = torch.randn(32, 2)
    values = points @ torch.tensor([2.0, -3.4]) + 4.2
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(points).squeeze(), values)
    loss.backward()
    optimizer.step()
    if rank == 0:
        torch.save({"step": step, "model": model.module.state_dict()}, CHECKPOINT.with_suffix(".partial"))
        CHECKPOINT.with_suffix(".partial").rename(CHECKPOINT)
    dist.barrier()
    if step % 20 == 0:
        log(f"step {step} of {STEPS}, loss {loss.item():.6f}")
    if step == CRASH_STEP and rank == size - 1 and not CRASH_MARKER.exists():
        CRASH_MARKER.touch()
        log("killing the agent of this worker")
        os.kill(os.getppid(), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.3)

weights, bias = model.module.weight[0].tolist(), model.module.bias.item()
log(f"learned w = ({weights[0]:.2f}, {weights[1]:.2f}), b = {bias:.2f}")
dist.barrier()
dist.destroy_process_group()
