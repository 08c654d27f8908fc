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
    from dlop.jobs.render import RenderError
    from dlop.kube.types import JsonObject


def parser() -> Parser:
    parser = Parser(
        "render",
        "Print the pods, services and other children of jobs, or of the job of a Cron, without creating them. No cluster is needed.",
    )
    parser.add_frameworks()
    parser.add_argument("files", nargs="+", metavar="FILE", help="Manifests of jobs and Crons; - is standard input.")
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
    from dlop.api.crd import build_cron_crd
    from dlop.jobs.render import RenderError, is_cron, job_of_cron, parse_job, render
    from dlop.policies.git_sync import describe_missing_image, find_source_without_image
    from dlop.reconcile.spec_warnings import spec_warnings

    try:
        if is_cron(document.content):
            job_manifest = job_of_cron(document.content, namespace=namespace)
            _report_schema(document, build_cron_crd())
            document = document.nested("spec.template.workload", job_manifest)
        objects = render(document.content, registry, namespace=namespace)
    except RenderError as error:
        raise _invalid(document, error) from error
    _report_schema(document, build_crds([registry.get(document.content["apiVersion"], document.content["kind"])])[0])
    job = parse_job(document.content, registry, namespace=namespace)
    for warning in spec_warnings(job):
        print_line(f"{document.location(warning.path)}: {warning}")
    if source := find_source_without_image(job):
        print_line(f"{document.location(source.path)}: {describe_missing_image(source)}")
    return objects


def _invalid(document: Document, error: RenderError) -> CommandError:
    from dlop.api.spec import SpecError

    if not isinstance(error.__cause__, SpecError):
        return CommandError(f"{document.location()}: {error}")
    lines = [f"{document.location(problem.path)}: {problem}" for problem in error.__cause__.problems]
    return CommandError("\n  ".join([f"{document.name} is invalid:", *lines]))


def _report_schema(document: Document, crd: JsonObject) -> None:
    """Print the unknown fields of an object.

    Raises:
        CommandError: the object violates the schema of its CRD.
    """
    from dlop.embedded.apiserver.apiextensions.custom_resource_strategy import CustomResourceStrategy

    strategy = CustomResourceStrategy(crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"])
    unknown_fields: list[str] = []
    pruned = strategy.prune(document.content, unknown_fields)
    errors = [error for error in strategy.validate(pruned, None, subresource=None) if error.path != "<nil>"]
    if errors:
        lines = [f"{document.location(error.path)}: {error.path}: {error.message}" for error in errors]
        raise CommandError("\n  ".join([f"{document.name} would be rejected by the API server:", *lines]))
    for path in unknown_fields:
        print_line(f"{document.location(path)}: {path}: unknown field; it has no effect, and the API server drops or rejects it")
