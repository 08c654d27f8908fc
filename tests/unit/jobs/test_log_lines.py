"""Lines of logs: whole whatever the network makes of them, and none twice when reading is taken up again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlop.jobs.log_lines import Cursor, LogSource, read_lines
from dlop.kube.client import Client
from dlop.kube.errors import TransportError
from dlop.kube.transport import Request, Response, StreamResponse
from dlop.testing.virtual_time import virtual_time

SOURCE = LogSource(namespace="ns", pod="pod", container="main")


class LogServer:
    """Has one log, and sends it in pieces: from the second of `sinceTime` on, as a kubelet does."""

    def __init__(self, *lines: tuple[str, str], pieces: int = 7, breaks_after: int | None = None) -> None:
        self.lines = list(lines)
        self.queries: list[dict[str, str]] = []
        self.breaks_after = breaks_after
        self._pieces = pieces

    async def send(self, request: Request, *, timeout_seconds: float) -> Response:
        raise NotImplementedError

    @asynccontextmanager
    async def stream(self, request: Request, *, idle_timeout_seconds: float) -> AsyncIterator[StreamResponse]:
        query = dict(request.query)
        self.queries.append(query)
        since = query.get("sinceTime", "")[:19]
        text = "".join(f"{moment} {text}\n" for moment, text in self.lines if moment[:19] >= since)
        yield StreamResponse(200, {}, self._chunks(text.encode()))

    async def _chunks(self, data: bytes) -> AsyncIterator[bytes]:
        limit, self.breaks_after = self.breaks_after, None
        for start in range(0, len(data), self._pieces):
            if limit is not None and start >= limit:
                raise TransportError("it broke")
            yield data[start : start + self._pieces]

    async def refresh_credentials(self) -> str:
        return ""

    async def close(self) -> None:
        return None


async def texts(server: LogServer, cursor: Cursor) -> list[str]:
    found: list[str] = []
    async with aclosing(read_lines(Client(server), SOURCE, cursor, follow=True, tail_lines=5)) as lines:
        try:
            async for _, text in lines:
                found.append(text)
        except TransportError:
            pass
    return found


def at(second: int, fraction: int = 0) -> str:
    return f"2026-01-01T00:00:{second:02}.{fraction:09}Z"


LINES = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 1)), max_size=12).map(sorted)


@given(moments=LINES, pieces=st.integers(1, 50), breaks_after=st.integers(0, 500))
def test_a_log_that_breaks_anywhere_is_read_whole_and_no_line_twice(moments: list[tuple[int, int]], pieces: int, breaks_after: int) -> None:
    """Many lines of one moment are the worst case: only their number tells them apart."""
    written = [(at(*moment), f"line {number} …") for number, moment in enumerate(moments)]

    @virtual_time
    async def story() -> None:
        server, cursor = LogServer(*written, pieces=pieces, breaks_after=breaks_after), Cursor()
        first = await texts(server, cursor)
        # What broke inside a line is read again from its beginning.
        assert first + await texts(server, cursor) == [text for _, text in written]

    story()


@virtual_time
async def test_reading_is_taken_up_from_the_last_moment_and_only_the_first_time_from_the_tail() -> None:
    server, cursor = LogServer((at(1), "one"), (at(2), "two")), Cursor()
    assert await texts(server, cursor) == ["one", "two"]
    server.lines.append((at(2, 5), "three"))
    assert await texts(server, cursor) == ["three"]
    assert "sinceTime" not in server.queries[0]
    assert (server.queries[0]["tailLines"], server.queries[1].get("tailLines")) == ("5", None)
    assert server.queries[1]["sinceTime"] == at(2)


@pytest.mark.parametrize("text", ["", " ", "no moment", "  indented", "2026 is a year", "\x1b[31mred\x1b[0m", "a\rb"])
async def test_the_text_of_a_line_stays_as_it_is(text: str) -> None:
    assert await texts(LogServer((at(1), text)), Cursor()) == [text]


async def test_a_line_without_end_is_given_in_parts() -> None:
    found = await texts(LogServer((at(1), "x" * 1_000_000), pieces=65_536), Cursor())
    assert len(found) > 1
    assert sum(map(len, found)) == 1_000_000
