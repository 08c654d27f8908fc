"""Flags and environment variables of the Kubeflow training operator, and what dlop does with them."""

from __future__ import annotations

from collections.abc import Mapping

from dlop.compat.legacy import FlagMapping, LegacyFlag, LegacyOperator, LegacyVariable, Values, last, workers

KINDS = ("TFJob", "PyTorchJob", "XGBoostJob", "MPIJob", "PaddleJob", "JAXJob", "MXJob")
"""Valid values of `--enable-scheme`."""
_GROUP = "kubeflow.org"
_LEVELS = {"debug": "debug", "info": "info", "error": "error", "panic": "error"}
_NO_WEBHOOK = "Ignored: dlop has no webhook; the schemas of the CRDs validate instead."


def _kinds(values: Values, _: Mapping[str, Values]) -> list[str]:
    known = {kind.lower(): f"{kind}.{_GROUP}" for kind in KINDS}
    kinds = [part.strip() for value in values for part in value.split(",") if part.strip()]
    unknown = next((kind for kind in kinds if kind.lower() not in known), None)
    if unknown is not None:
        raise ValueError(f"{unknown!r}: must be one of {', '.join(KINDS)}; use --kinds for kinds of other groups")
    return [known[kind.lower()] for kind in kinds]


def _workers(values: Values, flags: Mapping[str, Values]) -> int:
    return workers(values, len(set(_kinds(flags.get("enable-scheme", ()), flags))) or len(KINDS))


def _level(values: Values, _: Mapping[str, Values]) -> str:
    level = values[-1].lower()
    if level.isdecimal() and int(level):
        return "debug"
    if level not in _LEVELS:
        raise ValueError(f"{values[-1]!r}: must be debug, info or error")
    return _LEVELS[level]


LEGACY_FLAGS = (
    LegacyFlag(
        "enable-scheme",
        f"Same as --kinds, for kinds of {_GROUP}. Can be repeated; not case-sensitive.",
        FlagMapping("kinds", _kinds),
    ),
    LegacyFlag("namespace", "Same as --namespaces; all if empty."),
    LegacyFlag("gang-scheduler-name", "Supported."),
    LegacyFlag(
        "controller-threads",
        "Same as --workers, multiplied by the number of kinds in --enable-scheme, or by 7 if that is not set.",
        FlagMapping("workers", _workers),
    ),
    LegacyFlag("kube-api-qps", "Supported. No limit by default, which is faster."),
    LegacyFlag("kube-api-burst", "Supported, together with --kube-api-qps."),
    LegacyFlag(
        "leader-elect",
        "Same as --leader-election, which is on by default in a cluster.",
        FlagMapping("leader_election", last),
        is_switch=True,
    ),
    LegacyFlag("leader-election-id", "Same as --lease-name. The Role for leases must name it.", FlagMapping("lease_name", last)),
    LegacyFlag("metrics-bind-address", "Supported. Moves the probes to :8081, unless --health-probe-bind-address is set."),
    LegacyFlag("health-probe-bind-address", "Supported. Leaves the metrics on :8080, unless --metrics-bind-address is set."),
    LegacyFlag("kubeconfig", "Supported."),
    LegacyFlag("mpi-kubectl-delivery-image", "Supported."),
    LegacyFlag("pytorch-init-container-image", "Supported. No init container by default, because none is needed."),
    LegacyFlag("pytorch-init-container-max-tries", "Supported."),
    LegacyFlag("pytorch-init-container-template-file", "Supported. There is no default file."),
    LegacyFlag("webhook-server-port", _NO_WEBHOOK),
    LegacyFlag("webhook-service-name", _NO_WEBHOOK),
    LegacyFlag("webhook-secret-name", _NO_WEBHOOK),
    LegacyFlag("zap-log-level", "Same as --log-level.", FlagMapping("log_level", _level)),
    LegacyFlag("zap-encoder", "Same as --log-format.", FlagMapping("log_format", last)),
    LegacyFlag("zap-devel", "Ignored: use --log-format and --log-level.", is_switch=True),
    LegacyFlag("zap-stacktrace-level", "Ignored: only bugs in dlop are logged with a traceback."),
    LegacyFlag("zap-time-encoding", "Ignored: times are in RFC 3339 format."),
    LegacyFlag("enable-gang-scheduling", "use --gang-scheduler-name=volcano, or omit it", is_switch=True, is_rejected=True),
    LegacyFlag("monitoring-port", "use --metrics-bind-address=:PORT", is_rejected=True),
)
LEGACY_VARIABLES = (
    LegacyVariable("KUBEFLOW_NAMESPACE", "namespaces", "Same as --namespaces."),
    LegacyVariable("MY_POD_NAMESPACE", "lease_namespace", "Same as --lease-namespace."),
    LegacyVariable("CUSTOM_CLUSTER_DOMAIN", "cluster_domain", "Same as --cluster-domain."),
)
KUBEFLOW = LegacyOperator("the Kubeflow training operator", LEGACY_FLAGS, LEGACY_VARIABLES)
