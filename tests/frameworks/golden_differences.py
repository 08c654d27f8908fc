"""Where dlop differs from the recordings on purpose: each difference once, with its reason. Any other one is a mistake.

`path` is a pattern for the places where it may be; `recorded` and `ours` say what has to stand there. An object that may be missing
is awaited: it has to come later, and then to be as it was recorded.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dlop.kube.types import JsonObject
from tests.frameworks.golden_comparison import ABSENT, Difference


def _anything(_: Any) -> bool:
    return True


def _nothing(value: Any) -> bool:
    return value is ABSENT


def _exactly(wanted: Any) -> Callable[[Any], bool]:
    return lambda value: bool(value == wanted)


def _in_any_recording(_ours: Any, _recording: JsonObject) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Allowed:
    """One difference that is meant to be there."""

    name: str
    reason: str
    path: str
    """A regular expression for the whole path."""
    recorded: Callable[[Any], bool]
    ours: Callable[[Any], bool]
    goldens: str = "*"
    """The recordings in which it may be."""
    moment: str = ".*"
    """A regular expression for when it may be, in the words of the recording."""
    given: Callable[[Any, JsonObject], bool] = _in_any_recording
    """What ours has to be, given the whole recording."""
    bug: int | None = None
    """The bug of the recorded operator that the recording shows, by its number in the specification."""

    def covers(self, difference: Difference, recording: JsonObject) -> bool:
        """Whether this difference from a recording is meant."""
        is_here = bool(re.fullmatch(self.path, difference.path) and re.fullmatch(self.moment, difference.moment))
        is_so = is_here and self.recorded(difference.recorded) and self.ours(difference.ours)
        return is_so and self.given(difference.ours, recording)


def allowed_for(golden: str) -> list[Allowed]:
    """What may differ from this recording."""
    return [allowed for allowed in ALLOWED if fnmatch.fnmatchcase(golden, allowed.goldens)]


_OBJECT = r"objects\.\w+\[[^]]+\]"
_POD = r"objects\.pods\[[^]]+\]"
_SERVICE = r"objects\.services\[[^]]+\]"

_WAIT = "err=1;for i in $(seq 100); do if nslookup demo-master-0; then err=0 && break; fi;echo waiting for master; sleep 2; done; exit $err"
_WAITING_FOR_THE_MASTER = {
    "name": "init-pytorch",
    "image": "alpine:3.10",
    "imagePullPolicy": "IfNotPresent",
    "command": ["sh", "-c", _WAIT],
    "resources": {"limits": {"cpu": "100m", "memory": "20Mi"}, "requests": {"cpu": "50m", "memory": "10Mi"}},
}


def _is_workers_selector(ours: Any, recording: JsonObject) -> bool:
    """Whether it is the one that the Worker had all the time before."""
    views = [recording["settled"], *(step["then"] for step in recording["steps"])]
    workers = [(view["job"] or {}).get("replicaStatuses", {}).get("Worker", {}) for view in views]
    return {worker["selector"] for worker in workers if "selector" in worker} == {ours}


def _waits_or_is_whole(value: Any) -> bool:
    """What was recorded of a pod that nobody has started: its phase, and its body."""
    return value == "Pending" or isinstance(value, dict)


ALLOWED = (
    # --- what is added -----------------------------------------------------------------------------------------------
    Allowed(
        name="own labels",
        reason="dlop recognises what it has made by the uid of the job, and knows which attempt a pod belongs to",
        path=rf"{_OBJECT}\.metadata\.labels\[dlop\.dev/(job-uid|attempt)\]",
        recorded=_nothing,
        ours=_anything,
    ),
    Allowed(
        name="own annotations",
        reason="dlop notes what an object was made from and what it was told: so one that has to change can be told from one that has not",
        path=rf"{_OBJECT}\.metadata\.annotations(\[dlop\.dev/(rendered|size)\])?",
        recorded=_nothing,
        ours=lambda value: isinstance(value, str) or {*value} <= {"dlop.dev/rendered", "dlop.dev/size"},
    ),
    Allowed(
        name="own record",
        reason="dlop keeps its counts of restarts and its deadlines in the status, so that a new operator goes on where the old one was",
        path=r"view\.job\.dlop",
        recorded=_nothing,
        ours=_anything,
    ),
    # --- what is better ----------------------------------------------------------------------------------------------
    Allowed(
        name="no init container",
        reason="the services are there before the pods and publish addresses that are not ready: nobody has to wait for the master's name",
        path=rf"{_POD}\.spec\.initContainers\[init-pytorch\]",
        recorded=_exactly(_WAITING_FOR_THE_MASTER),
        ours=_nothing,
        goldens="pytorch*",
    ),
    Allowed(
        name="addresses before readiness",
        reason="replicas look for each other before they are ready",
        path=rf"{_SERVICE}\.spec\.publishNotReadyAddresses",
        recorded=_nothing,
        ours=_exactly(True),
    ),
    Allowed(
        name="selector to the end",
        reason="the recorded operator loses the Worker's selector when the Master has succeeded; here it stays",
        path=r"view\.job\.replicaStatuses\.Worker\.selector",
        recorded=_nothing,
        ours=_anything,
        given=_is_workers_selector,
        goldens="pytorch*",
        moment=r"after succeed (\*|demo-master-0)",
    ),
    Allowed(
        name="launcher waits",
        reason="the recorded operator starts the launcher before there are workers that it could reach",
        path=r"(view|objects)\.pods\[demo-launcher\]",
        recorded=_waits_or_is_whole,
        ours=_nothing,
        goldens="mpi*",
        moment="at first",
        bug=15,
    ),
    Allowed(
        name="reason said once",
        reason="the recorded operator writes the name of the kind twice into this reason",
        path=r"view\.job\.conditions\[Failed\]\.reason",
        recorded=_exactly("MPIJobMPIJobFailed"),
        ours=_exactly("MPIJobFailed"),
        goldens="mpi-launcher-fails",
        bug=8,
    ),
)
