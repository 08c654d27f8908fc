"""Computes pi with MPI: every process integrates its share of the strips, and the sum over all processes is pi."""

import socket

from mpi4py import MPI

STRIPS = 1_000_000

world = MPI.COMM_WORLD
rank, size = world.rank, world.size

width = 1 / STRIPS
share = sum(4 / (1 + ((number + 0.5) * width) ** 2) for number in range(rank, STRIPS, size)) * width
print(f"rank {rank} of {size} on {socket.gethostname()} has {share:.6f}", flush=True)

pi = world.allreduce(share)
hosts = world.gather(socket.gethostname())
if hosts is not None:
    print(f"{size} processes on {len(set(hosts))} hosts: pi = {pi:.12f}", flush=True)
