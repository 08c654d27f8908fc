"""Log files: encoding, reading, following and rotation."""

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

from dlop.embedded.kubelet.cri_lines import CriLineDecoder, CriLineEncoder, format_timestamp
from dlop.embedded.kubelet.logs import STDERR, STDOUT, ContainerLog, ContainerLogs, LogQuery

SECOND = 1_000_000_000
NOON = 1_767_268_800 * SECOND


class Clock:
    """A clock that advances one second per call."""

    def __init__(self) -> None:
        self.now = NOON - SECOND

    def __call__(self) -> int:
        self.now += SECOND
        return self.now


CreateLog = Callable[..., ContainerLog]


@pytest.fixture
def create_log(tmp_path: Path) -> Iterator[CreateLog]:
    logs: list[ContainerLog] = []

    def create(**limits: int) -> ContainerLog:
        logs.append(ContainerLog(tmp_path / "0.log", clock_ns=Clock(), **limits))
        return logs[-1]

    yield create
    for log in logs:
        log.close()


async def read_all(log: ContainerLog, query: LogQuery) -> bytes:
    async with aclosing(log.read(query)) as chunks:
        return b"".join([chunk async for chunk in chunks])


def file_sizes(directory: Path) -> list[int]:
    return [path.stat().st_size for path in directory.iterdir()]


# --- the file ---------------------------------------------------------------------------------------------------------


def test_every_line_has_a_timestamp_a_stream_a_tag_and_text(create_log: CreateLog, tmp_path: Path) -> None:
    log = create_log()
    log.write(b"one\ntwo\n", STDOUT)
    log.write(b"oops\n", STDERR)
    assert (tmp_path / "0.log").read_bytes() == (
        b"2026-01-01T12:00:00.000000000Z stdout F one\n"
        b"2026-01-01T12:00:00.000000000Z stdout F two\n"
        b"2026-01-01T12:00:01.000000000Z stderr F oops\n"
    )


def test_a_line_written_in_chunks_is_one_line(create_log: CreateLog) -> None:
    log = create_log()
    for chunk in (b"he", b"llo", b" world\nnext"):
        log.write(chunk, STDOUT)
    assert log.read_available() == b"hello world\n"


def test_a_long_line_is_split_into_16_kib_parts_and_read_as_one(create_log: CreateLog, tmp_path: Path) -> None:
    log = create_log()
    line = bytes(range(97, 123)) * 2000 + b"\n"
    log.write(b"before\n" + line + b"after\n", STDOUT)
    tags = [row.split(b" ")[2] for row in (tmp_path / "0.log").read_bytes().splitlines()]
    assert tags == [b"F", b"P", b"P", b"P", b"F", b"F"]
    assert log.read_available() == b"before\n" + line + b"after\n"


def test_a_last_line_without_a_newline_is_read_without_one(create_log: CreateLog, tmp_path: Path) -> None:
    log = create_log()
    log.write(b"no end", STDOUT)
    assert log.read_available() == b""
    log.close()
    assert log.read_available() == b"no end"
    assert b" stdout P no end\n" in (tmp_path / "0.log").read_bytes()


@given(st.lists(st.binary(max_size=40_000), max_size=6), st.booleans())
def test_decoding_returns_the_encoded_output(chunks: list[bytes], timestamps: bool) -> None:
    encoder = CriLineEncoder(STDOUT)
    encoded = b"".join([*(encoder.encode(chunk, nanoseconds=NOON) for chunk in chunks), encoder.flush(nanoseconds=NOON)])
    assert all(len(row) <= 40 + 16 * 1024 for row in encoded.split(b"\n"))
    output = CriLineDecoder(LogQuery(timestamps=timestamps)).decode(encoded) if encoded else b""
    head = format_timestamp(NOON) + b" "
    text = b"".join(chunks)
    expected = b"\n".join(head + line for line in text.split(b"\n")).removesuffix(head) if timestamps else text
    assert output == expected


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
async def test_a_query_selects_lines(create_log: CreateLog, query: LogQuery, expected: bytes) -> None:
    log = create_log()
    for number in range(5):
        log.write(b"%d\n" % number, STDERR if number % 2 else STDOUT)
    assert log.read_available(query) == expected
    assert await read_all(log, query) == expected


def test_a_long_line_has_one_timestamp(create_log: CreateLog) -> None:
    log = create_log()
    log.write(b"x" * 20_000 + b"\nnext\n", STDOUT)
    output = log.read_available(LogQuery(timestamps=True))
    assert re.fullmatch(rb"(\S+Z) x{20000}\n(\S+Z) next\n", output)


def test_tail_lines_counts_the_parts_of_a_long_line_as_in_the_kubelet(create_log: CreateLog) -> None:
    log = create_log()
    log.write(b"a" * 16 * 1024 + b"b" * 10 + b"\n", STDOUT)
    assert log.read_available(LogQuery(tail_lines=1)) == b"b" * 10 + b"\n"


async def test_a_follower_receives_each_new_line_and_the_end(create_log: CreateLog) -> None:
    log = create_log()
    log.write(b"old\nolder\n", STDOUT)
    async with asyncio.timeout(10), aclosing(log.read(LogQuery(follow=True, tail_lines=1))) as chunks:
        assert await anext(chunks) == b"older\n"
        waiting = asyncio.ensure_future(anext(chunks))
        await asyncio.sleep(0)
        log.write(b"new\n", STDOUT)
        assert await waiting == b"new\n"
        ending = asyncio.ensure_future(anext(chunks, b"the end"))
        await asyncio.sleep(0)
        log.close()
        assert await ending == b"the end"


