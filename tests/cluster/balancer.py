"""A load balancer on loopback, as it stands in front of the API servers of a real cluster: it hands bytes to a server that lives."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from typing import Any


class Balancer:
    """Hands each new connection to the first of the ports that accepts it. Cut off, it accepts none."""

    def __init__(self, ports: list[int]) -> None:
        self._ports = ports
        self._open: dict[asyncio.Task[None], int] = {}
        self._is_cut_off = False
        self.url = ""

    def connections_to(self, port: int) -> int:
        """How many connections lead to this server now."""
        return list(self._open.values()).count(port)

    async def cut_off(self) -> None:
        """Break every connection and let none through, until `restore`."""
        self._is_cut_off = True
        await self._break_all()

    def restore(self) -> None:
        """Let connections through again."""
        self._is_cut_off = False

    async def _break_all(self) -> None:
        open_now = list(self._open)
        for task in open_now:
            task.cancel()
        await asyncio.gather(*open_now, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            if not self._is_cut_off:
                await self._forward(task, reader, writer)
        finally:
            self._open.pop(task, None)
            writer.transport.abort()

    async def _forward(self, task: asyncio.Task[None], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for port in self._ports:
            try:
                from_server, to_server = await asyncio.open_connection("127.0.0.1", port)
            except ConnectionError:
                continue
            self._open[task] = port
            try:
                await _either(_pump(reader, to_server), _pump(from_server, writer))
            finally:
                to_server.transport.abort()
            return


async def _either(*pumps: Coroutine[Any, Any, None]) -> None:
    tasks = [asyncio.ensure_future(pump) for pump in pumps]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(2**16):
            writer.write(data)
            await writer.drain()


@contextlib.asynccontextmanager
async def balancing(ports: list[int]) -> AsyncIterator[Balancer]:
    """A balancer in front of these ports."""
    balancer = Balancer(ports)
    listening = await asyncio.start_server(balancer._serve, "127.0.0.1", 0)
    balancer.url = f"https://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    try:
        yield balancer
    finally:
        listening.close()
        await balancer.cut_off()
        await listening.wait_closed()
