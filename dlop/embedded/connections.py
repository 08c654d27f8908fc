"""Connections of the HTTP servers, which are closed completely before a server counts as stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from aiohttp import web


def open_transports(server: web.Server) -> list[asyncio.Transport]:
    """The transports of established connections. Call it before the shutdown of the server, which forgets them."""
    return [handler.transport for handler in server.connections if handler.transport is not None]


async def abort_connections(listener: asyncio.AbstractServer | None, transports: Iterable[asyncio.Transport]) -> None:
    """Close connections that are still open after the shutdown of a server.

    A TLS connection stays open until the peer responds to close_notify, and a connection whose handshake is pending is unknown to
    aiohttp. Both could outlive the event loop.
    """
    handshakes = [task for task in asyncio.all_tasks() if listener is not None and _accepting_server(task) is listener]
    for task in handshakes:
        task.cancel()
    await asyncio.gather(*handshakes, return_exceptions=True)
    for transport in transports:
        transport.abort()
    await asyncio.sleep(0)  # aborted transports close in the next iteration of the loop


def _accepting_server(task: asyncio.Task[object]) -> object:
    """The server of a task in which asyncio accepts a connection; None for other tasks."""
    coroutine = task.get_coro()
    frame = getattr(coroutine, "cr_frame", None)
    if getattr(coroutine, "__name__", "") != "_accept_connection2" or frame is None:
        return None
    return frame.f_locals.get("server")
