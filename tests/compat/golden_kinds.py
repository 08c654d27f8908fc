"""Which class of dlop's plays a recording, and which recordings nobody can play yet."""

from __future__ import annotations

import fnmatch
import importlib
import pkgutil
from collections.abc import Iterator

from dlop.job import DLJob
from tests.compat.golden_player import Golden

PACKAGE = "dlop.frameworks.kubeflow"

NOT_YET: dict[str, str] = {}
"""Recordings that cannot be played yet, by patterns for `server-name`, and why. One that can be played must not be here."""


STILL_DIFFERENT: dict[str, list[str]] = {}
"""Of the recordings above whose kind is there: all that is different, so that nothing else becomes so unnoticed."""


class KindIsMissingError(LookupError):
    """There is no class for the kind of a recording."""


def not_yet(server: str, golden: str) -> str | None:
    """Why this recording cannot be played yet on a server, if it cannot."""
    return next((reason for pattern, reason in NOT_YET.items() if fnmatch.fnmatchcase(f"{server}-{golden}", pattern)), None)


def kind_of(golden: Golden) -> type[DLJob]:
    """The class for the job of a recording.

    Raises:
        KindIsMissingError: there is none.
    """
    wanted = (golden.manifest["apiVersion"], golden.manifest["kind"])
    for kind in _kinds():
        if (kind.job_type.api_version, kind.job_type.kind) == wanted:
            return kind
    raise KindIsMissingError(f"{PACKAGE} has no class for {wanted[0]} {wanted[1]}")


def _kinds() -> Iterator[type[DLJob]]:
    """Every class in the package that declares a kind, whether it is registered or not."""
    try:
        package = importlib.import_module(PACKAGE)
    except ModuleNotFoundError as error:
        if error.name != PACKAGE:
            raise
        return
    for found in pkgutil.iter_modules(package.__path__):
        module = importlib.import_module(f"{PACKAGE}.{found.name}")
        for thing in vars(module).values():
            if isinstance(thing, type) and issubclass(thing, DLJob) and "job_type" in vars(thing):
                yield thing
