"""What a framework says of itself, as values: its resource, its roles, its container.

`DLJob` subclasses carry these as class attributes. `check_declaration` looks at them when the class is made, so that a
slip shows up as a sentence at import and not as a job that hangs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dlop.api.spec import RestartPolicy
from dlop.kube.resources import Resource
from dlop.kube.types import JsonObject

_DNS_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_VERSION = re.compile(r"v[1-9][0-9]*((alpha|beta)[1-9][0-9]*)?")
_KIND = re.compile(r"[A-Z][A-Za-z0-9]*")
_ROLE = re.compile(r"[A-Za-z][A-Za-z0-9]*")
_PORT_NAME = re.compile(r"(?=.*[a-z])[a-z0-9]+(-[a-z0-9]+)*")

KUBECTL_DELIVERY_IMAGE = "ghcr.io/kubeflow/training-v1/kubectl-delivery:latest"
"""The one that Kubeflow publishes."""


class DeclarationError(TypeError):
    """A framework class leaves something out, or says it wrongly. The message says what to write."""


@dataclass(frozen=True, slots=True)
class JobType:
    """The custom resource of a framework."""

    group: str
    version: str
    kind: str
    plural: str = ""
    """As in paths; by default the kind in lower case with an `s`."""
    singular: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _demand(_DNS_NAME.fullmatch(self.group) and "." in self.group, f"JobType group {self.group!r}", "a domain, like 'example.org'")
        _demand(_VERSION.fullmatch(self.version), f"JobType version {self.version!r}", "like 'v1' or 'v1alpha1'")
        _demand(_KIND.fullmatch(self.kind), f"JobType kind {self.kind!r}", "in camel case, like 'RingJob'")
        object.__setattr__(self, "plural", self.plural or f"{self.kind.lower()}s")
        object.__setattr__(self, "singular", self.singular or self.kind.lower())

    @property
    def resource(self) -> Resource:
        """Where its objects live in the API."""
        return Resource(self.group, self.version, self.plural, self.kind)

    @property
    def api_version(self) -> str:
        """`group/version`, as manifests say it."""
        return f"{self.group}/{self.version}"

    def __str__(self) -> str:
        return f"{self.api_version} {self.kind}"


@dataclass(frozen=True, slots=True)
class ReplicaType:
    """One role that the replicas of a job can have."""

    name: str
    default_replicas: int = field(default=1, kw_only=True)
    minimum: int = field(default=0, kw_only=True)
    maximum: int | None = field(default=None, kw_only=True)
    restart_policy: RestartPolicy = field(default=RestartPolicy.ON_FAILURE, kw_only=True)
    """Where the manifest does not give one."""
    decides: bool = field(default=True, kw_only=True)
    """Whether the job is not done before this role is."""
    required: bool = field(default=False, kw_only=True)
    """Whether every job must have this role."""

    def __post_init__(self) -> None:
        _demand(_ROLE.fullmatch(self.name), f"ReplicaType name {self.name!r}", "letters and digits, like 'Worker'")
        most = self.default_replicas if self.maximum is None else self.maximum
        _demand(
            0 <= self.minimum <= self.default_replicas <= most,
            f"ReplicaType {self.name!r} with minimum={self.minimum}, default_replicas={self.default_replicas}, maximum={self.maximum}",
            "0 <= minimum <= default_replicas <= maximum",
        )


@dataclass(frozen=True, slots=True)
class ContainerProperties:
    """The container that takes part in the job: the one that gets the environment, the port, and whose exit code counts."""

    name: str
    """Empty: the first container, whatever its name."""
    port: int | None = None
    """What it listens on, where the manifest says nothing; None: nothing."""
    port_name: str = "dlop-port"
    required: bool = field(default=False, kw_only=True)
    """Whether a template without a container of this name is refused. Else a single container stands in for it."""

    def __post_init__(self) -> None:
        named_well = not self.name or (_DNS_NAME.fullmatch(self.name) and "." not in self.name)
        _demand(named_well, f"ContainerProperties name {self.name!r}", "a DNS label, like 'main', or empty for the first container")
        _demand(self.port is None or 0 < self.port < 65536, f"ContainerProperties port {self.port!r}", "a number from 1 to 65535")
        port_named_well = len(self.port_name) <= 15 and _PORT_NAME.fullmatch(self.port_name)
        _demand(port_named_well, f"ContainerProperties port_name {self.port_name!r}", "at most 15 lower-case letters, digits and dashes")


@dataclass(frozen=True, slots=True)
class PermissionSet:
    """RBAC rules that the operator has only where it is given them by name: `dlop deploy --with NAME`."""

    name: str
    rules: tuple[JsonObject, ...]
    cluster_rules: tuple[JsonObject, ...] = ()
    """Those for what is in no namespace. An operator of single namespaces, which has Roles only, does without."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    """What containers that ask for a device get besides it, on clusters where the device plug-in does not see to it."""

    volumes: tuple[JsonObject, ...] = ()
    volume_mounts: tuple[JsonObject, ...] = ()
    env: tuple[JsonObject, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the operator was told at its start and its jobs need to know."""

    accelerators: Mapping[str, Accelerator] = field(default_factory=dict)
    """By resource name, for example `nvidia.com/gpu`."""
    cluster_domain: str = ""
    """Such as `cluster.local`; empty leaves host names to the search path of the pods."""
    node_lost_seconds: int | None = 60
    """How long after its grace period a pod may be on its way out before it is removed by force; None: for ever."""
    kubectl_delivery_image: str = KUBECTL_DELIVERY_IMAGE
    """What brings kubectl to the launchers of MPI jobs."""
    gang_scheduler_name: str = ""
    """Which scheduler places all pods of a job together; empty: each pod is placed by itself."""
    pytorch_init_container_image: str = ""
    """What waits in the workers of a PyTorchJob until the name of its master is known; empty: nothing needs to."""
    pytorch_init_container_max_tries: int = 100
    """How often it tries, every two seconds."""
    pytorch_init_container_template: str = ""
    """YAML of other init containers in its place, with `{{.MasterAddr}}`, `{{.InitContainerImage}}` and `{{.MaxTries}}`."""


