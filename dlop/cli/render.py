"""`dlop render`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from dlop.cli.common import Parser, build_crds, load_kinds, print_line
from dlop.cli.errors import CommandError

if TYPE_CHECKING:
    from dlop.frameworks.registry import Registry
    from dlop.jobs.manifest_files import Document
    from dlop.kube.types import JsonObject


def parser() -> Parser:
    parser = Parser("render", "Print the pods, services and other children of jobs without creating them. No cluster is needed.")
    parser.add_frameworks()
    parser.add_argument("files", nargs="+", metavar="FILE", help="Manifests of jobs; - is standard input.")
    parser.add_argument("--namespace", default="default", metavar="NAME", help="The namespace of jobs without one. Default: default.")
    return parser


def main(arguments: Sequence[str]) -> int:
    options = parser().parse_args(arguments)
    registry = load_kinds(options)

    from dlop.deploy.kustomize import to_yaml

    objects = [rendered for file in options.files for rendered in _render_file(file, registry, namespace=options.namespace)]
    sys.stdout.write(to_yaml(*objects))
    return 0


def _render_file(name: str, registry: Registry, *, namespace: str) -> Iterator[JsonObject]:
    from dlop.jobs.manifest_files import ManifestError, read_documents

    try:
        for document in read_documents(name):
            yield from _render(document, registry, namespace=namespace)
    except ManifestError as error:
        raise CommandError(str(error)) from error


def _render(document: Document, registry: Registry, *, namespace: str) -> list[JsonObject]:
    from dlop.api.spec import SpecError
    from dlop.jobs.render import RenderError, parse_job, render
    from dlop.policies.git_sync import describe_missing_image, find_source_without_image
    from dlop.reconcile.spec_warnings import spec_warnings

    try:
        objects = render(document.content, registry, namespace=namespace)
    except RenderError as error:
        if not isinstance(error.__cause__, SpecError):
            raise CommandError(f"{document.location()}: {error}") from error
        lines = [f"{document.location(problem.path)}: {problem}" for problem in error.__cause__.problems]
        raise CommandError("\n  ".join([f"{document.name} is invalid:", *lines])) from error
    unknown_fields, errors = _validate(document.content, registry)
    if errors:
        lines = [f"{document.location(path)}: {path}: {message}" for path, message in errors]
        raise CommandError("\n  ".join([f"{document.name} would be rejected by the API server:", *lines]))
    for path in unknown_fields:
        print_line(f"{document.location(path)}: {path}: unknown field; it has no effect, and the API server drops or rejects it")
    job = parse_job(document.content, registry, namespace=namespace)
    for warning in spec_warnings(job):
        print_line(f"{document.location(warning.path)}: {warning}")
    if source := find_source_without_image(job):
        print_line(f"{document.location(source.path)}: {describe_missing_image(source)}")
    return objects


def _validate(manifest: JsonObject, registry: Registry) -> tuple[list[str], list[tuple[str, str]]]:
    """Validate a job with the schema of its CRD. Returns the paths of unknown fields, and pairs of path and error message."""
    from dlop.embedded.apiserver.apiextensions.custom_resource_strategy import CustomResourceStrategy

    crd = build_crds([registry.get(manifest["apiVersion"], manifest["kind"])])[0]
    strategy = CustomResourceStrategy(crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"])
    unknown_fields: list[str] = []
    pruned = strategy.prune(manifest, unknown_fields)
    errors = strategy.validate(pruned, None, subresource=None)
    return unknown_fields, [(error.path, error.message) for error in errors if error.path != "<nil>"]
