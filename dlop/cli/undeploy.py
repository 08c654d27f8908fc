"""`dlop undeploy`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from dlop.cli.common import Parser, load_kinds, on_cluster, say
from dlop.cli.deploy import chosen_deployment, deployment_parser

if TYPE_CHECKING:
    from dlop.kube.client import Client


def parser() -> Parser:
    """What the command takes."""
    return deployment_parser("undeploy", "Deletes the operator and its rights from the cluster. Jobs, definitions and its namespace stay.")


def main(arguments: Sequence[str]) -> int:
    """End the operator in the cluster."""
    options = parser().parse_args(arguments)
    kinds = tuple(load_kinds(options))

    from dlop.deploy.apply import remove
    from dlop.deploy.installation import operator
    from dlop.deploy.permission_sets import all_rights

    # Whichever rights it was deployed with: none of them stays.
    chosen = replace(chosen_deployment(options), rights=tuple(rights.name for rights in all_rights(kinds)))

    async def undeploy(client: Client) -> None:
        await remove(client, operator(kinds, chosen), say=say)

    on_cluster(options, undeploy)
    return 0
