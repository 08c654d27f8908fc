"""`dlop uninstall`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dlop.cli.common import Parser, definitions_of, load_kinds, on_cluster, say
from dlop.cli.errors import CommandError

if TYPE_CHECKING:
    from dlop.kube.client import Client


def parser() -> Parser:
    """What the command takes."""
    found = Parser("uninstall", "Deletes the custom resource definitions from the cluster, and with them every job of these kinds.")
    found.add_frameworks()
    found.add_cluster()
    found.add_argument("--yes", action="store_true", help="delete the jobs that there are")
    return found


def main(arguments: Sequence[str]) -> int:
    """Take the definitions out of the cluster, and with them every job."""
    options = parser().parse_args(arguments)
    kinds = load_kinds(options)

    from dlop.deploy.apply import jobs_of, remove, without_foreign

    async def uninstall(client: Client) -> None:
        found = await without_foreign(client, definitions_of(kinds), say=say)
        counts = {crd["metadata"]["name"]: await jobs_of(client, crd) for crd in found}
        if any(counts.values()) and not options.yes:
            listed = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
            raise CommandError(f"this would delete jobs with all their pods: {listed}. Nothing was deleted; add --yes if you mean it.")
        await remove(client, found, say=say)

    on_cluster(options, uninstall)
    return 0
