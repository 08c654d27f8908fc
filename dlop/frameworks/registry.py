"""Which kinds of jobs there are: by group, version and kind, never by kind alone, for three groups have an MXJob.

dlop's own kinds are listed in `BUILT_IN`. Others come from entry points of the group `dlop.frameworks` and from `--framework module:Class`.
Nothing is imported before a registry is asked for.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from dlop.job import DLJob

ENTRY_POINTS = "dlop.frameworks"
BUILT_IN = (
    "dlop.frameworks.fioravanzo.mxjob:MXJob",
    "dlop.frameworks.mpba.mxjob:MXJob",
    "dlop.frameworks.mpba.tfjob:TFJob",
    "dlop.frameworks.kubeflow.jaxjob:JAXJob",
    "dlop.frameworks.kubeflow.mpi.job:MPIJob",
    "dlop.frameworks.kubeflow.mxjob:MXJob",
    "dlop.frameworks.kubeflow.paddlejob:PaddleJob",
    "dlop.frameworks.kubeflow.pytorchjob:PyTorchJob",
    "dlop.frameworks.kubeflow.tfjob:TFJob",
    "dlop.frameworks.kubeflow.xgboostjob:XGBoostJob",
)


class RegistryError(Exception):
    """A kind cannot be found, loaded or told apart. The message says what to do."""


class Registry:
    """Kinds of jobs by group, version and kind."""

    def __init__(self, kinds: Iterable[type[DLJob]] = ()) -> None:
        self._kinds: dict[tuple[str, str], type[DLJob]] = {}
        for kind in kinds:
            self.add(kind)

    def add(self, kind: type[DLJob]) -> None:
        """Have one more kind.

        Raises:
            RegistryError: there is another class for the same kind.
        """
        key = (kind.job_type.api_version, kind.job_type.kind)
        there = self._kinds.setdefault(key, kind)
        if there is not kind:
            raise RegistryError(
                f"{kind.job_type} is declared twice: by {_place(there)} and by {_place(kind)}. Give one of them another group or kind."
            )

    def __iter__(self) -> Iterator[type[DLJob]]:
        return iter(self._kinds.values())

    def __len__(self) -> int:
        return len(self._kinds)

    def find(self, api_version: str, kind: str) -> type[DLJob] | None:
        """The class for a kind, if there is one."""
        return self._kinds.get((api_version, kind))

    def get(self, api_version: str, kind: str) -> type[DLJob]:
        """The class for a kind.

        Raises:
            RegistryError: there is none; the message names those that there are.
        """
        found = self.find(api_version, kind)
        if found is None:
            known = ", ".join(sorted(str(each.job_type) for each in self)) or "none"
            raise RegistryError(f"{api_version} {kind} is not a kind that dlop knows. It knows: {known}.")
        return found

    def select(self, names: Iterable[str]) -> Registry:
        """Only the kinds of these names: `MXJob.fioravanzo.org`, `mxjobs.fioravanzo.org`, or `MXJob` for all of that name.

        Raises:
            RegistryError: a name fits no kind.
        """
        chosen: list[type[DLJob]] = []
        for name in names:
            fitting = [kind for kind in self if name.lower() in _names(kind)]
            if not fitting:
                known = ", ".join(sorted(kind.job_type.resource.qualified_name for kind in self)) or "none"
                raise RegistryError(f"{name!r} is not the name of a kind. Write one of: {known}.")
            chosen += [kind for kind in fitting if kind not in chosen]
        return Registry(chosen)


def load_registry(frameworks: Iterable[str] = ()) -> Registry:
    """All kinds that are installed, and those of these classes (`module:Class`).

    Raises:
        RegistryError: one of them cannot be loaded.
    """
    registry = Registry()
    for reference in BUILT_IN:
        registry.add(load(reference))
    # An environment that was installed from an older version may still list dlop's own kinds, under module names of that version.
    points = [point for point in entry_points(group=ENTRY_POINTS) if not point.value.startswith("dlop.")]
    for point in sorted(points, key=lambda point: point.name):
        registry.add(_loaded(point))
    for reference in frameworks:
        registry.add(load(reference))
    return registry


def load(reference: str) -> type[DLJob]:
    """The class that `module:Class` names.

    Raises:
        RegistryError: there is no such module or class, or it is no framework.
    """
    module_name, _, class_name = reference.partition(":")
    if not module_name or not class_name:
        raise RegistryError(f"{reference!r} does not name a class. Write it as module:Class, for example ring.job:RingJob.")
    try:
        found: Any = importlib.import_module(module_name)
    except Exception as error:
        # Whatever a module does when it is imported: it is the user's to mend, and they need to know which one it was.
        raise RegistryError(f"the module {module_name!r} of {reference!r} cannot be imported: {_said(error)}") from error
    for part in class_name.split("."):
        if not hasattr(found, part):
            raise RegistryError(f"{reference!r} does not exist: the module {module_name!r} can be imported, but has no {class_name!r}.")
        found = getattr(found, part)
    return _checked(found, reference)


def _loaded(point: EntryPoint) -> type[DLJob]:
    try:
        return load(point.value)
    except RegistryError as error:
        package = f" of the package {point.dist.name}" if point.dist is not None else ""
        raise RegistryError(f"the entry point {point.name!r}{package} does not work: {error}") from error


def _checked(found: Any, reference: str) -> type[DLJob]:
    if not isinstance(found, type) or not issubclass(found, DLJob) or not hasattr(found, "job_type"):
        raise RegistryError(f"{reference!r} must be a class that extends dlop.DLJob and declares a job_type; it is {found!r:.80}.")
    return found


def _names(kind: type[DLJob]) -> frozenset[str]:
    job_type = kind.job_type
    words = (job_type.kind.lower(), job_type.plural, job_type.singular, *job_type.short_names)
    return frozenset(words) | {f"{word}.{job_type.group}" for word in words}


def _place(kind: type[DLJob]) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
