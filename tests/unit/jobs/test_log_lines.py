"""Log lines are complete for any chunking, and a resumed read repeats no line."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlop.jobs.log_lines import LogCursor, LogSource, read_lines
from dlop.kube.client import Client
from dlop.kube.errors import TransportError
from dlop.kube.transport import Request, Response, StreamResponse
from dlop.testing.virtual_time import virtual_time

SOURCE = LogSource(namespace="ns", pod="pod", container="main")


class LogServer:
    """Sends one log in chunks, starting at the second of `sinceTime` as a kubelet does."""

    def __init__(self, *lines: tuple[str, str], chunk_size: int = 7, breaks_after: int | None = None) -> None:
        self.lines = list(lines)
        self.queries: list[dict[str, str]] = []
        self.breaks_after = breaks_after
        self._chunk_size = chunk_size

    async def send(self, request: Request, *, timeout_seconds: float) -> Response:
        raise NotImplementedError

    @asynccontextmanager
    async def stream(self, request: Request, *, idle_timeout_seconds: float) -> AsyncIterator[StreamResponse]:
        query = dict(request.query)
        self.queries.append(query)
        since = query.get("sinceTime", "")[:19]
        text = "".join(f"{timestamp} {text}\n" for timestamp, text in self.lines if timestamp[:19] >= since)
        yield StreamResponse(200, {}, self._chunks(text.encode()))

    async def _chunks(self, data: bytes) -> AsyncIterator[bytes]:
        limit, self.breaks_after = self.breaks_after, None
        for start in range(0, len(data), self._chunk_size):
            if limit is not None and start >= limit:
                raise TransportError("it broke")
            yield data[start : start + self._chunk_size]

    async def refresh_credentials(self) -> str:
        return ""

    async def close(self) -> None:
        return None


async def texts(server: LogServer, cursor: LogCursor) -> list[str]:
    lines_read: list[str] = []
    async with aclosing(read_lines(Client(server), SOURCE, cursor, follow=True, tail_lines=5)) as lines:
        try:
            async for _, text in lines:
                lines_read.append(text)
        except TransportError:
            pass
    return lines_read


def at(second: int, fraction: int = 0) -> str:
    return f"2026-01-01T00:00:{second:02}.{fraction:09}Z"


LINES = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 1)), max_size=12).map(sorted)


@given(timestamps=LINES, chunk_size=st.integers(1, 50), breaks_after=st.integers(0, 500))
def test_a_broken_stream_is_resumed_without_repeated_lines(timestamps: list[tuple[int, int]], chunk_size: int, breaks_after: int) -> None:
    """The worst case is many lines with the same timestamp."""
    log = [(at(*timestamp), f"line {number} …") for number, timestamp in enumerate(timestamps)]

    @virtual_time
    async def scenario() -> None:
        server, cursor = LogServer(*log, chunk_size=chunk_size, breaks_after=breaks_after), LogCursor()
        first = await texts(server, cursor)
        # An incomplete line is read again from its start.
        assert first + await texts(server, cursor) == [text for _, text in log]

    scenario()


@virtual_time
async def test_a_read_is_resumed_at_the_last_timestamp_without_the_tail_limit() -> None:
    server, cursor = LogServer((at(1), "one"), (at(2), "two")), LogCursor()
    assert await texts(server, cursor) == ["one", "two"]
    server.lines.append((at(2, 5), "three"))
    assert await texts(server, cursor) == ["three"]
    assert "sinceTime" not in server.queries[0]
    assert (server.queries[0]["tailLines"], server.queries[1].get("tailLines")) == ("5", None)
    assert server.queries[1]["sinceTime"] == at(2)


@pytest.mark.parametrize("text", ["", " ", "no timestamp", "  indented", "2026 is a year", "\x1b[31mred\x1b[0m", "a\rb"])
async def test_the_text_of_a_line_is_unchanged(text: str) -> None:
    assert await texts(LogServer((at(1), text)), LogCursor()) == [text]


async def test_an_overlong_line_is_split() -> None:
    parts = await texts(LogServer((at(1), "x" * 1_000_000), chunk_size=65_536), LogCursor())
    assert len(parts) > 1
    assert sum(map(len, parts)) == 1_000_000
