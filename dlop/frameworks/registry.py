"""Registry of frameworks by group, version and kind. The kind alone is ambiguous: three groups have an MXJob.

Built-in frameworks are listed in `BUILT_IN`. Others come from entry points of the group `dlop.frameworks` and from
`--framework module:Class`. Framework modules are imported only when a registry is loaded. A broken entry point is skipped, because the
package that installed it must not stop the other kinds.
"""

from __future__ import annotations

import importlib
import operator
from collections.abc import Iterable, Iterator
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any

from dlop.api.crd import build_crd
from dlop.api.types import DeclarationError
from dlop.job import DLJob
from dlop.policies.declaration import check_declaration

if TYPE_CHECKING:
    from dlop.api.flags import FrameworkFlags

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
    "dlop.frameworks.paddlepaddle.paddlejob:PaddleJob",
    "dlop.frameworks.paddlepaddle.trainingjob:TrainingJob",
    "dlop.frameworks.batch_paddlepaddle.paddlejob:PaddleJob",
    "dlop.frameworks.dlrover.elasticjob:ElasticJob",
    "dlop.frameworks.kubedl.tfjob:TFJob",
    "dlop.frameworks.kubedl.pytorchjob:PyTorchJob",
    "dlop.frameworks.kubedl.xgboostjob:XGBoostJob",
    "dlop.frameworks.kubedl.xdljob:XDLJob",
    "dlop.frameworks.kubedl.marsjob:MarsJob",
    "dlop.frameworks.kubedl.elasticdljob:ElasticDLJob",
    "dlop.frameworks.kubedl.mpijob:MPIJob",
)


class RegistryError(Exception):
    """A framework is unknown, cannot be loaded, or conflicts with another one."""


class Registry:
    """Framework classes by group, version and kind. A kind that is served in several versions has one class."""

    def __init__(self, kinds: Iterable[type[DLJob]] = ()) -> None:
        self._kinds: dict[tuple[str, str], type[DLJob]] = {}
        self.reserved_flags: frozenset[str] = frozenset()
        """Flags of the operator, such as `--workers`, that frameworks to be added must not declare."""
        self.skipped: tuple[str, ...] = ()
        """Errors of entry points that could not be loaded."""
        for kind in kinds:
            self.add(kind)

    def add(self, kind: type[DLJob]) -> None:
        """Register a framework. Registering the same class again has no effect.

        Raises:
            RegistryError: another class is registered for the same kind, or declares one of its flags.
        """
        keys = [(api_version, kind.job_type.kind) for api_version in kind.job_type.api_versions]
        for api_version, name in keys:
            registered = self._kinds.get((api_version, name), kind)
            if registered is not kind:
                classes = f"{_qualified_name(registered)} and {_qualified_name(kind)}"
                raise RegistryError(f"{api_version} {name} is declared by both {classes}; change the group or kind of one")
        self._check_flags(kind)
        self._kinds |= dict.fromkeys(keys, kind)

    @property
    def flags(self) -> tuple[type[FrameworkFlags], ...]:
        """The flags that the frameworks declare, without duplicates."""
        return tuple(dict.fromkeys(kind.flags for kind in self if kind.flags is not None))

    def _check_flags(self, kind: type[DLJob]) -> None:
        own = kind.flags
        if own is None or own in self.flags:
            return
        declared = {*self.reserved_flags, *(flag for flags in self.flags for flag in flags.flag_names())}
        duplicate = next((flag for flag in own.flag_names() if flag in declared), None)
        if duplicate is not None:
            raise RegistryError(
                f"{_qualified_name(kind)} declares the flag {duplicate}, which already exists; rename the field of its flags"
            )

    def __iter__(self) -> Iterator[type[DLJob]]:
        return iter(dict.fromkeys(self._kinds.values()))

    def __len__(self) -> int:
        return len(set(self._kinds.values()))

    def find(self, api_version: str, kind: str) -> type[DLJob] | None:
        return self._kinds.get((api_version, kind))

    def get(self, api_version: str, kind: str) -> type[DLJob]:
        """The class for a kind.

        Raises:
            RegistryError: the kind is unknown. The message lists the known ones.
        """
        framework = self.find(api_version, kind)
        if framework is None:
            known = ", ".join(sorted(str(each.job_type) for each in self)) or "none"
            raise RegistryError(f"unknown kind {api_version} {kind}; known kinds: {known}")
        return framework

    def select(self, names: Iterable[str]) -> Registry:
        """A registry of the kinds with these names: `MXJob.fioravanzo.org`, `mxjobs.fioravanzo.org`, or `MXJob` for all groups.

        Raises:
            RegistryError: a name matches no kind.
        """
        selected: list[type[DLJob]] = []
        for name in names:
            matching = [kind for kind in self if name.lower() in _names(kind)]
            if not matching:
                known = ", ".join(sorted(kind.job_type.resource.qualified_name for kind in self)) or "none"
                raise RegistryError(f"unknown kind {name!r}; known kinds: {known}")
            selected += [kind for kind in matching if kind not in selected]
        registry = Registry(selected)
        registry.skipped = self.skipped
        return registry


