"""`dlop get`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING

from dlop.commands.common import Parser, say
from dlop.commands.errors import CommandError
from dlop.commands.jobs import Place, jobs_parser, on_jobs, wall_time

if TYPE_CHECKING:
    from dlop.console.screen import Screen
    from dlop.jobs.finding import Reference, Search
    from dlop.jobs.view import JobView


def parser() -> Parser:
    """What the command takes."""
    found = jobs_parser("get", "Shows jobs of all kinds in one table.", everywhere=True)
    found.add_argument("what", nargs="?", metavar="KIND[/JOB]", help="only jobs of this kind, or one job; default: all")
    found.add_argument("-w", "--watch", action="store_true", help="go on, and show every change")
    found.add_output()
    return found


def main(arguments: Sequence[str]) -> int:
    """Show jobs."""
    options = parser().parse_args(arguments)

    async def get(place: Place) -> int:
        from dlop.console.screen import Screen  # noqa: PLC0415
        from dlop.jobs.finding import Reference, list_jobs, read_reference, unknown_kinds  # noqa: PLC0415
        from dlop.jobs.looking import look_at_jobs  # noqa: PLC0415

        everything = Reference(tuple(place.registry), None)
        what = everything if options.what is None else read_reference(options.what, place.registry)
        namespace = None if options.all_namespaces else place.namespace
        search = await list_jobs(place.client, what.kinds, namespace=namespace, name=what.name)
        if not search.served:
            raise CommandError(unknown_kinds(what.kinds))
        if what.name is not None and not search.jobs:
            await place.find(options.what)  # tells which there are
        for kind in search.unreadable:
            say(f"{kind} is left out: you may not read it here")
        shown = _Shown(Screen(), with_namespace=options.all_namespaces, as_json=options.output == "json", namespace=namespace)
        if options.watch:
            return await _watch(place, what, search, shown)
        shown.show(await look_at_jobs(place.client, search.jobs, namespace=namespace))
        return 0

    return on_jobs(options, get)


class _Shown:
    """What is on the screen already."""

    def __init__(self, screen: Screen, *, with_namespace: bool, as_json: bool, namespace: str | None) -> None:
        self.screen = screen
        self.namespace = namespace
        self._with_namespace = with_namespace
        self._as_json = as_json
        self._rows: set[tuple[str, ...]] = set()

    def show(self, views: list[JobView]) -> None:
        """All of them."""
        from dlop.console.job_tables import jobs_table  # noqa: PLC0415

        if self._as_json:
            self.screen.json(views)
        elif views:
            self.screen.table(jobs_table(views, now=wall_time(), with_namespace=self._with_namespace))
        else:
            say(f"there are no jobs{f' in the namespace {self.namespace}' if self.namespace else ''}")

    def show_news(self, views: list[JobView]) -> None:
        """Those that have changed, a line each, as `kubectl get --watch` does."""
        from dlop.console.job_tables import jobs_table  # noqa: PLC0415
        from dlop.console.tables import Table, plain_lines  # noqa: PLC0415

        changed = [view for view in views if self._is_new(view)]
        if self._as_json:
            for view in changed:
                self.screen.json(view, on_one_line=True)
        elif changed:
            table = jobs_table(changed, now=wall_time(), with_namespace=self._with_namespace)
            lines = plain_lines(Table(table.headers, table.rows))
            for line in lines[1:] if self.has_headers else lines:
                self.screen.line(line)
            self.has_headers = True

    has_headers = False

    def _is_new(self, view: JobView) -> bool:
        roles = tuple(f"{role.running} {role.succeeded} {role.wanted}" for role in view.roles)
        row = (view.uid, view.phase, str(view.is_leaving), str(view.restarts), str(view.disruptions), *view.waits_for[:1], *roles)
        if row in self._rows:
            return False
        self._rows = {each for each in self._rows if each[0] != view.uid} | {row}
        return True


async def _watch(place: Place, what: Reference, search: Search, shown: _Shown) -> int:
    from dlop.jobs.looking import watch_jobs  # noqa: PLC0415

    async with watch_jobs(place.client, search.served, namespace=shown.namespace, name=what.name) as lists, aclosing(lists):
        if not shown.screen.is_terminal or shown.as_json:
            async for views in lists:
                shown.show_news(views)
            return 0
        return await _live(shown, lists)
