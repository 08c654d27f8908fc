"""A fake API server that serves lists and watches of pods as fast as possible, for the benchmark of the informer.

It is a separate process, so that the CPU time of the measured process is that of the informer. Like a real server, it uses TLS and
sends each watch event as one chunk.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import msgspec
from bench_pods import stored_pod

_PLACEHOLDER = b"RESOURCE-VERSION-PLACEHOLDER"
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
_UNPROCESSABLE = b"HTTP/1.1 422 Unprocessable Entity\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
_EXPIRED_EVENT = b'{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410}}\n'
_PAUSE_BEFORE_EXPIRY_SECONDS = 0.2


@dataclass(frozen=True)
class WatchScenario:
    """The pods and events to serve. After `events`, the watch ends with 410, so that the informer relists, `relists` times."""

    pods: int
    events: int = 0
    relists: int = 0
    streams_lists: bool = True


class _Server:
    def __init__(self, scenario: WatchScenario) -> None:
        self._scenario = scenario
        self._version = 1000
        self._relists_left = scenario.relists
        self._pods = [
            _split_at_version(msgspec.json.encode(stored_pod(f"bench-{index}", resource_version=_PLACEHOLDER.decode())))
            for index in range(scenario.pods)
        ]

    async def serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve the requests of one connection until it is closed."""
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                query = parse_qs(urlsplit(head.split(b" ", 2)[1].decode()).query)
                await self._respond(query, writer)
        writer.close()

    async def _respond(self, query: dict[str, list[str]], writer: asyncio.StreamWriter) -> None:
        if "watch" not in query:
            await self._send_page(writer, limit=int(query["limit"][0]), start=int(query.get("continue", ["0"])[0]))
        elif "sendInitialEvents" in query and not self._scenario.streams_lists:
            writer.write(_UNPROCESSABLE)
        else:
            writer.write(_HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
            await self._send_watch(writer, initial="sendInitialEvents" in query)
        await writer.drain()

    async def _send_page(self, writer: asyncio.StreamWriter, *, limit: int, start: int) -> None:
        if start == 0:
            self._version += 1
        end = start + limit
        continue_token = str(end) if end < self._scenario.pods else ""
        items = b",".join(self._at_version(index) for index in range(start, min(end, self._scenario.pods)))
        metadata = f'{{"resourceVersion":"{self._version}","continue":"{continue_token}"}}'
        body = f'{{"kind":"PodList","apiVersion":"v1","metadata":{metadata},"items":['.encode() + items + b"]}"
        writer.write(_HEAD + f"Content-Length: {len(body)}\r\n\r\n".encode() + body)

    async def _send_watch(self, writer: asyncio.StreamWriter, *, initial: bool) -> None:
        if initial:
            self._version += 1
            for index in range(self._scenario.pods):
                await _send_chunk(writer, b'{"type":"ADDED","object":' + self._at_version(index) + b"}\n")
            await _send_chunk(writer, self._bookmark())
        for index in self._changed_indexes():
            self._version += 1
            await _send_chunk(writer, b'{"type":"MODIFIED","object":' + self._at_version(index) + b"}\n")
        if self._relists_left:
            self._relists_left -= 1
            await asyncio.sleep(_PAUSE_BEFORE_EXPIRY_SECONDS)
            await _send_chunk(writer, _EXPIRED_EVENT)
            writer.write(b"0\r\n\r\n")
        else:
            await asyncio.Event().wait()

    def _changed_indexes(self) -> Iterator[int]:
        return (number % self._scenario.pods for number in range(self._scenario.events))

    def _at_version(self, index: int) -> bytes:
        before, after = self._pods[index]
        return b"%b%d%b" % (before, self._version, after)

    def _bookmark(self) -> bytes:
        metadata = {"resourceVersion": str(self._version), "annotations": {"k8s.io/initial-events-end": "true"}}
        return msgspec.json.encode({"type": "BOOKMARK", "object": {"kind": "Pod", "apiVersion": "v1", "metadata": metadata}}) + b"\n"


async def serve(scenario: WatchScenario, *, certificates: Path) -> None:
    """Print the port, then serve until the end of standard input."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificates / "apiserver.crt", certificates / "apiserver.key")
    server = await asyncio.start_server(_Server(scenario).serve_one, "127.0.0.1", 0, ssl=tls)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)


def _split_at_version(body: bytes) -> tuple[bytes, bytes]:
    before, _, after = body.partition(_PLACEHOLDER)
    return before, after


async def _send_chunk(writer: asyncio.StreamWriter, line: bytes) -> None:
    writer.write(b"%x\r\n%b\r\n" % (len(line), line))
    await writer.drain()


if __name__ == "__main__":
    with contextlib.suppress(asyncio.CancelledError):
        asyncio.run(serve(msgspec.json.decode(sys.argv[1], type=WatchScenario), certificates=Path(sys.argv[2])))
