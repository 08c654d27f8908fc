"""`dlop logs`."""

from __future__ import annotations

import argparse
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING

from dlop.cli.common import Parser
from dlop.cli.job_args import JobSession, jobs_parser, on_jobs, seconds

if TYPE_CHECKING:
    from dlop.console.log_output import LogOutput
    from dlop.jobs.log_lines import LogLine
    from dlop.jobs.logs import LogChoice


def parser() -> Parser:
    """What the command takes."""
    found = jobs_parser("logs", "Prints what the replicas of a job have written, across restarts.")
    found.add_argument("job", metavar="[KIND/]JOB", help="the job")
    found.add_argument("-f", "--follow", action="store_true", help="go on until the job is over")
    found.add_argument("--role", metavar="ROLE", help="only replicas of this role")
    found.add_argument("--index", type=int, metavar="N", help="only replicas of this number")
    found.add_argument("-c", "--container", metavar="NAME", help="default: the one that takes part in the job")
    found.add_argument("-p", "--previous", action="store_true", help="only the run before the last one")
    found.add_argument("--tail", type=_count, metavar="N", help="only so many lines of each run")
    found.add_argument("--since", type=seconds, metavar="TIME", help="only what is not older than this: 90s, 5m, 1h")
    found.add_argument("--timestamps", action="store_true", help="with the moment of each line")
    found.add_argument("--no-prefix", action="store_true", help="without the replica before each line")
    found.add_output()
    return found


def main(arguments: Sequence[str]) -> int:
    """Print logs."""
    options = parser().parse_args(arguments)

    async def logs(place: JobSession) -> int:
        from dlop.console.log_output import LogOutput
        from dlop.console.output import Screen
        from dlop.jobs.log_stream import follow_logs
        from dlop.jobs.logs import read_logs

        found = await place.find(options.job)
        choice = _choice(options)
        output = LogOutput(Screen(), timestamps=options.timestamps, as_json=options.output == "json", prefixes=not options.no_prefix)
        if options.follow and not options.previous:
            async with follow_logs(place.client, found, choice) as lines:
                await _print(lines, output)
        else:
            await _print(read_logs(place.client, found, choice), output)
        return 0

    return on_jobs(options, logs)


async def _print(lines: AsyncGenerator[LogLine, None], output: LogOutput) -> None:
    async with aclosing(lines):
        async for line in lines:
            output.write(line)


def _choice(options: argparse.Namespace) -> LogChoice:
    from dlop.jobs.logs import LogChoice

    return LogChoice(
        role=options.role,
        index=options.index,
        container=options.container,
        previous=options.previous,
        tail_lines=options.tail,
        since_seconds=None if options.since is None else max(1, round(options.since)),
    )


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no number of lines")
    return int(text)
