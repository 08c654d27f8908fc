"""`dlop install` and `dlop uninstall`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dlop.cli.common import Parser, chosen_crds, load_kinds, print_line, run_with_client
from dlop.cli.errors import CommandError

if TYPE_CHECKING:
    from dlop.kube.client import Client


def parser() -> Parser:
    parser = Parser("install", "Install or update the CRDs in the cluster.")
    parser.add_frameworks()
    parser.add_cluster()
    parser.add_take_over()
    return parser


def main(arguments: Sequence[str]) -> int:
    options = parser().parse_args(arguments)
    kinds = load_kinds(options)

    from dlop.deploy.apply import apply, exclude_foreign_crds, exclude_unknown_versions

    replaceable = exclude_unknown_versions if options.take_over else exclude_foreign_crds

    async def install(client: Client) -> None:
        await apply(client, await replaceable(client, chosen_crds(options, kinds), report=print_line), report=print_line)

    run_with_client(options, install)
    return 0


def uninstall_parser() -> Parser:
    parser = Parser("uninstall", "Delete the CRDs from the cluster, and with them all jobs of these kinds.")
    parser.add_frameworks()
    parser.add_cluster()
    parser.add_argument("--yes", action="store_true", help="Delete existing jobs without asking.")
    return parser


def uninstall_main(arguments: Sequence[str]) -> int:
    options = uninstall_parser().parse_args(arguments)
    kinds = load_kinds(options)

    from dlop.deploy.apply import count_jobs, delete_objects, exclude_foreign_crds

    async def uninstall(client: Client) -> None:
        crds = await exclude_foreign_crds(client, chosen_crds(options, kinds), report=print_line)
        counts = {crd["metadata"]["name"]: await count_jobs(client, crd) for crd in crds}
        if any(counts.values()) and not options.yes:
            listed = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
            raise CommandError(f"this would delete jobs and their pods: {listed}. Nothing was deleted; use --yes to confirm.")
        await delete_objects(client, crds, report=print_line)

    run_with_client(options, uninstall)
    return 0
