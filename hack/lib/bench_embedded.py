"""The embedded API server as a separate process, over plain HTTP on one core or over TLS. Exits at the end of standard input."""

from __future__ import annotations

import asyncio
import json
import os
import sys

import uvloop

from dlop.embedded.cluster import EmbeddedCluster
from dlop.operator.gc import tune_garbage_collection


async def serve(*, tls: bool) -> None:
    """Print URL, token and pid as JSON, then serve."""
    async with EmbeddedCluster() as cluster:
        server = await cluster.serve(tls=tls)
        tune_garbage_collection()
        address = {"url": server.url, "token": server.token, "pid": os.getpid()}
        print(json.dumps({**address, "kubeconfig": server.kubeconfig()} if tls else address), flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    use_tls = sys.argv[1:] == ["tls"]
    if not use_tls:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    uvloop.run(serve(tls=use_tls))
