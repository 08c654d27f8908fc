"""Settings of the operator, read once from flags and the environment.

A flag takes precedence over its environment variable, and a variable over the default. `list_settings` describes all settings, for
`--help` and the documentation. `with_framework_flags` adds the flags that frameworks declare.
"""

from __future__ import annotations

import argparse
import types
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, create_model, field_validator, model_validator
from pydantic.fields import FieldInfo

from dlop.api.flags import FrameworkFlags, flag_name, is_file_flag
from dlop.api.types import ForceDeletion
from dlop.controller.host_ports import DEFAULT_HOST_PORTS, HostPortRange

PREFIX = "DLOP_"
NO_ADDRESS = "off"
_REQUIREMENTS = {
    "int_parsing": "must be an integer",
    "float_parsing": "must be a number",
    "bool_parsing": "must be true or false",
}
"""Requirements by pydantic's error type. For other types pydantic's own message is used."""


class SettingsError(Exception):
    """A flag or variable is invalid. The message names it and the valid values."""


class LogFormat(StrEnum):
    AUTO = "auto"
    """Console on a terminal, JSON otherwise."""
    JSON = "json"
    CONSOLE = "console"


class LogLevel(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class Settings(BaseModel):
    """All settings. Lists are comma-separated."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kubeconfig: str = Field(
        default="",
        description="Path to a kubeconfig file. Defaults to KUBECONFIG, the service account of the pod or ~/.kube/config.",
    )
    context: str = Field(default="", description="Context of the kubeconfig file to use. Defaults to the current context.")
    namespaces: tuple[str, ...] = Field(default=(), description="Namespaces to watch; all if empty.")
    kinds: tuple[str, ...] = Field(
        default=(), description="Kinds to reconcile, such as MXJob or mxjobs.example.org; all installed kinds if empty."
    )
    frameworks: tuple[str, ...] = Field(
        default=(), description="Additional frameworks, as module:Class. Installed frameworks are discovered automatically."
    )
    workers: int = Field(default=128, ge=1, description="Maximum number of jobs reconciled concurrently.")
    writes_in_flight: int = Field(default=64, ge=2, description="Maximum number of write requests in flight to the API server.")
    reads_in_flight: int = Field(default=16, ge=1, description="Maximum number of read requests in flight to the API server.")
    kube_api_qps: float = Field(default=0.0, description="Maximum queries per second to the API server; 0 means no limit, which is faster.")
    kube_api_burst: int = Field(
        default=0, ge=0, description="Maximum burst of queries to the API server with --kube-api-qps; 0 means 1.5 times --kube-api-qps."
    )
    leader_election: bool | None = Field(
        default=None, description="Use a lease to elect a leader, so that only one replica reconciles. Enabled by default in a cluster."
    )
    lease_name: str = Field(default="dlop", min_length=1, description="Name of the leader election lease.")
    lease_namespace: str = Field(
        default="", description="Namespace of the leader election lease. Defaults to the namespace of the pod or of the context."
    )
    lease_duration_seconds: int = Field(
        default=15, ge=1, description="Seconds that non-leader candidates wait after the last renewal before they acquire the lease."
    )
    renew_deadline_seconds: float = Field(
        default=10.0, gt=0, description="Seconds that the leader keeps trying to renew the lease before it gives up leadership."
    )
    retry_period_seconds: float = Field(default=2.0, gt=0, description="Seconds between attempts to acquire or renew the lease.")
    bind_address: str = Field(
        default="",
        description=f"Address of /healthz, /readyz and /metrics, or {NO_ADDRESS}. Defaults to port 8080, on loopback outside a cluster.",
    )
    metrics_bind_address: str = Field(
        default="",
        description=f"Separate address of /metrics, or {NO_ADDRESS}. The probes then default to port 8081.",
    )
    health_probe_bind_address: str = Field(
        default="",
        description=f"Separate address of /healthz and /readyz, or {NO_ADDRESS}. /metrics then defaults to port 8080.",
    )
    log_format: LogFormat = Field(default=LogFormat.AUTO, description="Log format: auto, json or console.")
    log_level: LogLevel = Field(default=LogLevel.INFO, description="Log level: debug, info, warning or error.")
    node_lost_seconds: int = Field(
        default=60,
        ge=0,
        description="Seconds after the grace period until the deletion of a pod is overdue.",
    )
    force_deletion: ForceDeletion = Field(
        default=ForceDeletion.NEVER,
        description="When overdue pods are force-deleted: never, node-down (needs read access to nodes) or timeout.",
    )
    cluster_domain: str = Field(
        default="", description="DNS domain of the cluster. If empty, names are resolved with the DNS search path of the pods."
    )
    gang_scheduler_name: str = Field(
        default="",
        description="Gang scheduler: volcano, kube-batch, kube-coscheduler, or the name of a scheduler built with scheduler-plugins; "
        "no gang scheduling if empty.",
    )
    autoscaler: bool = Field(
        default=False,
        description="Scale elastic jobs with the capacity of the cluster. Needs all namespaces and read access to nodes.",
    )
    autoscaler_max_load: float = Field(
        default=0.97, gt=0, le=1, description="Fraction of the cluster's allocatable resources up to which elastic jobs grow."
    )
    host_port_range: str = Field(
        default=f"{DEFAULT_HOST_PORTS.first}-{DEFAULT_HOST_PORTS.last}",
        description="Ports that the operator assigns to jobs in the host network, as FIRST-LAST.",
    )
    git_sync_image: str = Field(
        default="", description="Image of git-sync, for jobs with codeSync that do not name one. Without it, such jobs are blocked."
    )
    drain_seconds: float = Field(default=20.0, ge=0, description="Seconds that running passes may take to finish after SIGTERM.")
    watch_age_limit_seconds: float = Field(
        default=600.0,
        gt=0,
        description="Seconds after which /healthz fails if a watch is stuck. An API server that does not answer is no reason.",
    )
    event_loop_metrics: bool = Field(
        default=False, description="Measure the delays of the event loop. This wakes the operator 100 times per second."
    )

    def elects_leader(self, *, in_cluster: bool) -> bool:
        return in_cluster if self.leader_election is None else self.leader_election

    @field_validator("*", mode="before")
    @classmethod
    def _split(cls, value: Any, info: ValidationInfo) -> Any:
        """Split the values of lists. A flag that is repeated has several of them."""
        if info.field_name is None or not _is_list(cls.model_fields[info.field_name]):
            return value
        texts = [value] if isinstance(value, str) else value
        return tuple(part.strip() for text in texts for part in text.split(",") if part.strip())

    @field_validator("log_format", "log_level", mode="before")
    @classmethod
    def _lower(cls, value: Any) -> Any:
        return value.lower() if isinstance(value, str) else value

    @model_validator(mode="after")
    def _check_lease_times(self) -> Self:
        if self.lease_duration_seconds <= self.renew_deadline_seconds:
            raise ValueError("--lease-duration-seconds must be greater than --renew-deadline-seconds")
        if self.renew_deadline_seconds <= 1.2 * self.retry_period_seconds:
            raise ValueError("--renew-deadline-seconds must be greater than 1.2 times --retry-period-seconds")
        return self

    @field_validator("host_port_range")
    @classmethod
    def _check_host_port_range(cls, value: str) -> str:
        first, dash, last = value.partition("-")
        if not dash or not (first.isdecimal() and last.isdecimal() and 0 < int(first) <= int(last) < 65536):
            raise ValueError("must be two ports, like 36000-55999")
        return value

    @property
    def host_ports(self) -> HostPortRange:
        first, _, last = self.host_port_range.partition("-")
        return HostPortRange(int(first), int(last))

    @model_validator(mode="after")
    def _check_autoscaler(self) -> Self:
        if self.autoscaler and self.namespaces:
            raise ValueError("--autoscaler needs the pods of all namespaces to know what is free; remove --namespaces or --autoscaler")
        return self

    @classmethod
    def load(cls, flags: Mapping[str, Any], environ: Mapping[str, str]) -> Self:
        """Read the settings from flags (by field name, None if not set) and the environment.

        Raises:
            SettingsError: a value is invalid.
        """
        return cls.from_values(values_from_environment(environ, cls) | values_from_flags(flags, cls))

    @classmethod
    def from_values(cls, values: Mapping[str, SourcedValue]) -> Self:
        """Settings with these values by field name, and defaults for all others.

        Raises:
            SettingsError: a value is invalid.
        """
        try:
            return cls(**{field: sourced.value for field, sourced in values.items()})
        except ValidationError as error:
            raise SettingsError(_format_errors(error, {field: sourced.origin for field, sourced in values.items()})) from None


@dataclass(frozen=True, slots=True)
class SourcedValue:
    value: Any
    origin: str
    """The flag or variable that the value comes from, for error messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingInfo:
    """Documentation of one setting."""

    field: str
    flag: str
    variable: str
    default: str
    description: str
    is_list: bool
    is_switch: bool

    @property
    def flags(self) -> tuple[str, ...]:
        """All flags of the setting. A list also has a singular flag that can be repeated: `--framework a:B --framework c:D`."""
        return (self.flag, self.flag.removesuffix("s")) if self.is_list else (self.flag,)


def with_framework_flags(declared: Iterable[type[FrameworkFlags]]) -> type[Settings]:
    """The settings and the flags of these frameworks, with paths instead of contents for flags that are files.

    Frameworks must not declare a flag twice, nor one of the operator; see `Registry.add`.
    """
    fields: dict[str, Any] = {}
    for model in declared:
        for name, field in model.model_fields.items():
            path = (str, Field(default="", description=field.description))
            fields[name] = path if is_file_flag(field) else (field.annotation, field)
    return create_model("Settings", __base__=Settings, **fields)


def load_framework_flags(settings: Settings, declared: Iterable[type[FrameworkFlags]]) -> tuple[FrameworkFlags, ...]:
    """The values of the flags of these frameworks. Reads their files.

    Raises:
        SettingsError: a file cannot be read, or a value is invalid.
    """
    return tuple(_load_flags(settings, model) for model in declared)


def _load_flags(settings: Settings, model: type[FrameworkFlags]) -> FrameworkFlags:
    values = {name: getattr(settings, name) for name in model.model_fields}
    files = {name: path for name, path in values.items() if is_file_flag(model.model_fields[name])}
    contents = {name: _read_file(flag_name(name), path) for name, path in files.items() if path}
    try:
        return model(**{name: value for name, value in values.items() if name not in files}, **contents)
    except ValidationError as error:
        details = error.errors()[0]
        message, name = str(details["msg"]).removeprefix("Value error, "), next(iter(details["loc"]), None)
        # An error without a location concerns several flags.
        subject = f"{flag_name(name)}: {values[name]}" if isinstance(name, str) else ", ".join(model.flag_names())
        raise SettingsError(f"{subject} is invalid: {message}") from None


def _read_file(flag: str, path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError as error:
        raise SettingsError(f"{flag}: {path} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"{flag}: {path} is invalid: {error}") from error


def list_settings(model: type[Settings]) -> list[SettingInfo]:
    return [
        SettingInfo(
            field=name,
            flag=flag_name(name),
            variable=f"{PREFIX}{name.upper()}",
            default=_default(field),
            description=field.description or "",
            is_list=_is_list(field),
            is_switch=_is_switch(field),
        )
        for name, field in model.model_fields.items()
    ]


def values_from_flags(flags: Mapping[str, Any], model: type[Settings]) -> dict[str, SourcedValue]:
    """Values by field name. `flags` has field names as well, with None for flags that are not set."""
    return {
        setting.field: SourcedValue(flags[setting.field], setting.flag)
        for setting in list_settings(model)
        if flags.get(setting.field) is not None
    }


def values_from_environment(environ: Mapping[str, str], model: type[Settings]) -> dict[str, SourcedValue]:
    """Values by field name."""
    return {
        setting.field: SourcedValue(environ[setting.variable], setting.variable)
        for setting in list_settings(model)
        if setting.variable in environ
    }


def add_arguments(parser: argparse.ArgumentParser, model: type[Settings]) -> None:
    """Add a flag for every setting. Flags that are not set are None, so that environment variables apply."""
    for setting in list_settings(model):
        default = f"; default {setting.default}" if setting.default else ""
        text = f"{setting.description} [{setting.variable}{default}]".replace("%", "%%")
        parser.add_argument(
            *setting.flags, dest=setting.field, default=None, metavar=_metavar(setting), help=text, **_argument_options(setting)
        )


def _argument_options(setting: SettingInfo) -> dict[str, Any]:
    if setting.is_list:
        return {"action": "append"}
    return {"nargs": "?", "const": "true"} if setting.is_switch else {}


def _default(field: FieldInfo) -> str:
    value = field.default
    return str(value) if value not in (None, "", ()) else ""


def _is_list(field: FieldInfo) -> bool:
    return bool(field.default == ())


def _is_switch(field: FieldInfo) -> bool:
    annotations = get_args(field.annotation) if isinstance(field.annotation, types.UnionType) else (field.annotation,)
    return bool in annotations


def _metavar(setting: SettingInfo) -> str:
    if setting.is_switch:
        return "true|false"
    return "SECONDS" if setting.field.endswith("_seconds") else "VALUE"


def _format_errors(error: ValidationError, origins: Mapping[str, str]) -> str:
    return "; ".join(_format_error(details, origins) for details in error.errors())


def _format_error(details: Any, origins: Mapping[str, str]) -> str:
    message = str(details["msg"]).removeprefix("Value error, ")
    if not details["loc"]:
        return message
    field = str(details["loc"][0])
    requirement = _REQUIREMENTS.get(details["type"]) or message.replace("Input should be ", "must be ")
    if details["type"] == "float_parsing" and field.endswith("_seconds"):
        requirement = f"{requirement}, in seconds"
    return f"{origins.get(field, field)}: invalid value {details['input']!r}: {requirement}"
