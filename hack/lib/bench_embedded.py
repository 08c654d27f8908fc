"""The embedded API server in a process of its own, until the end of standard input: over plain HTTP on one core, or over TLS."""

from __future__ import annotations

import asyncio
import json
import os
import sys

import uvloop

from dlop.embedded.cluster import EmbeddedCluster
from dlop.operator.gc import tune_garbage_collection


async def serve(*, tls: bool) -> None:
    """Print where the server is, then serve."""
    async with EmbeddedCluster() as cluster:
        front = await cluster.serve(tls=tls)
        tune_garbage_collection()
        place = {"url": front.url, "token": front.token, "pid": os.getpid()}
        print(json.dumps({**place, "kubeconfig": front.kubeconfig()} if tls else place), flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    over_tls = sys.argv[1:] == ["tls"]
    if not over_tls:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    uvloop.run(serve(tls=over_tls))
