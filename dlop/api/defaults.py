"""Defaults of class attributes of `DLJob` that are computed from the class: spec model, printer columns, scale subresource.

They are computed on first access. A class that only declares a job does not import pydantic, so `import dlop` stays fast.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

from dlop.api.spec import Problem


class _ClassProperty:
    """An attribute of a class that is computed from the class."""

    def __init__(self, compute: Callable[[Any], Any]) -> None:
        self._compute = compute

    def __get__(self, instance: object, kind: type[Any]) -> Any:
        return self._compute(kind)


def default_spec_model() -> Any:
    """A model generated from the replica types of the kind."""
    return _ClassProperty(_spec_model)


def default_columns() -> Any:
    """State and age, and the last failure with `-o wide`."""
    return _ClassProperty(lambda _: _columns())


def default_scale_paths() -> Any:
    """The scale subresource of kinds with a single role and a generated spec model; None for all others."""
    return _ClassProperty(_scale_paths)


def validate_with_model(kind: type[Any], spec: Any) -> Iterable[Problem]:
    """Problems that the kind's own model reports. A generated model is skipped, because parsing has already checked the same."""
    if _has_generated_model(kind) or kind.spec_model is None:
        return ()
    from pydantic import ValidationError  # noqa: PLC0415

    from dlop.api.spec_models import problems_from  # noqa: PLC0415

    try:
        kind.spec_model.model_validate(spec)
    except ValidationError as error:
        return problems_from(error)
    return ()


def _has_generated_model(kind: type[Any]) -> bool:
    attribute = next((vars(base)["spec_model"] for base in kind.__mro__ if "spec_model" in vars(base)), None)
    return isinstance(attribute, _ClassProperty)


@functools.cache
def _spec_model(kind: Any) -> Any:
    from dlop.api.role_schema import build_spec_model  # noqa: PLC0415

    return build_spec_model(kind.job_type.kind, kind.replica_types, field=kind.replica_specs_field)


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
