"""`dlop local`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dlop.cli.common import Parser, load_kinds
from dlop.cli.errors import CommandError, UsageError

if TYPE_CHECKING:
    from dlop.embedded.kubelet.image_map import Image
    from dlop.embedded.kubelet.runtime.base import Mount
    from dlop.jobs.manifest_files import Document
    from dlop.local.options import NodeOptions

_DESCRIPTION = (
    "Run jobs on this machine without a cluster. Pods are processes. The exit code is 0 if the jobs succeeded, 1 if one failed, and "
    "2 if a manifest is invalid. Without files, serve a cluster for kubectl and other clients until Ctrl-C."
)


def parser() -> Parser:
    parser = Parser("local", _DESCRIPTION)
    parser.add_frameworks()
    parser.add_argument("files", nargs="*", metavar="FILE", help="Manifests of jobs and other objects; - is standard input.")
    parser.add_argument("--logs", action="store_true", help="Print the logs of the pods.")
    parser.add_argument("--cpus", type=float, metavar="N", help="CPUs of the node. Default: all CPUs of the machine.")
    parser.add_argument("--memory", metavar="SIZE", help="Memory of the node, such as 8Gi. Default: all of it.")
    parser.add_argument("--gpus", type=int, default=0, metavar="N", help="Simulated nvidia.com/gpu resources of the node.")
    parser.add_argument("--autoscaler", action="store_true", help="Scale elastic jobs with the capacity of the node.")
    parser.add_argument("--image", action="append", default=[], metavar="NAME=PATH", help="Map an image to a directory or program.")
    parser.add_argument("--images", action="append", default=[], metavar="FILE", help="An image map, such as examples/images.yaml.")
    parser.add_argument("--network", choices=("auto", "own", "host"), default="auto", help="The network of pods. Default: auto.")
    parser.add_argument("--no-namespaces", action="store_true", help="Run pods as plain processes.")
    parser.add_argument(
        "--mount",
        action="append",
        default=[],
        metavar="PATH[:ro]",
        help="A file or directory that pods can read and write, or only read. Pods do not see other files of your home.",
    )
    parser.add_argument("--folder", type=Path, metavar="DIR", help="The working directory. Default: a temporary one.")
    parser.add_argument("--keep", action="store_true", help="Keep the working directory, including the logs.")
    parser.add_argument("--timeout", metavar="DURATION", help="Fail the jobs after this time, such as 90s or 5m.")
    parser.add_argument(
        "--output", choices=("text", "json"), default="text", help="The output format. json prints one document at the end."
    )
    return parser


def main(arguments: Sequence[str]) -> int:
    options = parser().parse_args(arguments)
    documents = [document for name in options.files for document in _read_documents(name)]

    from dlop.local.main import run
    from dlop.local.options import LocalError, RunOptions
    from dlop.local.workdir import WorkDirError

    run_options = RunOptions(
        documents=documents,
        node=_node_options(options),
        workdir=options.folder,
        keep=options.keep,
        logs=options.logs,
        history=options.output == "json",
        timeout_seconds=_parse_timeout(options.timeout),
    )
    try:
        return run(run_options, lambda: load_kinds(options), as_json=options.output == "json")
    except (LocalError, WorkDirError) as error:
        raise CommandError(str(error)) from error


def _read_documents(name: str) -> list[Document]:
    from dlop.jobs.manifest_files import ManifestError, read_documents

    try:
        return read_documents(name)
    except ManifestError as error:
        raise UsageError(str(error)) from error


def _node_options(options: argparse.Namespace) -> NodeOptions:
    from dlop.local.options import NetworkMode, NodeOptions

    if options.gpus < 0 or (options.cpus is not None and not 0 < options.cpus < float("inf")):
        raise UsageError("--gpus must not be negative, and --cpus must be a positive number.")
    own_images, mapped_images = _images(options)
    if options.no_namespaces and options.network == "own":
        raise UsageError("--network own requires namespaces; remove --no-namespaces.")
    return NodeOptions(
        cpus=options.cpus,
        memory_bytes=_parse_memory(options.memory),
        gpus=options.gpus,
        autoscaler=options.autoscaler,
        images=[*own_images, *mapped_images],
        namespaces=not options.no_namespaces,
        network=NetworkMode(options.network),
        mounts=_mounts(options, own_images, mapped_images),
    )


def _images(options: argparse.Namespace) -> tuple[list[Image], list[Image]]:
    """The images of `--image` and those of `--images`."""
    from dlop.embedded.kubelet.image_map import ImageMapError, parse_image_option, read_images

    try:
        own = [parse_image_option(text) for text in options.image]
        return own, [image for name in options.images for image in read_images(Path(name))]
    except ImageMapError as error:
        raise UsageError(f"{error}.") from error


def _mounts(options: argparse.Namespace, own_images: Sequence[Image], mapped_images: Sequence[Image]) -> list[Mount]:
    """Which of the user's files pods see: they can write to working directories, and read the directories of manifests and programs."""
    from dlop.embedded.kubelet.python_environments import default_cache_dir
    from dlop.embedded.kubelet.runtime.base import Mount
    from dlop.embedded.kubelet.runtime.program_paths import contains_hidden_dir, hidden_mounts

    working_dirs = {Path.cwd(), *(Path(image.working_dir) for image in own_images if image.working_dir)}
    mounts = [Mount.at_same_path(path) for path in sorted(working_dirs) if not contains_hidden_dir(path)]
    mounts += map(_parse_mount, options.mount)
    manifest_dirs = [Path(name).resolve().parent for name in options.files if name != "-"]
    programs = [Path(image.command[-1]) for image in own_images if image.command]
    mapped = [image.working_dir for image in mapped_images if image.working_dir]
    mapped += [str(Path(image.command[0]).parent) for image in mapped_images if image.command and image.command[0].startswith("/")]
    return [*hidden_mounts((*manifest_dirs, *programs, *map(Path, mapped), default_cache_dir()), mounts=mounts), *mounts]


def _parse_mount(text: str) -> Mount:
    from dlop.embedded.kubelet.runtime.base import Mount

    name = text.removesuffix(":ro")
    path = Path(name).expanduser().resolve()
    if not path.exists():
        raise UsageError(f"--mount {text}: {path} does not exist.")
    return Mount.at_same_path(path, read_only=name != text)


def _parse_memory(text: str | None) -> int | None:
    from dlop.kube.quantity import integer_value

    if text is None:
        return None
    try:
        return integer_value(text)
    except ValueError as error:
        raise UsageError(f"--memory must be a quantity such as 8Gi, got {text}.") from error


def _parse_timeout(text: str | None) -> float | None:
    from dlop.console.duration import parse_duration

    if text is None:
        return None
    try:
        return parse_duration(text)
    except ValueError as error:
        raise UsageError(f"--timeout: {error}.") from error
