"""What a kind has without saying so: the model of its spec, its columns, its scale subresource.

They are made when somebody asks. So a class that only declares a job costs nothing of pydantic, and `import dlop` stays fast.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

from dlop.api.spec import Problem


class _OfClass:
    """An attribute of a class that is computed from the class."""

    def __init__(self, compute: Callable[[Any], Any]) -> None:
        self._compute = compute

    def __get__(self, instance: object, kind: type[Any]) -> Any:
        return self._compute(kind)


def default_spec_model() -> Any:
    """A model made of the kind's replica types."""
    return _OfClass(_spec_model)


def default_columns() -> Any:
    """State, age, and in the wide view the last failure."""
    return _OfClass(lambda _: _columns())


def default_scale_paths() -> Any:
    """A kind with one role, in the common dialect, can be scaled."""
    return _OfClass(_scale_paths)


def problems_by_model(kind: type[Any], spec: Any) -> Iterable[Problem]:
    """What the kind's own model finds wrong with a spec. The generated one knows nothing that reading has not seen."""
    if _has_generated_model(kind) or kind.spec_model is None:
        return ()
    from pydantic import ValidationError  # noqa: PLC0415

    from dlop.api.spec_models import problems_of  # noqa: PLC0415

    try:
        kind.spec_model.model_validate(spec)
    except ValidationError as error:
        return problems_of(error)
    return ()


def _has_generated_model(kind: type[Any]) -> bool:
    found = next((vars(base)["spec_model"] for base in kind.__mro__ if "spec_model" in vars(base)), None)
    return isinstance(found, _OfClass)


@functools.cache
def _spec_model(kind: Any) -> Any:
    from dlop.api.role_schema import spec_model  # noqa: PLC0415

    return spec_model(kind.job_type.kind, kind.replica_types, field=kind.replica_specs_field)


def _columns() -> Any:
    from dlop.api.crd import DEFAULT_COLUMNS  # noqa: PLC0415

    return DEFAULT_COLUMNS


def _scale_paths(kind: Any) -> Any:
    from dlop.api.crd import ScalePaths  # noqa: PLC0415

    if len(kind.replica_types) != 1 or not _has_generated_model(kind):
        return None
    role = kind.replica_types[0].name
    counts = f".status.replicaStatuses.{role}"
    return ScalePaths(f".spec.{kind.replica_specs_field}.{role}.replicas", f"{counts}.active", f"{counts}.selector")
