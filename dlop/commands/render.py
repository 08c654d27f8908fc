"""`dlop render`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dlop.commands.common import Parser, load_kinds
from dlop.commands.errors import CommandError

if TYPE_CHECKING:
    from dlop.commands.yaml_files import Document
    from dlop.kube.errors import JsonObject
    from dlop.registry import Registry


def main(arguments: Sequence[str]) -> int:
    """Print what jobs would become."""
    parser = Parser("render", "Prints the services, pods and other objects that the jobs in these files would get. No cluster is needed.")
    parser.add_frameworks()
    parser.add_argument("files", nargs="+", metavar="FILE", help="manifests of jobs; - is the standard input")
    parser.add_argument("--namespace", default="default", metavar="NAME", help="for jobs that do not name one")
    options = parser.parse_args(arguments)
    registry = load_kinds(options)

    from dlop.manifests.files import to_yaml  # noqa: PLC0415

    found = [rendered for file in options.files for rendered in _render_file(file, registry, namespace=options.namespace)]
    sys.stdout.write(to_yaml(*found))
    return 0


def _render_file(name: str, registry: Registry, *, namespace: str) -> Iterator[JsonObject]:
    from dlop.commands.yaml_files import ManifestError, documents  # noqa: PLC0415 - imports yaml

    try:
        text = sys.stdin.read() if name == "-" else Path(name).read_text()
        for document in documents(text, name=name):
            yield from _render(document, registry, namespace=namespace)
    except ManifestError as error:
        raise CommandError(str(error)) from error
    except OSError as error:
        raise CommandError(f"{name} cannot be read: {error.strerror or error}.") from error
    except UnicodeDecodeError as error:
        raise CommandError(f"{name} is no text: {error}.") from error


def _render(document: Document, registry: Registry, *, namespace: str) -> list[JsonObject]:
    from dlop.engine.spec import SpecError  # noqa: PLC0415
    from dlop.rendering import RenderError, render  # noqa: PLC0415

    try:
        return render(document.content, registry, namespace=namespace)
    except RenderError as error:
        if not isinstance(error.__cause__, SpecError):
            raise CommandError(f"{document.place()}: {error}") from error
        lines = [f"{document.place(problem.path)}: {problem}" for problem in error.__cause__.problems]
        raise CommandError("\n  ".join([f"{document.name} asks for what cannot be run:", *lines])) from error
