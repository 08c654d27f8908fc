"""Shared by the commands: arguments, frameworks and the connection to a cluster."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NoReturn, TypeVar

from dlop.cli.errors import CommandError, UsageError

if TYPE_CHECKING:
    from dlop.frameworks.registry import Registry
    from dlop.job import DLJob
    from dlop.kube.client import Client
    from dlop.kube.types import JsonObject

Result = TypeVar("Result")


class Parser(argparse.ArgumentParser):
    """The arguments of one command. Invalid arguments raise UsageError instead of exiting."""

    def __init__(self, name: str, description: str, *, epilog: str | None = None, words: Sequence[str] = ()) -> None:
        """`words` are completed as positional arguments, in addition to their choices. A word that ends with a slash is a prefix."""
        super().__init__(
            prog=f"dlop {name}",
            description=description,
            epilog=epilog,
            formatter_class=argparse.HelpFormatter if epilog is None else argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
            add_help=False,
        )
        self.words = tuple(words)
        self.add_argument("-h", "--help", action="help", help="Show this help and exit.")

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}. See `{self.prog} --help`.")

    def add_frameworks(self) -> None:
        self.add_argument(
            "--framework",
            "--frameworks",
            dest="frameworks",
            type=_names,
            action="extend",
            default=[],
            metavar="MODULE:CLASS",
            help="Comma-separated frameworks in addition to the installed ones.",
        )
        self.add_argument("--kinds", type=_names, default=(), metavar="NAMES", help="Comma-separated kinds. Default: all kinds.")

    def add_cluster(self) -> None:
        self.add_argument("--kubeconfig", metavar="FILE", help="Path to the kubeconfig file. Default: the same as for kubectl.")
        self.add_argument("--context", metavar="NAME", help="The kubeconfig context. Default: the current context.")

    def add_namespace(self, *, all_namespaces: bool = False) -> None:
        self.add_argument("-n", "--namespace", metavar="NAME", help="The namespace. Default: the namespace of the context.")
        if all_namespaces:
            self.add_argument("-A", "--all-namespaces", action="store_true", help="Show the jobs of all namespaces.")

    def add_output(self) -> None:
        self.add_argument("-o", "--output", choices=("text", "json"), default="text", help="The output format. Default: text.")

    def add_permission_sets(self) -> None:
        self.add_argument(
            "--with",
            dest="permission_sets",
            type=_names,
            action="extend",
            default=[],
            metavar="NAMES",
            help="Comma-separated optional permission sets of the operator: mpi (run MPI jobs), hpa (create "
            "autoscalers), paddle (create config maps), elasticjob (create service accounts and roles), ingress (create Ingresses), gang "
            "(create PodGroups), nodes (read nodes), cron (create jobs for Crons), kueue (create Workloads for queues). NAME:NAMESPACE "
            "limits a set to a namespace.",
        )

    def add_deployment_options(self) -> None:
        self.add_argument("--replicas", type=_replicas, default=1, metavar="N", help="Pods of the operator; one of them leads. Default: 1.")
        self.add_argument(
            "--metrics-from",
            type=_names,
            action="extend",
            default=[],
            metavar="NAMESPACES",
            help="Comma-separated namespaces whose pods may read the metrics of the operator. Default: metrics are bound to loopback.",
        )

    def add_take_over(self) -> None:
        self.add_argument("--take-over", action="store_true", help="Replace CRDs that were not created by dlop.")


def print_line(text: str) -> None:
    """Print a line to standard error. Standard output is for results."""
    sys.stderr.write(f"{text}\n")


def add_working_directory_to_path() -> None:
    """Make a framework in the working directory importable. Installed packages of the same name come first."""
    if "" not in sys.path:
        sys.path.append("")


def load_frameworks(references: Sequence[str]) -> Registry:
    """All installed frameworks and these (`module:Class`).

    Raises:
        CommandError: one of these frameworks cannot be loaded.
    """
    from dlop.frameworks.registry import RegistryError
    from dlop.operator.flags import load_frameworks

    if references:
        add_working_directory_to_path()
    try:
        return load_frameworks(references)
    except RegistryError as error:
        raise CommandError(str(error)) from error


def load_kinds(options: argparse.Namespace) -> Registry:
    """The kinds selected by `--framework` and `--kinds`. Prints a warning for each installed framework that cannot be used.

    Raises:
        CommandError: a framework cannot be loaded, or a kind is unknown.
    """
    from dlop.frameworks.registry import RegistryError

    registry = load_frameworks(options.frameworks)
    for warning in registry.skipped:
        print_line(f"warning: {warning}")
    try:
        return registry.select(options.kinds) if options.kinds else registry
    except RegistryError as error:
        raise CommandError(str(error)) from error


def chosen_permission_sets(options: argparse.Namespace, kinds: Iterable[type[DLJob]]) -> tuple[str, ...]:
    """The permission sets in `--with`, as NAME or NAME:NAMESPACE.

    Raises:
        CommandError: a name is unknown, or the operator does not watch the namespace.
    """
    from dlop.deploy.rbac import UnknownPermissionSetError, find_grants

    try:
        find_grants(options.permission_sets, kinds)
    except UnknownPermissionSetError as error:
        raise CommandError(str(error)) from error
    watched = getattr(options, "watch_namespace", ())
    for word in options.permission_sets if watched else ():
        namespace = word.partition(":")[2]
        if namespace and namespace not in watched:
            raise CommandError(f"--with {word}: the operator does not watch this namespace: add --watch-namespace {namespace}")
    return tuple(options.permission_sets)


def build_crds(kinds: Iterable[type[DLJob]], *, with_crons: bool = False) -> list[JsonObject]:
    """The CRDs of these kinds, and of Crons.

    Raises:
        CommandError: the spec of a framework cannot be described by a CRD.
    """
    from dlop.api.crd import build_crds, build_cron_crd
    from dlop.api.structural_schema import SchemaError

    try:
        return [*build_crds(kinds), *([build_cron_crd()] if with_crons else [])]
    except SchemaError as error:
        raise CommandError(str(error)) from error


def chosen_crds(options: argparse.Namespace, kinds: Iterable[type[DLJob]]) -> list[JsonObject]:
    """The CRDs of the selected kinds, and of Crons unless `--kinds` selects some.

    Raises:
        CommandError: the spec of a framework cannot be described by a CRD.
    """
    return build_crds(kinds, with_crons=not options.kinds)


def run_with_client(options: argparse.Namespace, action: Callable[[Client], Awaitable[Result]]) -> Result:
    """Run an action with a client of the selected cluster.

    Raises:
        CommandError: the cluster cannot be reached, or rejected a request.
    """
    from dlop.kube.errors import KubeError

    try:
        return asyncio.run(_run_with_client(options, action))
    except KubeError as error:
        raise CommandError(str(error)) from error


async def _run_with_client(options: argparse.Namespace, action: Callable[[Client], Awaitable[Result]]) -> Result:
    from dlop.kube.client import Client
    from dlop.kube.http.transport import connect

    client = Client(await connect(options.kubeconfig, context=options.context))
    try:
        return await action(client)
    finally:
        await client.close()


def _replicas(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"invalid value {text!r}: must be an integer of at least 1")
    return int(text)


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())