def check_declaration(kind: type[Any]) -> None:
    """Raise DeclarationError unless a framework class declares what it must."""
    name = kind.__name__
    _check_attribute(kind, "job_type", JobType, 'JobType(group="example.org", version="v1", kind="RingJob")')
    _check_attribute(kind, "container_properties", ContainerProperties, 'ContainerProperties(name="main", port=7000)')
    roles = getattr(kind, "replica_types", None)
    if not isinstance(roles, tuple) or not roles or not all(isinstance(role, ReplicaType) for role in roles):
        raise DeclarationError(f'{name} must say which roles its replicas have: replica_types = (ReplicaType("Worker"),)')
    spellings = [role.name.lower() for role in roles]
    twice = next((role.name for role in roles if spellings.count(role.name.lower()) > 1), None)
    _demand(twice is None, f"{name}.replica_types, which has {twice!r} twice,", "one ReplicaType for each role")
    if getattr(kind.get_environment_variables, "__isabstractmethod__", False):
        raise DeclarationError(
            f"{name} must tell each replica how to find the others: "
            "def get_environment_variables(self, replica: Replica) -> Mapping[str, str]: return {...}"
        )


def _check_attribute(kind: type[Any], attribute: str, expected: type[Any], example: str) -> None:
    if not isinstance(getattr(kind, attribute, None), expected):
        raise DeclarationError(f"{kind.__name__} must have a class attribute of type {expected.__name__}: {attribute} = {example}")


def _demand(holds: Any, subject: str, expected: str) -> None:
    if not holds:
        raise DeclarationError(f"{subject} must be {expected}.")