async def test_one_line_wakes_all_followers(create_log: CreateLog) -> None:
    log = create_log()
    follower = [asyncio.create_task(read_all(log, LogQuery(follow=True))) for _ in range(20)]
    await asyncio.sleep(0)
    log.write(b"hear\n", STDOUT)
    log.close()
    async with asyncio.timeout(10):
        assert set(await asyncio.gather(*follower)) == {b"hear\n"}


async def test_a_reader_that_does_not_follow_stops_while_the_writer_continues(create_log: CreateLog) -> None:
    log = create_log()
    log.write(b"x\n" * 100_000, STDOUT)
    async with asyncio.timeout(10), aclosing(log.read()) as chunks:
        size = 0
        async for chunk in chunks:
            size += len(chunk)
            log.write(b"more\n" * 20_000, STDOUT)
    assert size == 200_000


# --- rotation ---------------------------------------------------------------------------------------------------------


def test_only_the_newest_files_are_kept(create_log: CreateLog, tmp_path: Path) -> None:
    log = create_log(max_file_bytes=100, max_files=3)
    for number in range(20):
        log.write(b"line %02d\n" % number, STDOUT)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0.log", "0.log.7", "0.log.8"]
    assert log.read_available() == b"".join(b"line %02d\n" % number for number in range(14, 20))
    assert log.read_available(LogQuery(tail_lines=3)) == b"line 17\nline 18\nline 19\n"
    log.delete()
    assert list(tmp_path.iterdir()) == []


async def test_a_follower_misses_no_line_during_rotation(create_log: CreateLog) -> None:
    log = create_log(max_file_bytes=200, max_files=3)
    follower = asyncio.create_task(read_all(log, LogQuery(follow=True)))
    for number in range(100):
        log.write(b"line %d\n" % number, STDOUT)
        for _ in range(4):
            await asyncio.sleep(0)
    log.close()
    async with asyncio.timeout(10):
        assert await follower == b"".join(b"line %d\n" % number for number in range(100))


async def test_a_slow_follower_continues_with_the_oldest_kept_file(create_log: CreateLog) -> None:
    log = create_log(max_file_bytes=100, max_files=2)
    log.write(b"first\n", STDOUT)
    async with asyncio.timeout(10), aclosing(log.read(LogQuery(follow=True))) as chunks:
        assert await anext(chunks) == b"first\n"
        for number in range(20):
            log.write(b"line %02d\n" % number, STDOUT)
        log.close()
        remaining = b"".join([chunk async for chunk in chunks])
    assert remaining.startswith(b"line 00\n")  # from the file that was open
    assert remaining.endswith(b"line 18\nline 19\n")
    assert b"line 05\n" not in remaining


# --- pipes ------------------------------------------------------------------------------------------------------------


async def test_pump_copies_the_output_of_a_process_and_closes_the_pipe(create_log: CreateLog) -> None:
    log = create_log()
    read_fd, write_fd = os.pipe()
    process = await asyncio.create_subprocess_exec("/bin/sh", "-c", "echo hello; printf end", stdout=write_fd)
    os.close(write_fd)
    async with asyncio.timeout(10):
        await log.pump(read_fd, STDOUT)
        await process.wait()
    log.close()
    assert log.read_available() == b"hello\nend"
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(read_fd)


async def test_a_cancelled_pump_closes_its_pipe(create_log: CreateLog) -> None:
    log = create_log()
    read_fd, write_fd = os.pipe()
    task = asyncio.create_task(log.pump(read_fd, STDOUT))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait((task,))
    with pytest.raises(BrokenPipeError):
        os.write(write_fd, b"x")
    os.close(write_fd)


async def test_a_verbose_container_neither_fills_the_disk_nor_blocks_the_event_loop(tmp_path: Path) -> None:
    log = ContainerLog(tmp_path / "0.log", max_file_bytes=1024 * 1024)
    read_fd, write_fd = os.pipe()
    command = "yes 'a line of some length, as they are in logs' | head -c 60000000"
    process = await asyncio.create_subprocess_exec("/bin/sh", "-c", command, stdout=write_fd)
    os.close(write_fd)
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count_turns())
    async with asyncio.timeout(60):
        await log.pump(read_fd, STDOUT)
        await process.wait()
    counting.cancel()
    log.close()
    sizes = file_sizes(tmp_path)
    assert len(sizes) == 5
    assert max(sizes) <= 1024 * 1024
    # One turn handles at most half a megabyte.
    assert turns > 60_000_000 / (512 * 1024)


def test_a_full_disk_loses_only_the_lines_written_meanwhile(create_log: CreateLog, monkeypatch: pytest.MonkeyPatch) -> None:
    log = create_log()
    log.write(b"one\n", STDOUT)
    with monkeypatch.context() as broken:
        broken.setattr(os, "write", _no_space)
        log.write(b"two\n", STDOUT)
    log.write(b"three\n", STDOUT)
    assert log.read_available() == b"one\nthree\n"


def _no_space(*_: object) -> int:
    raise OSError(28, "No space left on device")


# --- runs -------------------------------------------------------------------------------------------------------------


def test_the_logs_of_the_current_and_the_previous_run_are_kept(tmp_path: Path) -> None:
    logs = ContainerLogs(tmp_path / "main", clock_ns=time.time_ns)
    for run in range(3):
        logs.start_run(run).write(b"run %d\n" % run, STDOUT)
    logs.close()
    assert logs.current is not None
    assert logs.previous is not None
    assert (logs.previous.read_available(), logs.current.read_available()) == (b"run 1\n", b"run 2\n")
    assert sorted(path.name for path in (tmp_path / "main").iterdir()) == ["1.log", "2.log"]
