"""`dlop install`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dlop.cli.common import Parser, definitions_of, load_kinds, on_cluster, say

if TYPE_CHECKING:
    from dlop.kube.client import Client


def parser() -> Parser:
    """What the command takes."""
    found = Parser("install", "Creates the custom resource definitions in the cluster, or brings them up to date.")
    found.add_frameworks()
    found.add_cluster()
    found.add_take_over()
    return found


def main(arguments: Sequence[str]) -> int:
    """Bring the definitions into the cluster."""
    options = parser().parse_args(arguments)
    kinds = load_kinds(options)

    from dlop.deploy.apply import apply, without_foreign, without_other_versions

    replaceable = without_other_versions if options.take_over else without_foreign

    async def install(client: Client) -> None:
        await apply(client, await replaceable(client, definitions_of(kinds), say=say), say=say)

    on_cluster(options, install)
    return 0
