"""`dlop logs`."""

from __future__ import annotations

import argparse
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING

from dlop.cli.common import Parser
from dlop.cli.job_args import JobSession, duration, job_parser, line_count, run_with_session

if TYPE_CHECKING:
    from dlop.console.log_output import LogOutput
    from dlop.jobs.log_lines import LogLine
    from dlop.jobs.logs import LogSelector


def parser() -> Parser:
    parser = job_parser("logs", "Print the logs of a job's replicas, including the previous run of restarted containers.")
    parser.add_argument("job", metavar="[KIND/]JOB", help="The job.")
    parser.add_argument("-f", "--follow", action="store_true", help="Follow the logs until the job has finished.")
    parser.add_argument("--role", metavar="ROLE", help="Print the logs of this role only.")
    parser.add_argument("--index", type=_index, metavar="N", help="Print the logs of replicas with this index only.")
    parser.add_argument("-c", "--container", metavar="NAME", help="The container. Default: the main container.")
    parser.add_argument("-p", "--previous", action="store_true", help="Print the logs of the previous run only.")
    parser.add_argument("--tail", type=line_count, metavar="N", help="Lines to print of each run. Default: all.")
    parser.add_argument("--since", type=duration, metavar="DURATION", help="Print lines newer than this, such as 90s, 5m or 1h.")
    parser.add_argument("--timestamps", action="store_true", help="Include timestamps.")
    parser.add_argument("--no-prefix", action="store_true", help="Do not prefix lines with the replica.")
    parser.add_output()
    return parser


def main(arguments: Sequence[str]) -> int:
    options = parser().parse_args(arguments)

    async def logs(session: JobSession) -> int:
        from dlop.console.log_output import LogOutput
        from dlop.console.output import Output
        from dlop.jobs.log_stream import follow_logs
        from dlop.jobs.logs import read_logs

        job = await session.find(options.job)
        selector = _selector(options)
        output = LogOutput(Output(), timestamps=options.timestamps, as_json=options.output == "json", prefixes=not options.no_prefix)
        if options.follow and not options.previous:
            async with follow_logs(session.client, job, selector) as lines:
                await _print(lines, output)
        else:
            await _print(read_logs(session.client, job, selector), output)
        return 0

    return run_with_session(options, logs)


async def _print(lines: AsyncGenerator[LogLine, None], output: LogOutput) -> None:
    async with aclosing(lines):
        async for line in lines:
            output.write(line)


def _selector(options: argparse.Namespace) -> LogSelector:
    from dlop.jobs.logs import LogSelector

    return LogSelector(
        role=options.role,
        index=options.index,
        container=options.container,
        previous=options.previous,
        tail_lines=options.tail,
        since_seconds=None if options.since is None else max(1, round(options.since)),
    )


def _index(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not the index of a replica, such as 0")
    return int(text)
