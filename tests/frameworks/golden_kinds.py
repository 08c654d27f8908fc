"""Which class of dlop's plays a recording."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator

from dlop.job import DLJob
from tests.frameworks.golden_player import Golden

PACKAGE = "dlop.frameworks.kubeflow"


class KindIsMissingError(LookupError):
    """There is no class for the kind of a recording."""


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
    package = importlib.import_module(PACKAGE)
    for found in pkgutil.iter_modules(package.__path__):
        module = importlib.import_module(f"{PACKAGE}.{found.name}")
        for thing in vars(module).values():
            if isinstance(thing, type) and issubclass(thing, DLJob) and "job_type" in vars(thing):
                yield thing
