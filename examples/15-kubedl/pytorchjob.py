"""A replica of the PyTorchJob: finds the master with the variables that torch.distributed reads, and adds a number to a sum."""

import os

from peers import collect, contribute, reply

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
master, port = os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"]

total = 1 + collect(f":{port}", peers=size - 1) if rank == 0 else contribute(f"{master}:{port}", rank + 1)
print(f"rank {rank} of {size}: the sum at {master}:{port} is {total}", flush=True)
if rank == 0:
    reply(total)
