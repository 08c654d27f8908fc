"""`dlop deploy` and `dlop undeploy`.

Flags after `--` are passed to `dlop run` in the Deployment. They are validated before anything is changed.
"""

from __future__ import annotations

import argparse
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from dlop.api.constants import GANG_PERMISSIONS, NODE_PERMISSIONS
from dlop.cli.common import Parser, chosen_crds, chosen_permission_sets, load_frameworks, load_kinds, print_line, run_with_client
from dlop.cli.errors import UsageError

if TYPE_CHECKING:
    from dlop.deploy.deployment import DeployOptions
    from dlop.frameworks.registry import Registry
    from dlop.kube.client import Client


def parser() -> Parser:
    parser = deployment_parser("deploy", "Create or update the CRDs, the RBAC objects and the operator in the cluster.")
    parser.add_permission_sets()
    parser.add_deployment_options()
    parser.add_argument("flags", nargs="*", metavar="-- FLAG", help="Flags of `dlop run` for the operator, after --.")
    return parser


def main(arguments: Sequence[str]) -> int:
    options = parser().parse_args(arguments)
    kinds = tuple(load_kinds(options))

    from dlop.deploy.apply import apply, ensure_namespace, exclude_foreign_crds
    from dlop.deploy.deployment import namespace
    from dlop.deploy.installation import operator_objects

    permission_sets = chosen_permission_sets(options, kinds)
    flags = operator_flags(
        options.flags, load_frameworks(options.frameworks), permission_sets=permission_sets, namespaces=options.watch_namespace
    )
    chosen = replace(
        chosen_deployment(options),
        replicas=options.replicas,
        permission_sets=permission_sets,
        metrics_from=tuple(options.metrics_from),
        flags=flags,
    )

    async def deploy(client: Client) -> None:
        await ensure_namespace(client, namespace(chosen.namespace), report=print_line)
        # Foreign CRDs are replaced only by `install --take-over`, because another operator may use them.
        await apply(client, await exclude_foreign_crds(client, chosen_crds(options, kinds), report=print_line), report=print_line)
        await apply(client, operator_objects(kinds, chosen), report=print_line)

    run_with_client(options, deploy)
    return 0


def deployment_parser(name: str, description: str) -> Parser:
    parser = Parser(name, description)
    parser.add_frameworks()
    parser.add_cluster()
    parser.add_argument("--namespace", metavar="NAME", help="The namespace of the operator. Default: dlop-system.")
    parser.add_argument("--image", help="The image of the operator. Default: dlop:latest.")
    parser.add_argument(
        "--watch-namespace",
        action="append",
        default=[],
        metavar="NAME",
        help="Reconcile jobs of this namespace only, with permissions in it only. May be repeated. Default: all namespaces.",
    )
    return parser


def chosen_deployment(options: argparse.Namespace) -> DeployOptions:
    from dlop.deploy.deployment import DEFAULT_IMAGE, DEFAULT_NAMESPACE, DeployOptions

    return DeployOptions(
        namespace=options.namespace or DEFAULT_NAMESPACE,
        image=options.image or DEFAULT_IMAGE,
        watched_namespaces=tuple(options.watch_namespace),
        frameworks=tuple(options.frameworks),
        kinds=tuple(options.kinds),
    )


_CLUSTER = "remove it: in the cluster, the operator uses its service account"
_LEASE = "remove it: the operator has permissions only for the lease dlop in its own namespace"
_PORT = "remove it: the Deployment and the NetworkPolicy set the addresses; --metrics-from NAMESPACE before -- gives access to the metrics"
_FILE = "the pod has no such file: mount it in the output of `dlop manifests`, and add the flag there"
_ALTERNATIVES = {
    "kubeconfig": _CLUSTER,
    "context": _CLUSTER,
    "namespaces": "use --watch-namespace NAME before --, which generates matching permissions",
    "kinds": "use --kinds KINDS before --, which generates matching permissions",
    "frameworks": "use --framework MODULE:CLASS before --, which generates matching CRDs and permissions",
    "lease_name": _LEASE,
    "lease_namespace": _LEASE,
    "bind_address": _PORT,
    "metrics_bind_address": _PORT,
    "health_probe_bind_address": _PORT,
}
"""Settings that other parts of the manifests depend on, and what to do instead."""
_GANG = "gang_scheduler_name"
_WITH_GANG = f"needs permissions for PodGroups: add --with {GANG_PERMISSIONS} before --"
_WITH_NODES = f"node-down needs read access to nodes: add --with {NODE_PERMISSIONS} before --"
_AUTOSCALER_WITH_NODES = f"needs read access to nodes: add --with {NODE_PERMISSIONS} before --"
_ALL_NAMESPACES = "needs the pods of all namespaces to know what is free: remove it or --watch-namespace"


