"""Intended differences between dlop and the recordings, each with its reason. Any other difference is a bug.

An object that may be absent when the objects were recorded must be created later, and must then match the recording.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dlop.kube.types import JsonObject
from tests.frameworks.golden_diff import ABSENT, Difference


def _is_anything(_: Any) -> bool:
    return True


def _is_absent(value: Any) -> bool:
    return value is ABSENT


def _equals(expected: Any) -> Callable[[Any], bool]:
    return lambda value: bool(value == expected)


def _in_any_recording(_actual: Any, _recording: JsonObject) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class AllowedDifference:
    """An intended difference."""

    name: str
    reason: str
    path: str
    """Regular expression that must match the whole path."""
    recorded: Callable[[Any], bool]
    actual: Callable[[Any], bool]
    goldens: str = "*"
    """Glob pattern for the names of the recordings."""
    step: str = ".*"
    """Regular expression for the step of the recording."""
    fits_recording: Callable[[Any, JsonObject], bool] = _in_any_recording
    """Checks the actual value against the complete recording."""
    bug: int | None = None
    """Number of the known bug of Kubeflow's operator that the recording shows."""

    def covers(self, difference: Difference, recording: JsonObject) -> bool:
        is_at_place = bool(re.fullmatch(self.path, difference.path) and re.fullmatch(self.step, difference.step))
        has_values = is_at_place and self.recorded(difference.recorded) and self.actual(difference.actual)
        return has_values and self.fits_recording(difference.actual, recording)


def allowed_differences(golden: str) -> list[AllowedDifference]:
    """The intended differences from the recording with this name."""
    return [allowed for allowed in ALLOWED_DIFFERENCES if fnmatch.fnmatchcase(golden, allowed.goldens)]


_OBJECT = r"objects\.\w+\[[^]]+\]"
_POD = r"objects\.pods\[[^]]+\]"
_SERVICE = r"objects\.services\[[^]]+\]"

_WAIT = "err=1;for i in $(seq 100); do if nslookup demo-master-0; then err=0 && break; fi;echo waiting for master; sleep 2; done; exit $err"
_INIT_CONTAINER = {
    "name": "init-pytorch",
    "image": "alpine:3.10",
    "imagePullPolicy": "IfNotPresent",
    "command": ["sh", "-c", _WAIT],
    "resources": {"limits": {"cpu": "100m", "memory": "20Mi"}, "requests": {"cpu": "50m", "memory": "10Mi"}},
}


def _is_worker_selector(actual: Any, recording: JsonObject) -> bool:
    """Whether it is the only selector that the Worker role has in the recording."""
    views = [recording["settled"], *(step["then"] for step in recording["steps"])]
    workers = [(view["job"] or {}).get("replicaStatuses", {}).get("Worker", {}) for view in views]
    return {worker["selector"] for worker in workers if "selector" in worker} == {actual}


def _is_pending_pod(value: Any) -> bool:
    """Whether it is the recorded phase of a pending pod, or its recorded body."""
    return value == "Pending" or isinstance(value, dict)


ALLOWED_DIFFERENCES = (
    # --- additions ---------------------------------------------------------------------------------------------------
    AllowedDifference(
        name="own labels",
        reason="dlop identifies its objects by the uid of the job, and the attempt of a pod by a label",
        path=rf"{_OBJECT}\.metadata\.labels\[dlop\.dev/(job-uid|attempt)\]",
        recorded=_is_absent,
        actual=_is_anything,
    ),
    AllowedDifference(
        name="own annotations",
        reason="dlop records which template and which job size an object was created from, to detect objects that must change",
        path=rf"{_OBJECT}\.metadata\.annotations(\[dlop\.dev/(rendered|size)\])?",
        recorded=_is_absent,
        actual=lambda value: isinstance(value, str) or {*value} <= {"dlop.dev/rendered", "dlop.dev/size"},
    ),
    AllowedDifference(
        name="own record",
        reason="dlop keeps restart counts and deadlines in the status, so that a restarted operator continues with them",
        path=r"view\.job\.dlop",
        recorded=_is_absent,
        actual=_is_anything,
    ),
    # --- improvements ------------------------------------------------------------------------------------------------
    AllowedDifference(
        name="no init container",
        reason="services exist before the pods and publish not-ready addresses, so workers need not wait for the master's name",
        path=rf"{_POD}\.spec\.initContainers\[init-pytorch\]",
        recorded=_equals(_INIT_CONTAINER),
        actual=_is_absent,
        goldens="pytorch*",
    ),
    AllowedDifference(
        name="not-ready addresses",
        reason="replicas look each other up before they are ready",
        path=rf"{_SERVICE}\.spec\.publishNotReadyAddresses",
        recorded=_is_absent,
        actual=_equals(True),
    ),
    AllowedDifference(
        name="selector kept",
        reason="the recorded operator drops the selector of the Worker role when the Master has succeeded; dlop keeps it",
        path=r"view\.job\.replicaStatuses\.Worker\.selector",
        recorded=_is_absent,
        actual=_is_anything,
        fits_recording=_is_worker_selector,
        goldens="pytorch*",
        step=r"after succeed (\*|demo-master-0)",
    ),
    AllowedDifference(
        name="launcher waits",
        reason="the recorded operator creates the launcher before its workers run",
        path=r"(view|objects)\.pods\[demo-launcher\]",
        recorded=_is_pending_pod,
        actual=_is_absent,
        goldens="mpi*",
        step="initial state",
        bug=15,
    ),
    AllowedDifference(
        name="pinned image",
        reason="the recorded operator uses the tag latest, whose contents can change",
        path=r"objects\.pods\[demo-launcher\]\.spec\.initContainers\[kubectl-delivery\]\.image",
        recorded=_equals("ghcr.io/kubeflow/training-v1/kubectl-delivery:latest"),
        actual=lambda value: re.fullmatch(r"ghcr\.io/kubeflow/training-v1/kubectl-delivery:v1-[0-9a-f]{7}", value) is not None,
        goldens="mpi*",
    ),
    AllowedDifference(
        name="kind once in reason",
        reason="the recorded operator repeats the kind in this reason",
        path=r"view\.job\.conditions\[Failed\]\.reason",
        recorded=_equals("MPIJobMPIJobFailed"),
        actual=_equals("MPIJobFailed"),
        goldens="mpi-launcher-fails",
        bug=8,
    ),
)
