"""Flags of `dlop run` for an operator that is deployed: given to `dlop deploy` after `--`, and checked before anything is changed."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from dlop.api.constants import GANG_RIGHTS
from dlop.cli.errors import UsageError

_CLUSTER = "leave it out: in the cluster, the operator goes by its service account"
_LEASE = "leave it out: the operator has a right to the lease dlop in its own namespace, and to no other"
_PORT = "leave it out: probes and metrics are on port 8080, which the Deployment and the Service dlop-metrics name"
_FILE = "a pod has no such file: mount it in what `dlop manifests` prints, and add the flag there"
_INSTEAD = {
    "kubeconfig": _CLUSTER,
    "context": _CLUSTER,
    "namespaces": "write --watch-namespace NAME before the two dashes, which makes rights to fit",
    "kinds": "write --kinds KINDS before the two dashes, which makes rights to fit",
    "frameworks": "write --framework MODULE:CLASS before the two dashes, which makes definitions and rights to fit",
    "lease_name": _LEASE,
    "lease_namespace": _LEASE,
    "bind_address": _PORT,
    "metrics_bind_address": _PORT,
    "health_probe_bind_address": _PORT,
    "controller_config_file": _FILE,
    "pytorch_init_container_template_file": _FILE,
}
"""Settings to which something else in the manifests has to fit, and what to do instead."""
_GANG = "gang_scheduler_name"
_WITH_GANG = f"it takes rights to PodGroups: write --with {GANG_RIGHTS} before the two dashes"


def operator_flags(words: Sequence[str], *, rights: Collection[str] = ()) -> tuple[str, ...]:
    """These flags, if an operator with these rights would start with them.

    Raises:
        UsageError: it would not, or would not get on with the rest of its Deployment.
    """
    from dlop.cli.run import parser
    from dlop.operator.flags import read_settings, spellings, with_two_dashes
    from dlop.operator.settings import Settings, SettingsError

    written = with_two_dashes(words)
    try:
        settings, _ = read_settings(vars(parser().parse_args(written)), {})
    except SettingsError as error:
        raise UsageError(str(error)) from error
    instead = _INSTEAD if GANG_RIGHTS in rights else {**_INSTEAD, _GANG: _WITH_GANG}
    for name, way_out in instead.items():
        if getattr(settings, name) != Settings.model_fields[name].default:
            typed = next(word for word in (word.partition("=")[0] for word in written) if word in spellings(name))
            raise UsageError(f"{typed} cannot be given after the two dashes: {way_out}")
    return tuple(words)
