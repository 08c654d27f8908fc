"""`dlop render`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from dlop.cli.common import Parser, definitions_of, load_kinds, say
from dlop.cli.errors import CommandError

if TYPE_CHECKING:
    from dlop.frameworks.registry import Registry
    from dlop.jobs.manifest_files import Document
    from dlop.kube.types import JsonObject


def parser() -> Parser:
    """What the command takes."""
    found = Parser("render", "Prints the services, pods and other objects that the jobs in these files would get. No cluster is needed.")
    found.add_frameworks()
    found.add_argument("files", nargs="+", metavar="FILE", help="manifests of jobs; - is the standard input")
    found.add_argument("--namespace", default="default", metavar="NAME", help="for jobs that do not name one")
    return found


def main(arguments: Sequence[str]) -> int:
    """Print what jobs would become."""
    options = parser().parse_args(arguments)
    registry = load_kinds(options)

    from dlop.deploy.kustomize import to_yaml

    found = [rendered for file in options.files for rendered in _render_file(file, registry, namespace=options.namespace)]
    sys.stdout.write(to_yaml(*found))
    return 0


def _render_file(name: str, registry: Registry, *, namespace: str) -> Iterator[JsonObject]:
    from dlop.jobs.manifest_files import ManifestError, read_file

    try:
        for document in read_file(name):
            yield from _render(document, registry, namespace=namespace)
    except ManifestError as error:
        raise CommandError(str(error)) from error


def _render(document: Document, registry: Registry, *, namespace: str) -> list[JsonObject]:
    from dlop.api.spec import SpecError
    from dlop.jobs.render import RenderError, job_of, render
    from dlop.reconcile.spec_warnings import remarks_on

    try:
        found = render(document.content, registry, namespace=namespace)
    except RenderError as error:
        if not isinstance(error.__cause__, SpecError):
            raise CommandError(f"{document.place()}: {error}") from error
        lines = [f"{document.place(problem.path)}: {problem}" for problem in error.__cause__.problems]
        raise CommandError("\n  ".join([f"{document.name} asks for what cannot be run:", *lines])) from error
    overlooked, refusals = _judged(document.content, registry)
    if refusals:
        lines = [f"{document.place(path)}: {path}: {message}" for path, message in refusals]
        raise CommandError("\n  ".join([f"{document.name} asks for what an API server refuses:", *lines]))
    for path in overlooked:
        say(f"{document.place(path)}: {path}: the kind has no such field; it has no effect, and an API server refuses or drops it")
    for remark in remarks_on(job_of(document.content, registry, namespace=namespace)):
        say(f"{document.place(remark.path)}: {remark}")
    return found


def _judged(manifest: JsonObject, registry: Registry) -> tuple[list[str], list[tuple[str, str]]]:
    """What the definition of its kind says to a job: the fields that it does not have, and what it refuses, each with its path.

    Fields that it does not have are most likely misspelt, or stand in the wrong place.
    """
    from dlop.embedded.apiserver.apiextensions.custom_resource_strategy import CustomResourceRules

    (definition,) = definitions_of([registry.get(manifest["apiVersion"], manifest["kind"])])
    rules = CustomResourceRules(definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"])
    overlooked: list[str] = []
    known = rules.read(manifest, overlooked)
    errors = rules.validate(known, None, subresource=None)
    return overlooked, [(error.path, error.message) for error in errors if error.path != "<nil>"]
