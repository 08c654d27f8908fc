"""`dlop new-framework`."""

from __future__ import annotations

import keyword
from collections.abc import Sequence
from pathlib import Path

from dlop.api.types import DeclarationError, JobType
from dlop.cli.common import Parser, say
from dlop.cli.errors import CommandError, UsageError
from dlop.cli.framework_files import NewFramework, framework_files


def parser() -> Parser:
    """What the command takes."""
    found = Parser("new-framework", "Writes a new framework: a class, an example and a test that pass as they are.")
    found.add_argument("name", metavar="NAME", help="the kind of its jobs, in camel case: RingJob")
    found.add_argument("--group", default="example.org", help="its API group, a domain of yours; default: example.org")
    found.add_argument("--out", type=Path, metavar="FOLDER", help="where to; default: a new folder of that name, in small letters")
    return found


def main(arguments: Sequence[str]) -> int:
    """Write a new framework."""
    options = parser().parse_args(arguments)

    new = _named(options.name, options.group)
    folder: Path = options.out or Path(new.module)
    _write(folder, framework_files(new))
    say(f"wrote a framework to {folder}. Try it:  cd {folder} && pytest && dlop render --framework {new.module}:{new.kind} job.yaml")
    return 0


def _named(name: str, group: str) -> NewFramework:
    try:
        JobType(group=group, version="v1", kind=name)
    except DeclarationError as error:
        raise UsageError(str(error)) from error
    if keyword.iskeyword(name) or keyword.iskeyword(name.lower()) or name == "DLJob":
        raise UsageError(f"{name} means something else already; take another name.")
    return NewFramework(kind=name, group=group)


def _write(folder: Path, files: dict[str, str]) -> None:
    there = sorted(name for name in files if (folder / name).exists())
    if there:
        raise CommandError(f"{folder} has {', '.join(there)} already, and nothing was written. Take another folder with --out.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (folder / name).write_text(content)
    except OSError as error:
        raise CommandError(f"{folder} cannot be written to: {error.strerror or error}.") from error
