"""`dlop get`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, TypeVar

from dlop.cli.common import Parser, print_line
from dlop.cli.errors import CommandError
from dlop.cli.job_args import CRON_PREFIX, JobSession, job_parser, run_with_session, wall_time

if TYPE_CHECKING:
    from argparse import Namespace

    from dlop.console.tables import Table
    from dlop.jobs.crons import CronHandle, CronView
    from dlop.jobs.list_watch import ChangeSet
    from dlop.jobs.lookup import JobList
    from dlop.jobs.queries import ViewChanges
    from dlop.jobs.view import JobView
    from dlop.kube.objects import CustomObject

View = TypeVar("View")


def parser() -> Parser:
    parser = job_parser("get", "Show jobs of all kinds, and Crons.", all_namespaces=True, words=("crons", CRON_PREFIX))
    parser.add_argument(
        "reference",
        nargs="?",
        metavar="KIND[/JOB]",
        help="Show the jobs of this kind, or one job; or crons, or cron/NAME. Default: all.",
    )
    parser.add_argument("-w", "--watch", action="store_true", help="Watch for changes after listing the jobs and Crons.")
    parser.add_output()
    return parser


def main(arguments: Sequence[str]) -> int:
    options = parser().parse_args(arguments)

    async def get(session: JobSession) -> int:
        from dlop.jobs.crons import CronHandle, list_visible_crons, parse_cron_reference
        from dlop.jobs.lookup import JobReference, kinds_not_installed, list_jobs, parse_reference
        from dlop.jobs.queries import list_job_views

        namespace = None if options.all_namespaces else session.namespace
        printer = _Printer(namespace, as_json=options.output == "json")
        cron_name = None if options.reference is None else parse_cron_reference(options.reference)
        if cron_name is not None:
            return await _get_crons(session, options, cron_name, printer, namespace=namespace)
        all_jobs = JobReference(tuple(session.registry), None)
        reference = all_jobs if options.reference is None else parse_reference(options.reference, session.registry)
        listing = await list_jobs(session.client, reference.kinds, namespace=namespace, name=reference.name)
        if not listing.readable:
            raise CommandError(kinds_not_installed(reference.kinds))
        if reference.name is not None and not listing.jobs:
            # Raises an error that lists similar names if there is no Cron either.
            cron = await session.find_job_or_cron(options.reference)
            if isinstance(cron, CronHandle):
                return await _get_crons(session, options, cron.name, printer, namespace=namespace)
        for kind in listing.forbidden:
            print_line(f"skipping {kind}: you are not allowed to list it")
        # The JSON output is a list of jobs.
        with_crons = options.reference is None and options.output != "json"
        if options.watch:
            await _watch(session, listing, printer, namespace=namespace, name=reference.name, with_crons=with_crons)
        views = await list_job_views(session.client, listing.jobs, namespace=namespace)
        printer.print_all(views, await list_visible_crons(session.client, namespace=namespace) if with_crons else [])
        return 0

    return run_with_session(options, get)


async def _watch(
    session: JobSession, listing: JobList, printer: _Printer, *, namespace: str | None, name: str | None, with_crons: bool
) -> None:
    """Print jobs, and Crons if `with_crons`, and then their changes. Never returns."""
    from dlop.jobs.crons import watch_visible_crons
    from dlop.jobs.list_watch import merge
    from dlop.jobs.queries import ViewChanges, watch_jobs

    async with watch_jobs(session.client, listing.readable, namespace=namespace, name=name) as jobs:
        sources: list[AsyncGenerator[ViewChanges | ChangeSet[CustomObject], None]] = [jobs]
        if with_crons:
            sources.append(watch_visible_crons(session.client, namespace=namespace))
        async with merge(*sources) as changes, aclosing(changes):
            async for _, change in changes:
                if isinstance(change, ViewChanges):
                    printer.print_changes(change)
                else:
                    printer.print_cron_changes(change)


async def _get_crons(session: JobSession, options: Namespace, name: str, printer: _Printer, *, namespace: str | None) -> int:
    from dlop.jobs.crons import get_cron, list_crons, watch_crons

    crons = await list_crons(session.client, namespace=namespace, name=name)
    if name and not crons:
        await get_cron(session.client, name, namespace=session.namespace)  # raises an error that lists the others
    if not options.watch:
        printer.print_all_crons(crons)
        return 0
    async with aclosing(watch_crons(session.client, namespace=namespace, name=name)) as changes:
        async for change in changes:
            printer.print_cron_changes(change)
    return 0


class _Printer:
    """Prints jobs and Crons and remembers them, so that a watch prints only changes."""

    def __init__(self, namespace: str | None, *, as_json: bool) -> None:
        from dlop.console.output import Output

        self._output = Output()
        self._namespace = namespace
        self._as_json = as_json
        self._printed: dict[str, tuple[object, ...]] = {}
        """The visible states of the printed jobs and Crons, by UID."""
        self._headers: tuple[str, ...] = ()
        """Of the last table."""

    def print_all(self, views: list[JobView], crons: list[CronHandle]) -> None:
        if self._as_json:
            self._output.json(views)
            return
        if views:
            self._output.table(self._jobs_table(views))
        if views and crons:
            self._output.line("")
        if crons:
            self.print_all_crons(crons)
        elif not views:
            print_line(f"no jobs found{self._in_namespace}")

    def print_all_crons(self, crons: list[CronHandle]) -> None:
        from dlop.jobs.crons import build_cron_view

        views = [build_cron_view(cron, now=wall_time()) for cron in crons]
        if self._as_json:
            self._output.json(views)
        elif views:
            self._output.table(self._crons_table(views))
        else:
            print_line(f"no Crons found{self._in_namespace}")

    def print_changes(self, changes: ViewChanges) -> None:
        """Print the jobs whose visible state has changed."""
        for view in changes.deleted:
            self._forget(view.uid, f"{view.kind} {view.name}")
        self._print_changed({view.uid: view for view in changes.changed}, _visible_state, self._jobs_table)

    def print_cron_changes(self, changes: ChangeSet[CustomObject]) -> None:
        """Print the Crons whose visible state has changed."""
        from dlop.jobs.crons import CronHandle, build_cron_view

        for cron in map(CronHandle, changes.deleted):
            self._forget(cron.custom_object.metadata.uid, str(cron))
        views = {item.metadata.uid: build_cron_view(CronHandle(item), now=wall_time()) for item in changes.upserted}
        self._print_changed(views, _visible_cron_state, self._crons_table)

    def _forget(self, uid: str, title: str) -> None:
        del self._printed[uid]
        print_line(f"{title} deleted")

    def _print_changed(
        self, views: Mapping[str, View], visible_state: Callable[[View], tuple[object, ...]], make_table: Callable[[list[View]], Table]
    ) -> None:
        """`views` are by UID."""
        from dlop.console.tables import format_table

        states = {uid: visible_state(view) for uid, view in views.items()}
        changed = [view for uid, view in views.items() if self._printed.get(uid) != states[uid]]
        self._printed |= states
        if self._as_json:
            for view in changed:
                self._output.json(view, on_one_line=True)
        elif changed:
            table = make_table(changed)
            if self._headers and table.headers != self._headers:
                self._output.line("")
            for line in format_table(table)[1 if table.headers == self._headers else 0 :]:
                self._output.line(line)
            self._headers = table.headers

    def _jobs_table(self, views: list[JobView]) -> Table:
        from dlop.console.tables import jobs_table

        return jobs_table(views, now=wall_time(), with_namespace=self._namespace is None)

    def _crons_table(self, views: list[CronView]) -> Table:
        from dlop.console.crons import crons_table

        return crons_table(views, now=wall_time(), with_namespace=self._namespace is None)

    @property
    def _in_namespace(self) -> str:
        return f" in the namespace {self._namespace}" if self._namespace else ""


def _visible_state(view: JobView) -> tuple[object, ...]:
    """The columns of the table without the age and the duration."""
    return view.phase, view.is_terminating, view.restarts, view.disruptions, view.pending_reason, view.roles


def _visible_cron_state(view: CronView) -> tuple[object, ...]:
    """The columns of the table without the age."""
    return view.schedule, view.time_zone, view.is_suspended, view.active, view.last_scheduled_at, view.next_scheduled_at, view.problem