def operator_flags(
    words: Sequence[str], frameworks: Registry, *, permission_sets: Collection[str] = (), namespaces: Collection[str] = ()
) -> tuple[str, ...]:
    """Validate the flags of the operator. Some of them are declared by frameworks. `namespaces` are those it watches; empty means all.

    Raises:
        UsageError: a flag is invalid, or does not match the rest of the Deployment.
    """
    from dlop.api.flags import is_file_flag
    from dlop.api.types import ForceDeletion
    from dlop.cli.run import parser
    from dlop.operator.flags import flag_names, normalize_dashes, read_settings
    from dlop.operator.settings import SettingsError, with_framework_flags

    flags, model = normalize_dashes(words), with_framework_flags(frameworks.flags)
    try:
        settings, _ = read_settings(vars(parser(model).parse_args(flags)), {}, model)
    except SettingsError as error:
        raise UsageError(str(error)) from error
    files = {name: _FILE for declared in frameworks.flags for name, field in declared.model_fields.items() if is_file_flag(field)}
    names = {word.partition(":")[0] for word in permission_sets}
    gang = {} if GANG_PERMISSIONS in names else {_GANG: _WITH_GANG}
    nodes = {} if NODE_PERMISSIONS in names else {"autoscaler": _AUTOSCALER_WITH_NODES}
    if NODE_PERMISSIONS not in names and settings.force_deletion is ForceDeletion.NODE_DOWN:
        nodes["force_deletion"] = _WITH_NODES
    all_namespaces = {"autoscaler": _ALL_NAMESPACES} if namespaces else {}
    unsupported = {name: f"is not supported after --: {alternative}" for name, alternative in {**_ALTERNATIVES, **files}.items()}
    for name, problem in {**unsupported, **gang, **nodes, **all_namespaces}.items():
        if getattr(settings, name) != model.model_fields[name].default:
            flag = next(word for word in (word.partition("=")[0] for word in flags) if word in flag_names(name, model))
            raise UsageError(f"{flag} {problem}")
    return tuple(words)


def undeploy_parser() -> Parser:
    description = "Delete the operator and its RBAC objects from the cluster. Jobs, CRDs and the namespace are kept."
    return deployment_parser("undeploy", description)


def undeploy_main(arguments: Sequence[str]) -> int:
    options = undeploy_parser().parse_args(arguments)
    kinds = tuple(load_kinds(options))

    from dlop.deploy.apply import delete_objects, find_cluster_grants
    from dlop.deploy.installation import operator_objects
    from dlop.deploy.rbac import all_permission_sets

    # Delete all optional objects, whichever of them were deployed.
    chosen = chosen_deployment(options)
    names = tuple(permission_set.name for permission_set in all_permission_sets(kinds)) if chosen.watched_namespaces else ()
    deploy_options = replace(chosen, permission_sets=names, metrics_from=(chosen.namespace,))

    async def undeploy(client: Client) -> None:
        objects = operator_objects(kinds, deploy_options)
        if not chosen.watched_namespaces:
            known = {(item["kind"], item["metadata"]["name"]) for item in objects}
            grants = await find_cluster_grants(client, chosen.account)
            objects += [item for item in grants if (item["kind"], item["metadata"]["name"]) not in known]
        await delete_objects(client, objects, report=print_line)

    run_with_client(options, undeploy)
    return 0
