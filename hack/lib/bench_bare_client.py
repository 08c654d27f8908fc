"""The bare client as a separate process: creates objects with aiohttp and orjson.

Arguments: the URL of a server, a token and the CA certificate. Reads the name of a file with paths and bodies from standard
input, prints `loaded`, waits for the line `go`, creates the objects, and prints their number and its CPU time. Repeats this
until the end of standard input.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import uvloop
from bench_creates import IN_FLIGHT, bare_session

Item = tuple[str, dict[str, Any]]


class BareClient:
    """Minimal creates: encode, send, decode."""

    def __init__(self, session: aiohttp.ClientSession, url: str, token: str) -> None:
        self._session = session
        self._url = url
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json", "Accept": "application/json"}
        self.created = 0

    async def create_all(self, items: list[Item]) -> None:
        """Create the objects in order, with `IN_FLIGHT` concurrent requests."""
        pending = iter(items)
        async with asyncio.TaskGroup() as workers:
            for _ in range(IN_FLIGHT):
                workers.create_task(self._work(pending))

    async def _work(self, pending: Iterator[Item]) -> None:
        for path, body in pending:
            async with self._session.post(self._url + path, data=orjson.dumps(body), headers=self._headers) as response:
                created = orjson.loads(await response.read())
                if response.status != 201:
                    raise RuntimeError(f"the server rejected an object: {json.dumps(created)}")
                self.created += 1


async def serve(url: str, token: str, ca_path: Path) -> None:
    """Execute the commands of standard input."""
    async with bare_session(ca_path) as session:
        print("ready", flush=True)
        while line := (await asyncio.to_thread(sys.stdin.readline)).strip():
            items = _read(Path(line))
            gc.collect()
            gc.freeze()  # exclude garbage collection of the bodies from the result
            print("loaded", flush=True)
            await asyncio.to_thread(sys.stdin.readline)
            client, before = BareClient(session, url, token), time.process_time()
            await client.create_all(items)
            cpu_seconds = time.process_time() - before
            print(json.dumps({"created": client.created, "cpu_seconds": cpu_seconds}), flush=True)


def _read(path: Path) -> list[Item]:
    items: list[Item] = orjson.loads(path.read_bytes())
    return items


if __name__ == "__main__":
    uvloop.run(serve(sys.argv[1], sys.argv[2], Path(sys.argv[3])))
