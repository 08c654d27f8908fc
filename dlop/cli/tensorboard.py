"""`dlop tensorboard`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from dlop.cli.common import Parser, print_line
from dlop.cli.errors import CommandError
from dlop.cli.job_args import JobSession, job_parser, run_with_session, wall_time

if TYPE_CHECKING:
    from dlop.jobs.lookup import JobHandle
    from dlop.kube.http.transport import HttpTransport


def parser() -> Parser:
    parser = job_parser("tensorboard", "Open the TensorBoard of a job. Waits until it is ready, and runs until Ctrl-C.")
    parser.add_argument("job", metavar="[KIND/]JOB", help="The job.")
    parser.add_argument("--port", type=_port, default=0, metavar="N", help="The port on this machine. Default: any free port.")
    parser.add_argument("--no-browser", action="store_true", help="Only print the address, and do not open a browser.")
    return parser


def main(arguments: Sequence[str]) -> int:
    options = parser().parse_args(arguments)

    async def open_tensorboard(session: JobSession) -> int:
        from dlop.api.tensorboard import TENSORBOARD_PORT, tensorboard_name
        from dlop.jobs.tensorboard import tensorboard_of
        from dlop.kube.http.port_forward import HOST, forward_port

        job = await session.find(options.job)
        path = tensorboard_of(job).path(job.namespace, job.name)
        transport = cast("HttpTransport", session.client.transport)
        forwarding = forward_port(
            transport,
            namespace=job.namespace,
            pod=tensorboard_name(job.name),
            port=TENSORBOARD_PORT,
            local_port=options.port,
            on_error=lambda message: print_line(f"connection failed: {message}"),
        )
        try:
            async with forwarding as port:
                await _watch(session, job, url=f"http://{HOST}:{port}{path}/", opens_browser=not options.no_browser)
        except OSError as error:
            raise CommandError(
                f"cannot listen on port {options.port}: {error.strerror or error}; choose another one with --port"
            ) from error
        return 0

    return run_with_session(options, open_tensorboard)


async def _watch(session: JobSession, job: JobHandle, *, url: str, opens_browser: bool) -> None:
    """Print the address when the TensorBoard is ready, and what is wrong when it is not."""
    import sys
    from contextlib import aclosing

    from dlop.jobs.tensorboard import watch_tensorboard

    has_opened = False
    async with aclosing(watch_tensorboard(session.client, job, clock=wall_time)) as states:
        async for state in states:
            if not state.is_ready:
                print_line(f"waiting for the TensorBoard of {job}: {state.message}")
            elif has_opened:
                print_line(f"the TensorBoard of {job} is ready again")
            else:
                has_opened = True
                sys.stdout.write(f"{url}\n")
                sys.stdout.flush()
                if opens_browser:
                    _open_browser(url)


def _open_browser(url: str) -> None:
    """Open a browser in the background. Without one, the user has the address."""
    import threading
    import webbrowser

    threading.Thread(target=webbrowser.open, args=(url,), name="browser", daemon=True).start()


def _port(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port from 1 to 65535")
    return int(text)
