"""Flags of `dlop run` for an operator that is deployed: given to `dlop deploy` after `--`, and checked before anything is changed."""

from __future__ import annotations

from collections.abc import Sequence

from dlop.commands.errors import UsageError

_NEED_MORE = (
    *("kubeconfig", "context", "namespaces", "kinds", "frameworks", "lease_name", "lease_namespace"),
    *("bind_address", "metrics_bind_address", "health_probe_bind_address"),
    *("controller_config_file", "pytorch_init_container_template_file"),
)
"""Settings to which something else in the manifests has to fit: rights, ports, probes, files."""


def operator_flags(words: Sequence[str]) -> tuple[str, ...]:
    """These flags, if an operator would start with them.

    Raises:
        UsageError: it would not, or would not get on with the rest of its Deployment.
    """
    from dlop.commands.run import parser  # noqa: PLC0415
    from dlop.flag_reading import read_settings, with_two_dashes  # noqa: PLC0415 - imports pydantic
    from dlop.settings import Settings, SettingsError  # noqa: PLC0415

    try:
        settings, _ = read_settings(vars(parser().parse_args(with_two_dashes(words))), {})
    except SettingsError as error:
        raise UsageError(str(error)) from error
    found = next((name for name in _NEED_MORE if getattr(settings, name) != Settings.model_fields[name].default), None)
    if found is not None:
        flag = f"--{found.replace('_', '-')}"
        raise UsageError(f"{flag} cannot be given after --: other parts of the manifests would not fit. {_INSTEAD}")
    return tuple(words)


_INSTEAD = "Write --kinds, --framework or --watch-namespace before it, or change what `dlop manifests` prints."
