"""Log files: what is written, what is read back, and what stays when there is too much."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import aclosing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlop.embedded.kubelet.cri_lines import LineFramer, LogView, stamp
from dlop.embedded.kubelet.logs import STDERR, STDOUT, ContainerLog, ContainerLogs, LogQuery

SECOND = 1_000_000_000
NOON = 1_767_268_800 * SECOND


class Clock:
    """A clock that goes one second at each look."""

    def __init__(self) -> None:
        self.now = NOON - SECOND

    def __call__(self) -> int:
        self.now += SECOND
        return self.now


Make = Callable[..., ContainerLog]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[ContainerLog] = []

    def make_one(**limits: int) -> ContainerLog:
        made.append(ContainerLog(tmp_path / "0.log", nanoseconds=Clock(), **limits))
        return made[-1]

    yield make_one
    for log in made:
        log.end()


async def gathered(log: ContainerLog, query: LogQuery) -> bytes:
    async with aclosing(log.read(query)) as pieces:
        return b"".join([piece async for piece in pieces])


def file_sizes(folder: Path) -> list[int]:
    return [path.stat().st_size for path in folder.iterdir()]


# --- the file ---------------------------------------------------------------------------------------------------------


def test_every_line_of_the_file_has_a_time_a_stream_a_tag_and_the_text(make: Make, tmp_path: Path) -> None:
    log = make()
    log.write(b"one\ntwo\n", STDOUT)
    log.write(b"oops\n", STDERR)
    assert (tmp_path / "0.log").read_bytes() == (
        b"2026-01-01T12:00:00.000000000Z stdout F one\n"
        b"2026-01-01T12:00:00.000000000Z stdout F two\n"
        b"2026-01-01T12:00:01.000000000Z stderr F oops\n"
    )


def test_a_line_that_comes_in_pieces_is_one_line(make: Make) -> None:
    log = make()
    for piece in (b"he", b"llo", b" world\nnext"):
        log.write(piece, STDOUT)
    assert log.text() == b"hello world\n"


def test_a_long_line_is_cut_into_parts_of_16_kib_and_read_as_one(make: Make, tmp_path: Path) -> None:
    log = make()
    line = bytes(range(97, 123)) * 2000 + b"\n"
    log.write(b"before\n" + line + b"after\n", STDOUT)
    tags = [row.split(b" ")[2] for row in (tmp_path / "0.log").read_bytes().splitlines()]
    assert tags == [b"F", b"P", b"P", b"P", b"F", b"F"]
    assert log.text() == b"before\n" + line + b"after\n"


def test_a_last_line_without_a_newline_is_shown_without_one(make: Make, tmp_path: Path) -> None:
    log = make()
    log.write(b"no end", STDOUT)
    assert log.text() == b""
    log.end()
    assert log.text() == b"no end"
    assert b" stdout P no end\n" in (tmp_path / "0.log").read_bytes()


@given(st.lists(st.binary(max_size=40_000), max_size=6), st.booleans())
def test_what_goes_in_comes_out_whatever_it_is_and_however_it_is_cut(pieces: list[bytes], timestamps: bool) -> None:
    framer = LineFramer(STDOUT)
    framed = b"".join([*(framer.frame(piece, nanoseconds=NOON) for piece in pieces), framer.end(nanoseconds=NOON)])
    assert all(len(row) <= 40 + 16 * 1024 for row in framed.split(b"\n"))
    shown = LogView(LogQuery(timestamps=timestamps)).show(framed) if framed else b""
    head = stamp(NOON) + b" "
    text = b"".join(pieces)
    expected = b"\n".join(head + line for line in text.split(b"\n")).removesuffix(head) if timestamps else text
    assert shown == expected


# --- reading ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (LogQuery(), b"0\n1\n2\n3\n4\n"),
        (LogQuery(tail_lines=2), b"3\n4\n"),
        (LogQuery(tail_lines=0), b""),
        (LogQuery(tail_lines=99), b"0\n1\n2\n3\n4\n"),
        (LogQuery(since_nanoseconds=NOON + 3 * SECOND), b"3\n4\n"),
        (LogQuery(since_nanoseconds=NOON + 3 * SECOND, tail_lines=4), b"3\n4\n"),
        (LogQuery(since_nanoseconds=NOON + 99 * SECOND), b""),
        (LogQuery(limit_bytes=3), b"0\n1"),
        (LogQuery(limit_bytes=3, tail_lines=2), b"3\n4"),
        (LogQuery(timestamps=True, tail_lines=1), b"2026-01-01T12:00:04.000000000Z 4\n"),
        (LogQuery(timestamps=True, limit_bytes=10), b"2026-01-01"),
        (LogQuery(stream=STDERR), b"1\n3\n"),
    ],
)
async def test_only_what_is_wanted_is_shown(make: Make, query: LogQuery, expected: bytes) -> None:
    log = make()
    for number in range(5):
        log.write(b"%d\n" % number, STDERR if number % 2 else STDOUT)
    assert log.text(query) == expected
    assert await gathered(log, query) == expected


def test_the_time_stands_before_a_long_line_and_not_before_its_parts(make: Make) -> None:
    log = make()
    log.write(b"x" * 20_000 + b"\nnext\n", STDOUT)
    shown = log.text(LogQuery(timestamps=True))
    assert re.fullmatch(rb"(\S+Z) x{20000}\n(\S+Z) next\n", shown)


def test_the_parts_of_a_long_line_are_counted_as_lines_as_the_kubelet_does(make: Make) -> None:
    log = make()
    log.write(b"a" * 16 * 1024 + b"b" * 10 + b"\n", STDOUT)
    assert log.text(LogQuery(tail_lines=1)) == b"b" * 10 + b"\n"


async def test_a_follower_sees_each_line_when_it_is_written_and_the_end(make: Make) -> None:
    log = make()
    log.write(b"old\nolder\n", STDOUT)
    async with asyncio.timeout(10), aclosing(log.read(LogQuery(follow=True, tail_lines=1))) as pieces:
        assert await anext(pieces) == b"older\n"
        waiting = asyncio.ensure_future(anext(pieces))
        await asyncio.sleep(0)
        log.write(b"new\n", STDOUT)
        assert await waiting == b"new\n"
        ending = asyncio.ensure_future(anext(pieces, b"the end"))
        await asyncio.sleep(0)
        log.end()
        assert await ending == b"the end"


async def test_many_followers_are_woken_by_one_line(make: Make) -> None:
    log = make()
    following = [asyncio.create_task(gathered(log, LogQuery(follow=True))) for _ in range(20)]
    await asyncio.sleep(0)
    log.write(b"hear\n", STDOUT)
    log.end()
    async with asyncio.timeout(10):
        assert set(await asyncio.gather(*following)) == {b"hear\n"}


async def test_a_reader_that_does_not_follow_ends_though_the_writer_does_not(make: Make) -> None:
    log = make()
    log.write(b"x\n" * 100_000, STDOUT)
    async with asyncio.timeout(10), aclosing(log.read()) as pieces:
        size = 0
        async for piece in pieces:
            size += len(piece)
            log.write(b"more\n" * 20_000, STDOUT)
    assert size == 200_000


# --- rotation ---------------------------------------------------------------------------------------------------------


def test_only_the_newest_files_are_kept_and_read_as_one(make: Make, tmp_path: Path) -> None:
    log = make(most_bytes_a_file=100, most_files=3)
    for number in range(20):
        log.write(b"line %02d\n" % number, STDOUT)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0.log", "0.log.7", "0.log.8"]
    assert log.text() == b"".join(b"line %02d\n" % number for number in range(14, 20))
    assert log.text(LogQuery(tail_lines=3)) == b"line 17\nline 18\nline 19\n"
    log.remove()
    assert list(tmp_path.iterdir()) == []


async def test_a_follower_misses_nothing_when_files_are_put_aside(make: Make) -> None:
    log = make(most_bytes_a_file=200, most_files=3)
    following = asyncio.create_task(gathered(log, LogQuery(follow=True)))
    for number in range(100):
        log.write(b"line %d\n" % number, STDOUT)
        for _ in range(4):
            await asyncio.sleep(0)
    log.end()
    async with asyncio.timeout(10):
        assert await following == b"".join(b"line %d\n" % number for number in range(100))


async def test_a_follower_that_is_too_slow_goes_on_with_the_oldest_that_is_kept(make: Make) -> None:
    log = make(most_bytes_a_file=100, most_files=2)
    log.write(b"first\n", STDOUT)
    async with asyncio.timeout(10), aclosing(log.read(LogQuery(follow=True))) as pieces:
        assert await anext(pieces) == b"first\n"
        for number in range(20):
            log.write(b"line %02d\n" % number, STDOUT)
        log.end()
        rest = b"".join([piece async for piece in pieces])
    assert rest.startswith(b"line 00\n")  # of the file that it had open
    assert rest.endswith(b"line 18\nline 19\n")
    assert b"line 05\n" not in rest


# --- pipes ------------------------------------------------------------------------------------------------------------


async def test_what_a_process_writes_is_in_its_log_and_the_pipe_is_closed(make: Make) -> None:
    log = make()
    reading, writing = os.pipe()
    process = await asyncio.create_subprocess_exec("/bin/sh", "-c", "echo hello; printf end", stdout=writing)
    os.close(writing)
    async with asyncio.timeout(10):
        await log.pump(reading, STDOUT)
        await process.wait()
    log.end()
    assert log.text() == b"hello\nend"
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(reading)


async def test_a_pump_that_is_cancelled_closes_its_pipe(make: Make) -> None:
    log = make()
    reading, writing = os.pipe()
    task = asyncio.create_task(log.pump(reading, STDOUT))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait((task,))
    with pytest.raises(BrokenPipeError):
        os.write(writing, b"x")
    os.close(writing)


async def test_a_loud_container_fills_neither_the_disk_nor_the_turns_of_the_loop(tmp_path: Path) -> None:
    log = ContainerLog(tmp_path / "0.log", most_bytes_a_file=1024 * 1024)
    reading, writing = os.pipe()
    loud = "yes 'a line of some length, as they are in logs' | head -c 60000000"
    process = await asyncio.create_subprocess_exec("/bin/sh", "-c", loud, stdout=writing)
    os.close(writing)
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count_turns())
    async with asyncio.timeout(60):
        await log.pump(reading, STDOUT)
        await process.wait()
    counting.cancel()
    log.end()
    sizes = file_sizes(tmp_path)
    assert len(sizes) == 5
    assert max(sizes) <= 1024 * 1024
    # One turn takes half a megabyte at most.
    assert turns > 60_000_000 / (512 * 1024)


def test_a_full_disk_costs_lines_and_nothing_else(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    log = make()
    log.write(b"one\n", STDOUT)
    with monkeypatch.context() as broken:
        broken.setattr(os, "write", _no_space)
        log.write(b"two\n", STDOUT)
    log.write(b"three\n", STDOUT)
    assert log.text() == b"one\nthree\n"


def _no_space(*_: object) -> int:
    raise OSError(28, "No space left on device")


# --- runs -------------------------------------------------------------------------------------------------------------


def test_the_logs_of_this_run_and_of_the_one_before_are_kept(tmp_path: Path) -> None:
    logs = ContainerLogs(tmp_path / "main", nanoseconds=time.time_ns)
    for run in range(3):
        logs.begin(run).write(b"run %d\n" % run, STDOUT)
    logs.end()
    assert logs.current is not None
    assert logs.previous is not None
    assert (logs.previous.text(), logs.current.text()) == (b"run 1\n", b"run 2\n")
    assert sorted(path.name for path in (tmp_path / "main").iterdir()) == ["1.log", "2.log"]
