"""`dlop get`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING

from dlop.cli.common import Parser, say
from dlop.cli.errors import CommandError
from dlop.cli.job_args import JobSession, jobs_parser, on_jobs, wall_time

if TYPE_CHECKING:
    from dlop.jobs.view import JobView


def parser() -> Parser:
    """What the command takes."""
    found = jobs_parser("get", "Shows jobs of all kinds in one table.", everywhere=True)
    found.add_argument("what", nargs="?", metavar="KIND[/JOB]", help="only jobs of this kind, or one job; default: all")
    found.add_argument("-w", "--watch", action="store_true", help="go on, with a line for every change")
    found.add_output()
    return found


def main(arguments: Sequence[str]) -> int:
    """Show jobs."""
    options = parser().parse_args(arguments)

    async def get(place: JobSession) -> int:
        from dlop.jobs.lookup import Reference, list_jobs, read_reference, unknown_kinds
        from dlop.jobs.queries import look_at_jobs, watch_jobs

        what = Reference(tuple(place.registry), None) if options.what is None else read_reference(options.what, place.registry)
        namespace = None if options.all_namespaces else place.namespace
        search = await list_jobs(place.client, what.kinds, namespace=namespace, name=what.name)
        if not search.served:
            raise CommandError(unknown_kinds(what.kinds))
        if what.name is not None and not search.jobs:
            await place.find(options.what)  # tells which there are
        for kind in search.unreadable:
            say(f"{kind} is left out: you may not read it here")
        output = _Output(namespace, as_json=options.output == "json")
        if not options.watch:
            output.show(await look_at_jobs(place.client, search.jobs, namespace=namespace))
            return 0
        async with watch_jobs(place.client, search.served, namespace=namespace, name=what.name) as lists, aclosing(lists):
            async for views in lists:
                output.show_news(views)
        return 0

    return on_jobs(options, get)


class _Output:
    """Prints jobs, and knows what it has printed."""

    def __init__(self, namespace: str | None, *, as_json: bool) -> None:
        from dlop.console.output import Screen

        self._screen = Screen()
        self._namespace = namespace
        self._as_json = as_json
        self._printed: dict[str, JobView] = {}
        self._has_headers = False

    def show(self, views: list[JobView]) -> None:
        """All of them."""
        from dlop.console.tables import jobs_table

        if self._as_json:
            self._screen.json(views)
        elif views:
            self._screen.table(jobs_table(views, now=wall_time(), with_namespace=self._namespace is None))
        else:
            say(f"there are no jobs{f' in the namespace {self._namespace}' if self._namespace else ''}")

    def show_news(self, views: list[JobView]) -> None:
        """Those that have changed, a line each."""
        from dlop.console.tables import (
            jobs_table,
            plain_lines,
        )

        before, self._printed = self._printed, {view.uid: view for view in views}
        changed = [view for view in views if view.uid not in before or _state(before[view.uid]) != _state(view)]
        for gone in before.keys() - self._printed.keys():
            say(f"{before[gone].kind} {before[gone].name} is gone")
        if self._as_json:
            for view in changed:
                self._screen.json(view, on_one_line=True)
        elif changed:
            lines = plain_lines(jobs_table(changed, now=wall_time(), with_namespace=self._namespace is None))
            for line in lines[1:] if self._has_headers else lines:
                self._screen.line(line)
            self._has_headers = True


def _state(view: JobView) -> tuple[object, ...]:
    """What makes a line another one: not its age."""
    return view.phase, view.is_leaving, view.restarts, view.disruptions, view.waits_for[:1], view.roles
