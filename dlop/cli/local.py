"""`dlop local`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dlop.cli.common import Parser, load_kinds
from dlop.cli.errors import CommandError, UsageError

if TYPE_CHECKING:
    from dlop.embedded.kubelet.image_map import Image
    from dlop.jobs.manifest_files import Document
    from dlop.local.options import Machine

_DESCRIPTION = (
    "Runs jobs on this machine, without a cluster: pods become processes. Ends with the jobs' own verdict: 0 succeeded, 1 failed, "
    "2 wrong manifest. Without files it is a cluster for kubectl and others, until Ctrl-C."
)


def parser() -> Parser:
    """What the command takes."""
    found = Parser("local", _DESCRIPTION)
    found.add_frameworks()
    found.add_argument("files", nargs="*", metavar="FILE", help="manifests of jobs and of what they need; - is the standard input")
    found.add_argument("--logs", action="store_true", help="show what the pods write")
    found.add_argument("--cpus", type=float, metavar="N", help="how many processors the node has; default: as many as there are")
    found.add_argument("--memory", metavar="SIZE", help="how much memory it has, such as 8Gi; default: all of it")
    found.add_argument("--gpus", type=int, default=0, metavar="N", help="let it pretend to have so many of nvidia.com/gpu")
    found.add_argument("--image", action="append", default=[], metavar="NAME=PATH", help="what an image means here: a folder or a program")
    found.add_argument("--images", action="append", default=[], metavar="FILE", help="an image map, such as examples/images.yaml")
    found.add_argument("--network", choices=("auto", "own", "host"), default="auto", help="whether pods have a network of their own")
    found.add_argument("--no-namespaces", action="store_true", help="run pods as plain processes")
    found.add_argument("--folder", type=Path, metavar="DIR", help="where everything is written; default: a new one")
    found.add_argument("--keep", action="store_true", help="leave it there at the end, with the logs")
    found.add_argument("--timeout", metavar="TIME", help="how long the jobs may take, such as 90s or 5m")
    found.add_argument("--output", choices=("text", "json"), default="text", help="json: one document at the end")
    return found


def main(arguments: Sequence[str]) -> int:
    """Run jobs on this machine."""
    options = parser().parse_args(arguments)
    documents = [document for name in options.files for document in _documents(name)]

    from dlop.local.main import run
    from dlop.local.options import LocalError, RunOptions
    from dlop.local.workdir import FolderError

    order = RunOptions(
        documents=documents,
        machine=_machine(options),
        folder=options.folder,
        keep=options.keep,
        logs=options.logs,
        history=options.output == "json",
        timeout_seconds=_seconds(options.timeout),
    )
    try:
        return run(order, lambda: load_kinds(options), as_json=options.output == "json")
    except (LocalError, FolderError) as error:
        raise CommandError(str(error)) from error


def _documents(name: str) -> list[Document]:
    from dlop.jobs.manifest_files import ManifestError, documents

    try:
        text = sys.stdin.read() if name == "-" else Path(name).read_text()
        found = list(documents(text, name=name))
    except ManifestError as error:
        raise UsageError(str(error)) from error
    except OSError as error:
        raise UsageError(f"{name} cannot be read: {error.strerror or error}.") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{name} is no text: {error}.") from error
    if not found:
        raise UsageError(f"{name} is empty; it must have the manifest of a job.")
    return found


def _machine(options: argparse.Namespace) -> Machine:
    from dlop.embedded.kubelet.python_environments import default_cache_folder
    from dlop.local.options import Machine, Network

    if options.gpus < 0 or (options.cpus is not None and not 0 < options.cpus < float("inf")):
        raise UsageError("--gpus and --cpus: a positive number is expected.")
    images = _images(options)
    if options.no_namespaces and options.network == "own":
        raise UsageError("--network own: pods without namespaces share this machine's network.")
    return Machine(
        cpus=options.cpus,
        memory_bytes=_bytes(options.memory),
        gpus=options.gpus,
        images=images,
        namespaces=not options.no_namespaces,
        network=Network(options.network),
        visible=_visible(options.files, images, default_cache_folder()),
    )


def _images(options: argparse.Namespace) -> list[Image]:
    from dlop.embedded.kubelet.image_map import ImageMapError, image_option, read_images

    try:
        own = [image_option(text) for text in options.image]
        return own + [image for name in options.images for image in read_images(Path(name))]
    except ImageMapError as error:
        raise UsageError(f"{error}.") from error


def _visible(files: Sequence[str], images: Sequence[Image], cache: Path) -> list[Path]:
    """What pods should see, wherever it lies: where the command was called, the folders of the files, and those of the images."""
    if any(image.python for image in images):
        # What is not there at the start cannot be shown, and the first environment is yet to be made.
        cache.mkdir(parents=True, exist_ok=True)
    folders = [Path(name).resolve().parent for name in files if name != "-"]
    mapped = [Path(image.working_folder) for image in images if image.working_folder]
    programs = [Path(image.command[0]).parent for image in images if image.command and image.command[0].startswith("/")]
    return [path for path in (Path.cwd(), cache, *folders, *mapped, *programs) if path.exists()]


def _bytes(text: str | None) -> int | None:
    from dlop.kube.quantity import rounded_up

    if text is None:
        return None
    try:
        return rounded_up(text)
    except ValueError as error:
        raise UsageError(f"--memory {text}: a size such as 8Gi is expected.") from error


def _seconds(text: str | None) -> float | None:
    from dlop.console.duration import read_seconds

    if text is None:
        return None
    try:
        return read_seconds(text)
    except ValueError as error:
        raise UsageError(f"--timeout: {error}.") from error
