"""`dlop deploy`.

Flags of `dlop run` for an operator that is deployed: given to `dlop deploy` after `--`, and checked before anything is changed.
"""

from __future__ import annotations

import argparse
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from dlop.api.constants import GANG_RIGHTS
from dlop.cli.common import Parser, chosen_rights, definitions_of, load_kinds, on_cluster, say
from dlop.cli.errors import UsageError

if TYPE_CHECKING:
    from dlop.deploy.deployment import DeployOptions
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


def chosen_deployment(options: argparse.Namespace) -> DeployOptions:
    """The deployment that the options describe."""
    from dlop.deploy.deployment import DEFAULT_IMAGE, DEFAULT_NAMESPACE, DeployOptions

    return DeployOptions(
        namespace=options.namespace or DEFAULT_NAMESPACE,
        image=options.image or DEFAULT_IMAGE,
        watched_namespaces=tuple(options.watch_namespace),
        frameworks=tuple(options.frameworks),
        kinds=tuple(options.kinds),
    )


_CLUSTER = "leave it out: in the cluster, the operator goes by its service account"
_LEASE = "leave it out: the operator has a right to the lease dlop in its own namespace, and to no other"
_PORT = "leave it out: probes and metrics are on port 8080, which the Deployment and the Service dlop-metrics name"
_FILE = "a pod has no such file: mount it in what `dlop manifests` prints, and add the flag there"
_INSTEAD = {
    "kubeconfig": _CLUSTER,
    "context": _CLUSTER,
    "namespaces": "write --watch-namespace NAME before the two dashes, which makes rights to fit",
    "kinds": "write --kinds KINDS before the two dashes, which makes rights to fit",
    "frameworks": "write --framework MODULE:CLASS before the two dashes, which makes definitions and rights to fit",
    "lease_name": _LEASE,
    "lease_namespace": _LEASE,
    "bind_address": _PORT,
    "metrics_bind_address": _PORT,
    "health_probe_bind_address": _PORT,
    "controller_config_file": _FILE,
    "pytorch_init_container_template_file": _FILE,
}
"""Settings to which something else in the manifests has to fit, and what to do instead."""
_GANG = "gang_scheduler_name"
_WITH_GANG = f"it takes rights to PodGroups: write --with {GANG_RIGHTS} before the two dashes"


def operator_flags(words: Sequence[str], *, rights: Collection[str] = ()) -> tuple[str, ...]:
    """These flags, if an operator with these rights would start with them.

    Raises:
        UsageError: it would not, or would not get on with the rest of its Deployment.
    """
    from dlop.cli.run import parser
    from dlop.operator.flags import read_settings, spellings, with_two_dashes
    from dlop.operator.settings import Settings, SettingsError

    written = with_two_dashes(words)
    try:
        settings, _ = read_settings(vars(parser().parse_args(written)), {})
    except SettingsError as error:
        raise UsageError(str(error)) from error
    instead = _INSTEAD if GANG_RIGHTS in rights else {**_INSTEAD, _GANG: _WITH_GANG}
    for name, way_out in instead.items():
        if getattr(settings, name) != Settings.model_fields[name].default:
            typed = next(word for word in (word.partition("=")[0] for word in written) if word in spellings(name))
            raise UsageError(f"{typed} cannot be given after the two dashes: {way_out}")
    return tuple(words)
