"""`dlop crds`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from dlop.cli.common import Parser, definitions_of, load_kinds


def parser() -> Parser:
    """What the command takes."""
    found = Parser("crds", "Prints the custom resource definitions of all kinds, ready for `kubectl apply -f -`.")
    found.add_frameworks()
    return found


def main(arguments: Sequence[str]) -> int:
    """Print the custom resource definitions."""
    kinds = load_kinds(parser().parse_args(arguments))

    from dlop.deploy.kustomize import to_yaml

    sys.stdout.write(to_yaml(*definitions_of(kinds)))
    return 0
