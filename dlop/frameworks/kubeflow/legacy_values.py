"""Values that Kubeflow's operator accepted and the CRDs of dlop reject. Stored jobs may still have them.

value                                   effect
`cleanPodPolicy` with an unknown value  All
`successPolicy` with an unknown value   as if unset
`managedBy` with an empty value         as if unset
negative numbers, `rdzvPort` 0          as if unset
"""

from __future__ import annotations

from typing import Any

from dlop import CleanPodPolicy, JsonObject


def normalize_legacy_values(spec: Any, *, replica_specs: str) -> Any:
    """The spec with these values replaced or removed. Replica specs are not changed: Kubeflow's operator rejected invalid ones."""
    if not isinstance(spec, dict):
        return spec
    roles = {name: value for name, value in spec.items() if name == replica_specs}
    return {**_normalize_object({name: value for name, value in spec.items() if name not in roles}), **roles}


def _normalize_object(fields: JsonObject) -> JsonObject:
    return {name: _normalize_value(name, value) for name, value in fields.items() if not _is_unset(name, value)}


def _normalize_value(name: str, value: Any) -> Any:
    if isinstance(value, dict):
        return _normalize_object(value)
    is_unknown_policy = name == "cleanPodPolicy" and isinstance(value, str) and value not in list(CleanPodPolicy)
    return CleanPodPolicy.ALL.value if is_unknown_policy else value


def _is_unset(name: str, value: Any) -> bool:
    match name:
        case "successPolicy":
            return isinstance(value, str) and value != "AllWorkers"
        case "managedBy":
            return isinstance(value, str) and not value
        case "rdzvPort":
            return isinstance(value, int) and value <= 0
        case _:
            return isinstance(value, int) and value < 0
