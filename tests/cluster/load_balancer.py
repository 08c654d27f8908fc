"""A TCP load balancer on loopback in front of several API servers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from typing import Any


class LoadBalancer:
    """Forwards each new connection to the first port that accepts it."""

    def __init__(self, ports: list[int]) -> None:
        self._ports = ports
        self._open: dict[asyncio.Task[None], int] = {}
        self._is_disconnected = False
        self.url = ""

    def connections_to(self, port: int) -> int:
        """The number of open connections to this server."""
        return list(self._open.values()).count(port)

    async def disconnect(self) -> None:
        """Close all connections and forward no new ones until `reconnect`."""
        self._is_disconnected = True
        await self._close_all()

    def reconnect(self) -> None:
        self._is_disconnected = False

    async def _close_all(self) -> None:
        open_now = list(self._open)
        for task in open_now:
            task.cancel()
        await asyncio.gather(*open_now, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            if not self._is_disconnected:
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
                await _first_completed(_copy(reader, to_server), _copy(from_server, writer))
            finally:
                to_server.transport.abort()
            return


async def _first_completed(*coroutines: Coroutine[Any, Any, None]) -> None:
    tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(2**16):
            writer.write(data)
            await writer.drain()


@contextlib.asynccontextmanager
async def run_load_balancer(ports: list[int]) -> AsyncIterator[LoadBalancer]:
    load_balancer = LoadBalancer(ports)
    server = await asyncio.start_server(load_balancer._serve, "127.0.0.1", 0)
    load_balancer.url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield load_balancer
    finally:
        server.close()
        await load_balancer.disconnect()
        await server.wait_closed()
