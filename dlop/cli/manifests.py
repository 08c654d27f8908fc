"""`dlop manifests` and `dlop crds`."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from dlop.cli.common import Parser, chosen_crds, chosen_permission_sets, load_kinds, print_line
from dlop.cli.errors import CommandError


def parser() -> Parser:
    parser = Parser(
        "manifests",
        "Print or write the objects of a deployment: CRDs, RBAC and the operator. The printed deployment is cluster-wide.",
    )
    parser.add_frameworks()
    parser.add_permission_sets()
    parser.add_deployment_options()
    parser.add_argument("--image", help="The image of the operator. Default: dlop:latest.")
    target = parser.add_mutually_exclusive_group()
    target.add_argument(
        "--out", type=Path, metavar="DIR", help="Write the files to this directory, for `kubectl apply -k DIR/cluster-wide`."
    )
    target.add_argument("--check", type=Path, metavar="DIR", help="Fail if the files here are out of date. Write nothing.")
    return parser


def main(arguments: Sequence[str]) -> int:
    options = parser().parse_args(arguments)
    kinds = tuple(load_kinds(options))

    from dlop.deploy import kustomize
    from dlop.deploy.deployment import DEFAULT_IMAGE, DeployOptions

    deploy_options = DeployOptions(
        image=options.image or DEFAULT_IMAGE,
        frameworks=tuple(options.frameworks),
        kinds=tuple(options.kinds),
        permission_sets=chosen_permission_sets(options, kinds),
        replicas=options.replicas,
        metrics_from=tuple(options.metrics_from),
    )
    contents = kustomize.render_files(kinds, chosen_crds(options, kinds), options=deploy_options)
    if options.check is not None:
        _check(kustomize.find_outdated_files(options.check, contents), directory=options.check)
    elif options.out is not None:
        kustomize.write_files(options.out, contents)
        print_line(f"wrote {len(contents)} files to {options.out}")
    else:
        sys.stdout.write(_as_stream(contents))
    return 0


def _as_stream(contents: Mapping[str, str]) -> str:
    """A cluster-wide deployment for `kubectl apply -f -`, without the kustomization files."""
    paths = [path for path in contents if path.startswith(("crds/", "cluster-wide/")) and not path.endswith("/kustomization.yaml")]
    return "---\n".join(contents[path] for path in paths)


def _check(outdated: Sequence[str], *, directory: Path) -> None:
    if outdated:
        raise CommandError("\n  ".join(["these files are out of date:", *outdated, f"Run: python -m dlop manifests --out {directory}"]))
    print_line(f"{directory} is up to date")


def crds_parser() -> Parser:
    parser = Parser("crds", "Print the custom resource definitions, ready for `kubectl apply -f -`.")
    parser.add_frameworks()
    return parser


def crds_main(arguments: Sequence[str]) -> int:
    options = crds_parser().parse_args(arguments)
    kinds = load_kinds(options)

    from dlop.deploy.kustomize import to_yaml

    sys.stdout.write(to_yaml(*chosen_crds(options, kinds)))
    return 0
