"""`dlop manifests`."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from dlop.cli.common import Parser, chosen_rights, definitions_of, load_kinds, say
from dlop.cli.errors import CommandError


def parser() -> Parser:
    """What the command takes."""
    found = Parser(
        "manifests", "Prints or writes all that a deployment needs: definitions, rights, the operator itself; cluster-wide when printed."
    )
    found.add_frameworks()
    found.add_rights()
    found.add_argument("--image", help="the image of the operator")
    where = found.add_mutually_exclusive_group()
    where.add_argument("--out", type=Path, metavar="FOLDER", help="write the files there, for `kubectl apply -k FOLDER/cluster-wide`")
    where.add_argument("--check", type=Path, metavar="FOLDER", help="write nothing; fail if the files there are not up to date")
    return found


def main(arguments: Sequence[str]) -> int:
    """Print, write or check the manifests."""
    options = parser().parse_args(arguments)
    kinds = tuple(load_kinds(options))

    from dlop.deploy import kustomize
    from dlop.deploy.deployment import DEFAULT_IMAGE, DeployOptions

    chosen = DeployOptions(
        image=options.image or DEFAULT_IMAGE,
        frameworks=tuple(options.frameworks),
        kinds=tuple(options.kinds),
        rights=chosen_rights(options, kinds),
    )
    contents = kustomize.files(kinds, definitions_of(kinds), chosen=chosen)
    if options.check is not None:
        _check(kustomize.differences(options.check, contents), folder=options.check)
    elif options.out is not None:
        kustomize.write(options.out, contents)
        say(f"wrote {len(contents)} files to {options.out}")
    else:
        sys.stdout.write(_as_stream(contents))
    return 0


def _as_stream(contents: Mapping[str, str]) -> str:
    """A cluster-wide deployment for `kubectl apply -f -`, which knows nothing of kustomize."""
    chosen = [path for path in contents if path.startswith(("crds/", "cluster-wide/")) and not path.endswith("/kustomization.yaml")]
    return "---\n".join(contents[path] for path in chosen)


def _check(differences: Sequence[str], *, folder: Path) -> None:
    if differences:
        raise CommandError("\n  ".join(["these files are out of date:", *differences, f"Run: python -m dlop manifests --out {folder}"]))
    say(f"{folder} is up to date")
