"""The bare client in a process of its own: aiohttp + orjson that does nothing but create, until the end of standard input.

Called as a program with the address of a server, its token and its certificate. It is told on standard input the name of
a file with the paths and bodies to send, says `loaded`, is told `go`, and answers with what it has done in how much CPU.
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
    """The least that a create can be: encode, send, decode."""

    def __init__(self, session: aiohttp.ClientSession, url: str, token: str) -> None:
        self._session = session
        self._url = url
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json", "Accept": "application/json"}
        self.created = 0

    async def create_all(self, items: list[Item]) -> None:
        """Create these objects in their order, with `IN_FLIGHT` of them under way all the time."""
        waiting = iter(items)
        async with asyncio.TaskGroup() as workers:
            for _ in range(IN_FLIGHT):
                workers.create_task(self._work(waiting))

    async def _work(self, waiting: Iterator[Item]) -> None:
        for path, body in waiting:
            async with self._session.post(self._url + path, data=orjson.dumps(body), headers=self._headers) as response:
                answer = orjson.loads(await response.read())
                if response.status != 201:
                    raise RuntimeError(f"the server refused an object: {json.dumps(answer)}")
                self.created += 1


async def serve(url: str, token: str, ca_path: Path) -> None:
    """Do what standard input says."""
    async with bare_session(ca_path) as session:
        print("ready", flush=True)
        while line := (await asyncio.to_thread(sys.stdin.readline)).strip():
            items = _read(Path(line))
            gc.collect()
            gc.freeze()  # what is to be sent is no garbage, and looking for some in it is no part of any figure
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
