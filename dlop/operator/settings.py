"""How the operator is to run: read once, from flags and the environment, and never changed.

A flag goes before its variable, a variable before the default. `table` lists them all, for `--help` and the documentation.
"""

from __future__ import annotations

import argparse
import types
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic.fields import FieldInfo

PREFIX = "DLOP_"
NO_ADDRESS = "off"
_EXPECTED = {
    "int_parsing": "write a whole number",
    "float_parsing": "write a number",
    "bool_parsing": "write true or false",
}
"""What to write instead, by pydantic's names for what is wrong; its own words will do for the others."""


class SettingsError(Exception):
    """A flag or variable makes no sense. The message names it and says what to write."""


class LogFormat(StrEnum):
    """How log lines look."""

    AUTO = "auto"
    """For people at a terminal, else for machines."""
    JSON = "json"
    CONSOLE = "console"


class LogLevel(StrEnum):
    """What is worth a line."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class Settings(BaseModel):
    """Everything that can be set. Lists are separated by commas."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kubeconfig: str = Field(
        default="", description="the kubeconfig file; by default KUBECONFIG, the pod's service account or ~/.kube/config"
    )
    context: str = Field(default="", description="the context of the kubeconfig; by default its current one")
    namespaces: tuple[str, ...] = Field(default=(), description="the namespaces to look after; by default all")
    kinds: tuple[str, ...] = Field(
        default=(), description="the kinds to look after, as MXJob or mxjobs.example.org; by default all installed ones"
    )
    frameworks: tuple[str, ...] = Field(
        default=(), description="further frameworks, as module:Class; installed ones are found by themselves"
    )
    workers: int = Field(default=128, ge=1, description="how many jobs are worked on at once")
    writes_in_flight: int = Field(default=64, ge=2, description="how many writes the API server gets at once")
    reads_in_flight: int = Field(default=16, ge=1, description="how many reads the API server gets at once")
    kube_api_qps: float = Field(
        default=0.0, description="how many requests a second the API server gets; 0: as many as it takes, which is faster"
    )
    kube_api_burst: int = Field(
        default=0,
        ge=0,
        description="how many it gets at once after a rest, where --kube-api-qps limits them; by default one and a half seconds' worth",
    )
    leader_election: bool | None = Field(default=None, description="whether only the holder of a lease works; by default in a cluster")
    lease_name: str = Field(default="dlop", min_length=1, description="the name of the lease")
    lease_namespace: str = Field(default="", description="the namespace of the lease; by default that of the pod or the context")
    lease_duration_seconds: int = Field(default=15, ge=1, description="how long others wait for a leader that is silent")
    renew_deadline_seconds: float = Field(default=10.0, gt=0, description="how long a leader goes on without renewing the lease")
    retry_period_seconds: float = Field(default=2.0, gt=0, description="how often the lease is renewed")
    bind_address: str = Field(
        default="",
        description=f"where /healthz, /readyz and /metrics are, or {NO_ADDRESS}; default: port 8080, outside a cluster on loopback",
    )
    metrics_bind_address: str = Field(
        default="", description=f"a port of its own for /metrics, or {NO_ADDRESS}; the probes then have one as well, by default 8081"
    )
    health_probe_bind_address: str = Field(
        default="",
        description=f"a port of its own for /healthz and /readyz, or {NO_ADDRESS}; /metrics then has one as well, by default 8080",
    )
    log_format: LogFormat = Field(default=LogFormat.AUTO, description="auto, json or console")
    log_level: LogLevel = Field(default=LogLevel.INFO, description="debug, info, warning or error")
    node_lost_seconds: int = Field(
        default=60, ge=0, description="how long after its time a pod that does not end counts as lost with its node"
    )
    controller_config_file: str = Field(default="", description="a YAML file with the accelerators of the cluster")
    cluster_domain: str = Field(default="", description="the DNS domain of the cluster; empty leaves it to the search path of the pods")
    gang_scheduler_name: str = Field(
        default="",
        description="the scheduler that places all pods of a job together: volcano, or one of the scheduler-plugins family; default: none",
    )
    mpi_kubectl_delivery_image: str = Field(
        default="", description="the image that brings kubectl to the launchers of MPI jobs; by default the one that Kubeflow publishes"
    )
    pytorch_init_container_image: str = Field(
        default="",
        description="an image with nslookup for an init container that waits for a PyTorchJob's master; empty: none, none is needed",
    )
    pytorch_init_container_max_tries: int = Field(default=100, ge=1, description="how often that init container tries, every two seconds")
    pytorch_init_container_template_file: str = Field(
        default="",
        description="a YAML file of other init containers instead, with {{.MasterAddr}}, {{.InitContainerImage}} and {{.MaxTries}} in it",
    )
    drain_seconds: float = Field(default=20.0, ge=0, description="how long work under way may take to end after SIGTERM")
    watch_age_limit_seconds: float = Field(
        default=600.0, gt=0, description="how long without a sign from the API server until /healthz says no"
    )

    def elects_leader(self, *, in_cluster: bool) -> bool:
        """Whether only the holder of a lease works: as it was told, and else where there may be several operators."""
        return in_cluster if self.leader_election is None else self.leader_election

    @field_validator("namespaces", "kinds", "frameworks", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        texts = [value] if isinstance(value, str) else value
        return tuple(part.strip() for text in texts for part in text.split(",") if part.strip())

    @field_validator("log_format", "log_level", mode="before")
    @classmethod
    def _lower(cls, value: Any) -> Any:
        return value.lower() if isinstance(value, str) else value

    @model_validator(mode="after")
    def _times_fit(self) -> Self:
        if self.lease_duration_seconds <= self.renew_deadline_seconds:
            raise ValueError("--lease-duration-seconds must be more than --renew-deadline-seconds")
        if self.renew_deadline_seconds <= 1.2 * self.retry_period_seconds:
            raise ValueError("--renew-deadline-seconds must be more than 1.2 times --retry-period-seconds")
        return self

    @classmethod
    def read(cls, flags: Mapping[str, Any], environ: Mapping[str, str]) -> Self:
        """The settings that flags (by field name, None where not given) and the environment make.

        Raises:
            SettingsError: one of them makes no sense.
        """
        return cls.of(given_by_variables(environ) | given_by_flags(flags))

    @classmethod
    def of(cls, given: Mapping[str, SourcedValue]) -> Self:
        """The settings that are given by field name, and the defaults of all others.

        Raises:
            SettingsError: one of them makes no sense.
        """
        try:
            return cls(**{field: each.value for field, each in given.items()})
        except ValidationError as error:
            raise SettingsError(_explained(error, {field: each.origin for field, each in given.items()})) from None


@dataclass(frozen=True, slots=True)
class SourcedValue:
    """What somebody has set."""

    value: Any
    origin: str
    """The flag or variable, as it is told to them."""


@dataclass(frozen=True, slots=True)
class SettingRow:
    """One setting, for people to read."""

    field: str
    flag: str
    variable: str
    default: str
    meaning: str


def table() -> list[SettingRow]:
    """All settings."""
    return [
        SettingRow(name, f"--{name.replace('_', '-')}", f"{PREFIX}{name.upper()}", _default(field), field.description or "")
        for name, field in Settings.model_fields.items()
    ]


def given_by_flags(flags: Mapping[str, Any]) -> dict[str, SourcedValue]:
    """What flags set, by field name. They are looked up by field name too, and are None where not given."""
    return {row.field: SourcedValue(flags[row.field], row.flag) for row in table() if flags.get(row.field) is not None}


def given_by_variables(environ: Mapping[str, str]) -> dict[str, SourcedValue]:
    """What the environment sets, by field name."""
    return {row.field: SourcedValue(environ[row.variable], row.variable) for row in table() if row.variable in environ}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """A flag for every setting. What is not given is None, so that the environment has its say."""
    for row in table():
        default = f"; default {row.default}" if row.default else ""
        meaning = f"{row.meaning} [{row.variable}{default}]".replace("%", "%%")
        parser.add_argument(*flags_of(row), dest=row.field, default=None, metavar=_metavar(row.field), help=meaning, **_manner(row.field))


def flags_of(row: SettingRow) -> tuple[str, ...]:
    """How a setting is given. A list may also be given one by one: `--framework a:B --framework c:D`."""
    return (row.flag, row.flag.removesuffix("s")) if _is_list(row.field) else (row.flag,)


def _manner(field: str) -> dict[str, Any]:
    if _is_list(field):
        return {"action": "append"}
    return {"nargs": "?", "const": "true"} if _is_switch(Settings.model_fields[field]) else {}


def _is_list(field: str) -> bool:
    return bool(Settings.model_fields[field].default == ())


def _default(field: FieldInfo) -> str:
    value = field.default
    return str(value) if value not in (None, "", ()) else ""


def _is_switch(field: FieldInfo) -> bool:
    kinds = get_args(field.annotation) if isinstance(field.annotation, types.UnionType) else (field.annotation,)
    return bool in kinds


def _metavar(field: str) -> str:
    if _is_switch(Settings.model_fields[field]):
        return "true|false"
    return "SECONDS" if field.endswith("_seconds") else "VALUE"


def _explained(error: ValidationError, origins: Mapping[str, str]) -> str:
    return "; ".join(_sentence(problem, origins) for problem in error.errors())


def _sentence(problem: Any, origins: Mapping[str, str]) -> str:
    said = str(problem["msg"]).removeprefix("Value error, ")
    if not problem["loc"]:
        return said
    field = str(problem["loc"][0])
    expected = _EXPECTED.get(problem["type"]) or said.replace("Input should be ", "write ")
    if problem["type"] == "float_parsing" and field.endswith("_seconds"):
        expected = f"{expected}, in seconds"
    return f"{origins.get(field, field)} is {problem['input']!r}; {expected}"
