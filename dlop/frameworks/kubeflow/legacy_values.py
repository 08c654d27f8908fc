"""What Kubeflow's operator took and the definitions here refuse, as it meant it: jobs that are stored may still say it.

what is stored                          what it means
`cleanPodPolicy` of any other word      All
`successPolicy` of any other word       nothing was said
`managedBy` without a word              nothing was said
numbers below 0, a port 0               nothing was said
"""

from __future__ import annotations

from typing import Any

from dlop import CleanPodPolicy
from dlop.kube.types import JsonObject


def in_todays_words(spec: Any, *, replica_specs: str) -> Any:
    """A spec without such words. The replica specs are left as they are: what was wrong there was never run."""
    if not isinstance(spec, dict):
        return spec
    roles = {name: value for name, value in spec.items() if name == replica_specs}
    return {**_translated({name: value for name, value in spec.items() if name not in roles}), **roles}


def _translated(found: JsonObject) -> JsonObject:
    return {name: _meaning(name, value) for name, value in found.items() if not _is_nothing(name, value)}


def _meaning(name: str, value: Any) -> Any:
    if isinstance(value, dict):
        return _translated(value)
    is_other_word = name == "cleanPodPolicy" and isinstance(value, str) and value not in list(CleanPodPolicy)
    return CleanPodPolicy.ALL.value if is_other_word else value


def _is_nothing(name: str, value: Any) -> bool:
    match name:
        case "successPolicy":
            return isinstance(value, str) and value != "AllWorkers"
        case "managedBy":
            return isinstance(value, str) and not value
        case "rdzvPort":
            return isinstance(value, int) and value <= 0
        case _:
            return isinstance(value, int) and value < 0
