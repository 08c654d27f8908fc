"""`dlop deploy`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from dlop.cli.common import Parser, chosen_rights, definitions_of, load_kinds, on_cluster, say
from dlop.cli.operator_flags import operator_flags

if TYPE_CHECKING:
    from dlop.deploy.deployment import Deployed
    from dlop.kube.client import Client


def parser() -> Parser:
    """What the command takes."""
    found = deployment_parser("deploy", "Brings the definitions, the rights and the operator into the cluster, or up to date.")
    found.add_rights()
    found.add_argument("flags", nargs="*", metavar="-- FLAG", help="after --: flags of `dlop run` that the operator is started with")
    return found


def main(arguments: Sequence[str]) -> int:
    """Run the operator in the cluster."""
    options = parser().parse_args(arguments)
    kinds = tuple(load_kinds(options))

    from dlop.deploy.apply import apply, ensure_namespace, without_foreign
    from dlop.deploy.deployment import namespace
    from dlop.deploy.installation import operator

    rights = chosen_rights(options, kinds)
    chosen = replace(chosen_deployment(options), rights=rights, flags=operator_flags(options.flags, rights=rights))

    async def deploy(client: Client) -> None:
        await ensure_namespace(client, namespace(chosen.namespace), say=say)
        # Definitions are replaced by `install --take-over` only: whoever deploys may not know of other operators.
        await apply(client, await without_foreign(client, definitions_of(kinds), say=say), say=say)
        await apply(client, operator(kinds, chosen), say=say)

    on_cluster(options, deploy)
    return 0


def deployment_parser(name: str, description: str) -> Parser:
    """The options that say which deployment is meant."""
    found = Parser(name, description)
    found.add_frameworks()
    found.add_cluster()
    found.add_argument("--namespace", metavar="NAME", help="where the operator runs; default: dlop-system")
    found.add_argument("--image", help="the image of the operator; default: dlop:latest")
    found.add_argument(
        "--watch-namespace",
        action="append",
        default=[],
        metavar="NAME",
        help="run jobs of this namespace only, with rights in it only; may be repeated; default: all namespaces",
    )
    return found


def chosen_deployment(options: argparse.Namespace) -> Deployed:
    """The deployment that the options describe."""
    from dlop.deploy.deployment import DEFAULT_IMAGE, DEFAULT_NAMESPACE, Deployed

    return Deployed(
        namespace=options.namespace or DEFAULT_NAMESPACE,
        image=options.image or DEFAULT_IMAGE,
        watched_namespaces=tuple(options.watch_namespace),
        frameworks=tuple(options.frameworks),
        kinds=tuple(options.kinds),
    )