def load_registry(frameworks: Iterable[str] = (), *, reserved_flags: Iterable[str] = ()) -> Registry:
    """A registry of all installed frameworks and of these classes (`module:Class`).

    An entry point that cannot be loaded, or whose CRD cannot be generated, is skipped and listed in `Registry.skipped`.

    Raises:
        RegistryError: one of these classes cannot be loaded.
    """
    registry = Registry(load(reference) for reference in BUILT_IN)
    registry.reserved_flags = frozenset(reserved_flags)
    # The metadata of an editable install may list built-in frameworks under module names of an older version.
    points = [point for point in entry_points(group=ENTRY_POINTS) if not point.value.startswith("dlop.")]
    for point in sorted(points, key=lambda point: point.name):
        try:
            registry.add(_check_crd(load(point.value)))
        except RegistryError as error:
            registry.skipped += (f"skipped the framework of {_describe(point)}: {error}",)
    for reference in frameworks:
        registry.add(load(reference))
    return registry


def load(reference: str) -> type[DLJob]:
    """The framework class with the reference `module:Class`.

    Raises:
        RegistryError: the class does not exist or is not a framework.
    """
    module_name, _, class_name = reference.partition(":")
    if not module_name or not class_name:
        raise RegistryError(f"{reference!r} is not a class reference; use module:Class, for example ring.job:RingJob")
    # Importing, and reading an attribute of a module, run user code, which can raise anything. The message must name the module.
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        raise RegistryError(f"cannot import module {module_name!r} of {reference!r}: {type(error).__name__}: {error}") from error
    try:
        value: Any = operator.attrgetter(class_name)(module)
    except AttributeError as error:
        raise RegistryError(f"cannot load {reference!r}: module {module_name!r} has no attribute {class_name!r}") from error
    except (Exception, SystemExit) as error:
        raise RegistryError(f"cannot load {reference!r}: {type(error).__name__}: {error}") from error
    return _check_framework(value, reference)


def _describe(point: EntryPoint) -> str:
    return f"entry point {point.name!r}{f' of package {point.dist.name}' if point.dist is not None else ''}"


def _check_framework(value: Any, reference: str) -> type[DLJob]:
    if not isinstance(value, type) or not issubclass(value, DLJob) or not hasattr(value, "job_type"):
        raise RegistryError(f"{reference!r} must be a subclass of dlop.DLJob that declares a job_type, got {value!r:.80}")
    try:
        check_declaration(value)  # a base class was not checked when it was defined
    except DeclarationError as error:
        raise RegistryError(f"cannot load {reference!r}: {error}") from error
    return value


def _check_crd(kind: type[DLJob]) -> type[DLJob]:
    """Check that the kind has a CRD. Otherwise it would stop all commands that need the CRDs of all kinds."""
    try:
        build_crd(kind)
    except Exception as error:
        # The model of the spec is user code.
        raise RegistryError(f"cannot generate the CRD of {kind.job_type}: {error}") from error
    return kind


def _names(kind: type[DLJob]) -> frozenset[str]:
    job_type = kind.job_type
    words = (job_type.kind.lower(), job_type.plural, job_type.singular, *job_type.short_names)
    return frozenset(words) | {f"{word}.{job_type.group}" for word in words}


def _qualified_name(kind: type[DLJob]) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"
