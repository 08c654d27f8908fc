"""What commands share: how arguments are read, where frameworks come from, how a cluster is reached."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, NoReturn, TypeVar

from dlop.cli.errors import CommandError, UsageError

if TYPE_CHECKING:
    from dlop.api.crd import Kind
    from dlop.deploy.permission_sets import KindWithOptionalRights
    from dlop.frameworks.registry import Registry
    from dlop.kube.client import Client
    from dlop.kube.types import JsonObject

Result = TypeVar("Result")


class Parser(argparse.ArgumentParser):
    """Reads the arguments of one command. What is wrong with them is an error like any other, and not the end of the process."""

    def __init__(self, name: str, description: str, *, epilog: str | None = None) -> None:
        super().__init__(
            prog=f"dlop {name}",
            description=description,
            epilog=epilog,
            formatter_class=argparse.HelpFormatter if epilog is None else argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )

    def error(self, message: str) -> NoReturn:
        """Called by argparse."""
        raise UsageError(f"{message}. `{self.prog} --help` shows how it is called.")

    def add_frameworks(self) -> None:
        """Which kinds the command is about."""
        self.add_argument(
            "--framework",
            "--frameworks",
            dest="frameworks",
            type=_names,
            action="extend",
            default=[],
            metavar="MODULE:CLASS",
            help="frameworks besides the installed ones, with commas between",
        )
        self.add_argument("--kinds", type=_names, default=(), metavar="NAMES", help="only these kinds, with commas between; default: all")

    def add_cluster(self) -> None:
        """Which cluster the command works on."""
        self.add_argument("--kubeconfig", metavar="FILE", help="default: as kubectl finds it")
        self.add_argument("--context", metavar="NAME", help="default: the current one of the kubeconfig")

    def add_namespace(self, *, everywhere: bool = False) -> None:
        """Which namespace the command looks into."""
        self.add_argument("-n", "--namespace", metavar="NAME", help="default: that of the context")
        if everywhere:
            self.add_argument("-A", "--all-namespaces", action="store_true", help="in all namespaces")

    def add_output(self) -> None:
        """For people or for machines."""
        self.add_argument("-o", "--output", choices=("text", "json"), default="text", help="json is for machines")

    def add_rights(self) -> None:
        """Which rights the operator gets besides those that every one has."""
        self.add_argument(
            "--with",
            dest="rights",
            type=_names,
            action="extend",
            default=[],
            metavar="NAMES",
            help="rights that the operator gets only when asked for, with commas between: mpi (to run MPI jobs), gang (to make PodGroups)",
        )

    def add_take_over(self) -> None:
        """What to do with definitions of others."""
        self.add_argument("--take-over", action="store_true", help="also replace definitions that somebody else has made")


def say(text: str) -> None:
    """Tell how it goes. Results go to the standard output, this does not."""
    sys.stderr.write(f"{text}\n")


def look_for_modules_here() -> None:
    """A framework that is being written lies where the command is called."""
    if "" not in sys.path:
        sys.path.insert(0, "")


def load_kinds(options: argparse.Namespace) -> Registry:
    """The kinds that the command is about.

    Raises:
        CommandError: one of them cannot be loaded or found.
    """
    from dlop.frameworks.registry import RegistryError, load_registry

    if options.frameworks:
        look_for_modules_here()
    try:
        registry = load_registry(options.frameworks)
        return registry.select(options.kinds) if options.kinds else registry
    except RegistryError as error:
        raise CommandError(str(error)) from error


def chosen_rights(options: argparse.Namespace, kinds: Iterable[KindWithOptionalRights]) -> tuple[str, ...]:
    """The names of the rights that were asked for.

    Raises:
        CommandError: there are none of such a name.
    """
    from dlop.deploy.permission_sets import UnknownRightsError, rights_named

    try:
        return tuple(rights.name for rights in rights_named(options.rights, kinds))
    except UnknownRightsError as error:
        raise CommandError(str(error)) from error


def definitions_of(kinds: Iterable[Kind]) -> list[JsonObject]:
    """The custom resource definitions of these kinds.

    Raises:
        CommandError: a framework describes its spec in a way that a definition cannot say.
    """
    from dlop.api.crd import definitions
    from dlop.api.schema import SchemaError

    try:
        return definitions(kinds)
    except SchemaError as error:
        raise CommandError(str(error)) from error


def on_cluster(options: argparse.Namespace, deed: Callable[[Client], Awaitable[Result]]) -> Result:
    """Do something with the cluster that the options name.

    Raises:
        CommandError: it cannot be reached, or refused.
    """
    from dlop.kube.errors import KubeError

    try:
        return asyncio.run(_connected(options, deed))
    except KubeError as error:
        raise CommandError(str(error)) from error


async def _connected(options: argparse.Namespace, deed: Callable[[Client], Awaitable[Result]]) -> Result:
    from dlop.kube.client import Client
    from dlop.kube.http.transport import connect

    client = Client(await connect(options.kubeconfig, context=options.context))
    try:
        return await deed(client)
    finally:
        await client.close()


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())
