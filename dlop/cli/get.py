"""`dlop get`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING

from dlop.cli.common import Parser, print_line
from dlop.cli.errors import CommandError
from dlop.cli.job_args import CRON_PREFIX, JobSession, job_parser, run_with_session, wall_time

if TYPE_CHECKING:
    from argparse import Namespace

    from dlop.jobs.crons import CronHandle
    from dlop.jobs.queries import ViewChanges
    from dlop.jobs.view import JobView


def parser() -> Parser:
    parser = job_parser("get", "Show jobs of all kinds, and Crons.", all_namespaces=True, words=("crons", CRON_PREFIX))
    parser.add_argument(
        "reference", nargs="?", metavar="KIND[/JOB]", help="Show the jobs of this kind, or one job; or crons, or cron/NAME. Default: all."
    )
    parser.add_argument("-w", "--watch", action="store_true", help="Watch for changes after listing the jobs.")
    parser.add_output()
    return parser


def main(arguments: Sequence[str]) -> int:
    options = parser().parse_args(arguments)

    async def get(session: JobSession) -> int:
        from dlop.jobs.crons import list_visible_crons, parse_cron_reference
        from dlop.jobs.lookup import JobReference, kinds_not_installed, list_jobs, parse_reference
        from dlop.jobs.queries import list_job_views, watch_jobs

        namespace = None if options.all_namespaces else session.namespace
        cron_name = None if options.reference is None else parse_cron_reference(options.reference)
        if cron_name is not None:
            return await _get_crons(session, options, cron_name, namespace=namespace)
        all_jobs = JobReference(tuple(session.registry), None)
        reference = all_jobs if options.reference is None else parse_reference(options.reference, session.registry)
        listing = await list_jobs(session.client, reference.kinds, namespace=namespace, name=reference.name)
        if not listing.readable:
            raise CommandError(kinds_not_installed(reference.kinds))
        if reference.name is not None and not listing.jobs:
            await session.find(options.reference)  # raises an error that lists similar names
        for kind in listing.forbidden:
            print_line(f"skipping {kind}: you are not allowed to list it")
        printer = _JobPrinter(namespace, as_json=options.output == "json")
        if not options.watch:
            views = await list_job_views(session.client, listing.jobs, namespace=namespace)
            wants_crons = options.reference is None and options.output != "json"
            printer.print_all(views, await list_visible_crons(session.client, namespace=namespace) if wants_crons else [])
            return 0
        async with watch_jobs(session.client, listing.readable, namespace=namespace, name=reference.name) as changes, aclosing(changes):
            async for view_changes in changes:
                printer.print_changes(view_changes)
        return 0

    return run_with_session(options, get)


async def _get_crons(session: JobSession, options: Namespace, name: str, *, namespace: str | None) -> int:
    from dlop.jobs.crons import get_cron, list_crons
    from dlop.kube.errors import NotFoundError

    if options.watch:
        raise CommandError("Crons cannot be watched; watch the jobs, or use `kubectl get crons -w`.")
    try:
        crons = await list_crons(session.client, namespace=namespace, name=name)
    except NotFoundError as error:
        raise CommandError("the cluster does not serve Crons; `dlop install` installs the CRDs.") from error
    if name and not crons:
        await get_cron(session.client, name, namespace=session.namespace)  # raises an error that lists the others
    _print_crons(crons, namespace=namespace, as_json=options.output == "json")
    return 0


def _print_crons(crons: list[CronHandle], *, namespace: str | None, as_json: bool) -> None:
    from dlop.console.crons import crons_table
    from dlop.console.output import Output
    from dlop.jobs.crons import build_cron_view

    views = [build_cron_view(cron, now=wall_time()) for cron in crons]
    if as_json:
        Output().json(views)
    elif views:
        Output().table(crons_table(views, now=wall_time(), with_namespace=namespace is None))
    else:
        print_line(f"no Crons found{f' in the namespace {namespace}' if namespace else ''}")


class _JobPrinter:
    """Prints jobs and remembers them, so that a watch prints only changes."""

    def __init__(self, namespace: str | None, *, as_json: bool) -> None:
        from dlop.console.output import Output

        self._output = Output()
        self._namespace = namespace
        self._as_json = as_json
        self._printed: dict[str, tuple[object, ...]] = {}
        """The visible states of the printed jobs, by UID."""
        self._headers_printed = False

    def print_all(self, views: list[JobView], crons: list[CronHandle]) -> None:
        from dlop.console.tables import jobs_table

        if self._as_json:
            self._output.json(views)
            return
        if views:
            self._output.table(jobs_table(views, now=wall_time(), with_namespace=self._namespace is None))
        if views and crons:
            self._output.line("")
        if crons:
            _print_crons(crons, namespace=self._namespace, as_json=False)
        elif not views:
            print_line(f"no jobs found{f' in the namespace {self._namespace}' if self._namespace else ''}")

    def print_changes(self, changes: ViewChanges) -> None:
        """Print the jobs whose visible state has changed."""
        from dlop.console.tables import format_table, jobs_table

        for view in changes.deleted:
            del self._printed[view.uid]
            print_line(f"{view.kind} {view.name} deleted")
        changed = [view for view in changes.changed if self._printed.get(view.uid) != _visible_state(view)]
        self._printed |= {view.uid: _visible_state(view) for view in changed}
        if self._as_json:
            for view in changed:
                self._output.json(view, on_one_line=True)
        elif changed:
            lines = format_table(jobs_table(changed, now=wall_time(), with_namespace=self._namespace is None))
            for line in lines[1:] if self._headers_printed else lines:
                self._output.line(line)
            self._headers_printed = True


def _visible_state(view: JobView) -> tuple[object, ...]:
    """The columns of the table without the age and the duration."""
    return view.phase, view.is_terminating, view.restarts, view.disruptions, view.pending_reason, view.roles
