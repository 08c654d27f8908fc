"""Flags and environment variables of KubeDL's operator, and what dlop does with them."""

from __future__ import annotations

from collections.abc import Mapping

from dlop.compat.legacy import FlagMapping, LegacyFlag, LegacyOperator, LegacyVariable, Values, last, workers

KINDS = ("TFJob", "PyTorchJob", "XGBoostJob", "XDLJob", "MarsJob", "ElasticDLJob", "MPIJob")
"""The kinds in `--workloads` that dlop runs."""
_CRON = "cron"
"""Crons are always run."""
_OTHER_KINDS = ("ElasticBatchJob", "Inference", "Model", "ModelVersion", "Notebook", "CacheBackend")
_GROUP = "training.kubedl.io"
_ALL = ("auto", "*")
_MAX_PORT = 65535
_GATES = {
    "GangScheduling": None,
    "DAGScheduling": True,
    "PyTorchLocalMasterAddr": True,
    "JobCoordinator": None,
    "HostNetWithHeadlessSvc": None,
}
"""The feature gates, with the only value that dlop can honor; None if both values have no effect."""
_BOOLEANS = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}


def _kinds(text: str) -> list[str]:
    """All kinds, or those that are listed, without the ones that a dash disables."""
    known = {kind.lower(): kind for kind in KINDS}
    chosen: list[str] = []
    disabled: set[str] = set()
    words = [word.strip() for word in text.split(",") if word.strip()]
    for word in words:
        name = word.removeprefix("-").lower()
        if word.startswith("-"):
            disabled |= {*known} if name in _ALL else {_check_kind(word, name)}
        else:
            chosen += [*known] if name in _ALL else [_check_kind(word, name)]
    if not any(not word.startswith("-") for word in words):
        chosen = [*known]
    kinds = [f"{known[name]}.{_GROUP}" for name in dict.fromkeys(chosen) if name in known and name not in disabled]
    if not kinds:
        raise ValueError(f"{text!r}: must leave at least one kind; available: {', '.join(KINDS)}")
    return kinds


def _check_kind(word: str, name: str) -> str:
    others = {kind.lower() for kind in _OTHER_KINDS}
    if name == _CRON or (name in others and word.startswith("-")):
        return name
    if name in others:
        raise ValueError(f"{word!r}: dlop does not run this kind; remove it from the list")
    if name not in {kind.lower() for kind in KINDS}:
        raise ValueError(f"{word!r}: must be one of {', '.join(KINDS)}, auto or *; use --kinds for kinds of other groups")
    return name


def _workloads(values: Values, _: Mapping[str, Values]) -> list[str]:
    return _kinds(values[-1])


def _workers(values: Values, flags: Mapping[str, Values]) -> int:
    return workers(values, len(_kinds(flags["workloads"][-1])) if "workloads" in flags else len(KINDS))


def _metrics_port(values: Values, _: Mapping[str, Values]) -> str:
    if not values[-1].isdecimal() or not 0 < int(values[-1]) <= _MAX_PORT:
        raise ValueError(f"{values[-1]!r}: must be a port; use --metrics-bind-address for an address")
    return f":{values[-1]}"


def _controller_metrics_address(values: Values, flags: Mapping[str, Values]) -> str:
    # controller-runtime turns the endpoint off with 0.
    own = "off" if values[-1] == "0" else values[-1]
    return _metrics_port(flags["metrics-addr"], flags) if "metrics-addr" in flags else own


def _port_range(values: Values, _: Mapping[str, Values]) -> str:
    """FIRST-LAST from the notations of Kubernetes: FIRST-LAST, FIRST+COUNT or PORT."""
    text = "".join(values[-1].split())
    first, sign, other = text.partition("+") if "+" in text else text.partition("-")
    if not first.isdecimal() or (sign and not other.isdecimal()):
        raise ValueError(f"{values[-1]!r}: must be a range of ports, like 20000-30000 or 20000+10000")
    begin = int(first)
    end = begin if not sign else min(begin + int(other), _MAX_PORT) if sign == "+" else int(other)
    if not 0 < begin <= end <= _MAX_PORT:
        raise ValueError(f"{values[-1]!r}: must be a range of ports between 1 and {_MAX_PORT}, like 20000-30000")
    return f"{begin}-{end}"


def _check_gates(values: Values) -> None:
    for entry in (part.strip() for value in values for part in value.split(",") if part.strip()):
        name, _, text = entry.partition("=")
        if name not in _GATES or text.strip().lower() not in _BOOLEANS:
            raise ValueError(f"{entry!r}: must be GATE=true or GATE=false; gates: {', '.join(_GATES)}")
        required = _GATES[name]
        if required is not None and _BOOLEANS[text.strip().lower()] is not required:
            raise ValueError(f"{entry!r}: dlop always behaves as with {name}={str(required).lower()}; remove the gate")


LEGACY_FLAGS = (
    LegacyFlag(
        "workloads",
        f"Same as --kinds, for kinds of {_GROUP}: auto and * are all of them, -Kind leaves one out. Not case-sensitive.",
        FlagMapping("kinds", _workloads),
    ),
    LegacyFlag(
        "max-reconciles",
        f"Same as --workers, multiplied by the number of kinds in --workloads, or by {len(KINDS)} if that is not set.",
        FlagMapping("workers", _workers),
    ),
    LegacyFlag(
        "enable-leader-election",
        "Same as --leader-election, which is on by default in a cluster. The lease is that of --lease-name.",
        FlagMapping("leader_election", last),
        is_switch=True,
    ),
    LegacyFlag("gang-scheduler-name", "Supported, with KubeDL's names."),
    LegacyFlag("hostnetwork-port-range", "Same as --host-port-range.", FlagMapping("host_port_range", _port_range)),
    LegacyFlag(
        "controller-metrics-addr",
        "Same as --metrics-bind-address, unless --metrics-addr is set. dlop serves all metrics on one port.",
        FlagMapping("metrics_bind_address", _controller_metrics_address),
    ),
    LegacyFlag("metrics-addr", "Same as --metrics-bind-address with this port.", FlagMapping("metrics_bind_address", _metrics_port)),
    LegacyFlag("kubectl-delivery-image", "Same as --mpi-kubectl-delivery-image.", FlagMapping("mpi_kubectl_delivery_image", last)),
    LegacyFlag(
        "launcher-runs-workloads",
        "Same as --mpi-launcher-runs-workloads.",
        FlagMapping("mpi_launcher_runs_workloads", last),
        is_switch=True,
    ),
    LegacyFlag("feature-gates", "Ignored, but DAGScheduling=false and PyTorchLocalMasterAddr=false are rejected.", check=_check_gates),
    LegacyFlag("model-image-builder", "Ignored: dlop builds no images from models."),
    LegacyFlag("meta-storage", "Ignored: dlop does not store jobs in a database."),
    LegacyFlag("event-storage", "Ignored: dlop does not store events outside the cluster."),
    LegacyFlag("region", "Ignored: only KubeDL's storage of jobs used it."),
)
LEGACY_VARIABLES = (
    LegacyVariable("WORKLOADS_ENABLE", "kinds", "Same as --workloads, which takes precedence.", _kinds),
    LegacyVariable("CUSTOM_CLUSTER_DOMAIN", "cluster_domain", "Same as --cluster-domain."),
)
KUBEDL = LegacyOperator("KubeDL", LEGACY_FLAGS, LEGACY_VARIABLES)
