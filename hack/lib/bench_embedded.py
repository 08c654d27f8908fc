"""The embedded API server over plain HTTP on one core, in a process of its own, until the end of standard input."""

from __future__ import annotations

import asyncio
import json
import os
import sys

import uvloop

from dlop.kube.garbage import tune_garbage_collection
from dlop.local.cluster import EmbeddedCluster


async def serve() -> None:
    """Print where the server is, then serve."""
    async with EmbeddedCluster() as cluster:
        front = await cluster.serve(tls=False)
        tune_garbage_collection()
        print(json.dumps({"url": front.url, "token": front.token, "pid": os.getpid()}), flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    uvloop.run(serve())
