"""The flags and variables of Kubeflow's training operator, and what each of them means here: this table alone knows of them.

A flag that dlop has under the same name is a setting like any other. One that has another name is translated. One that has no
meaning any more is taken. What cannot be taken is refused with a sentence that says what to write instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

KINDS = ("TFJob", "PyTorchJob", "XGBoostJob", "MPIJob", "PaddleJob", "JAXJob", "MXJob")
"""What `--enable-scheme` may name."""
_GROUP = "kubeflow.org"
_LEVELS = {"debug": "debug", "info": "info", "error": "error", "panic": "error"}
_NO_WEBHOOK = "has no meaning: there is no webhook, the definitions check what it checked"

Values = Sequence[str]
"""What a flag was given, each time that it was."""


@dataclass(frozen=True, slots=True)
class Translation:
    """A flag that has another name here."""

    field: str
    """The setting that it becomes."""
    value: Callable[[Values, Mapping[str, Values]], Any]
    """What the setting becomes, given this flag's values and those of all others. Raises ValueError with what to write."""


@dataclass(frozen=True, slots=True)
class OldFlag:
    """One flag of the old operator."""

    name: str
    meaning: str
    """What dlop makes of it, as the second half of a sentence that begins with its name."""
    becomes: Translation | None = None
    is_switch: bool = False
    is_refused: bool = False

    @property
    def flag(self) -> str:
        """As it is written."""
        return f"--{self.name}"

    @property
    def field(self) -> str:
        """As a name of Python."""
        return self.name.replace("-", "_")


@dataclass(frozen=True, slots=True)
class OldVariable:
    """One variable of the old operator's environment."""

    name: str
    field: str
    meaning: str


def _kinds(values: Values, _: Mapping[str, Values]) -> list[str]:
    known = {kind.lower(): f"{kind}.{_GROUP}" for kind in KINDS}
    given = [part.strip() for value in values for part in value.split(",") if part.strip()]
    wrong = next((each for each in given if each.lower() not in known), None)
    if wrong is not None:
        raise ValueError(f"is {wrong!r}; write one of {', '.join(KINDS)}, or use --kinds for kinds of other groups")
    return [known[each.lower()] for each in given]


def _workers(values: Values, others: Mapping[str, Values]) -> int:
    if not values[-1].isdecimal() or not int(values[-1]):
        raise ValueError(f"is {values[-1]!r}; write a whole number, at least 1")
    return int(values[-1]) * (len(set(_kinds(others.get("enable-scheme", ()), others))) or len(KINDS))


def _level(values: Values, _: Mapping[str, Values]) -> str:
    given = values[-1].lower()
    if given.isdecimal() and int(given):
        return "debug"
    if given not in _LEVELS:
        raise ValueError(f"is {values[-1]!r}; write debug, info or error")
    return _LEVELS[given]


def _last(values: Values, _: Mapping[str, Values]) -> str:
    return values[-1]


FLAGS = (
    OldFlag(
        "enable-scheme",
        f"is --kinds, for kinds of {_GROUP}; it may be given several times, and capital letters do not matter",
        Translation("kinds", _kinds),
    ),
    OldFlag("namespace", "is --namespaces; empty for all"),
    OldFlag("gang-scheduler-name", "is the same"),
    OldFlag(
        "controller-threads",
        "is --workers, so many for each kind that --enable-scheme names, or for all seven",
        Translation("workers", _workers),
    ),
    OldFlag("kube-api-qps", "is the same; without it nothing is limited, which is faster"),
    OldFlag("kube-api-burst", "is the same, together with --kube-api-qps"),
    OldFlag(
        "leader-elect", "is --leader-election, which in a cluster is on by itself", Translation("leader_election", _last), is_switch=True
    ),
    OldFlag("leader-election-id", "is --lease-name; the Role for leases must name it", Translation("lease_name", _last)),
    OldFlag("metrics-bind-address", "is the same; the probes are then on :8081 unless told otherwise"),
    OldFlag("health-probe-bind-address", "is the same; the metrics are then on :8080 unless told otherwise"),
    OldFlag("kubeconfig", "is the same"),
    OldFlag("mpi-kubectl-delivery-image", "is the same"),
    OldFlag("pytorch-init-container-image", "is the same; without it there is no init container, for none is needed"),
    OldFlag("pytorch-init-container-max-tries", "is the same"),
    OldFlag("pytorch-init-container-template-file", "is the same; no file is looked for unless it is named"),
    OldFlag("webhook-server-port", _NO_WEBHOOK),
    OldFlag("webhook-service-name", _NO_WEBHOOK),
    OldFlag("webhook-secret-name", _NO_WEBHOOK),
    OldFlag("zap-log-level", "is --log-level", Translation("log_level", _level)),
    OldFlag("zap-encoder", "is --log-format", Translation("log_format", _last)),
    OldFlag("zap-devel", "has no meaning: see --log-format and --log-level", is_switch=True),
    OldFlag("zap-stacktrace-level", "has no meaning: only mistakes in dlop itself are told with a traceback"),
    OldFlag("zap-time-encoding", "has no meaning: times are written as RFC 3339 does"),
    OldFlag(
        "enable-gang-scheduling",
        "is from an older release: write --gang-scheduler-name=volcano, or leave it out",
        is_switch=True,
        is_refused=True,
    ),
    OldFlag("monitoring-port", "is from an older release: write --metrics-bind-address=:PORT", is_refused=True),
)
VARIABLES = (
    OldVariable("KUBEFLOW_NAMESPACE", "namespaces", "is --namespaces"),
    OldVariable("MY_POD_NAMESPACE", "lease_namespace", "is --lease-namespace"),
    OldVariable("CUSTOM_CLUSTER_DOMAIN", "cluster_domain", "is --cluster-domain"),
)
