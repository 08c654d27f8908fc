"""The declaration of a framework: its custom resource, its roles and its container.

`DLJob` subclasses have these as class attributes. `check_declaration` validates them when the class is defined, so that a
mistake fails at import with a helpful message instead of blocking jobs later.
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
"""The image that Kubeflow publishes."""


class DeclarationError(TypeError):
    """A framework class is declared incompletely or incorrectly. The message says what to write."""


@dataclass(frozen=True, slots=True)
class JobType:
    """The custom resource of a framework. Plural and singular default to forms of the kind."""

    group: str
    version: str
    kind: str
    plural: str = ""
    """The plural in API paths; defaults to the lower-case kind plus `s`."""
    singular: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _require(_DNS_NAME.fullmatch(self.group) and "." in self.group, f"JobType group {self.group!r}", "a domain, like 'example.org'")
        _require(_VERSION.fullmatch(self.version), f"JobType version {self.version!r}", "like 'v1' or 'v1alpha1'")
        _require(_KIND.fullmatch(self.kind), f"JobType kind {self.kind!r}", "in CamelCase, like 'RingJob'")
        object.__setattr__(self, "plural", self.plural or f"{self.kind.lower()}s")
        object.__setattr__(self, "singular", self.singular or self.kind.lower())

    @property
    def resource(self) -> Resource:
        """The API resource of the objects."""
        return Resource(self.group, self.version, self.plural, self.kind)

    @property
    def api_version(self) -> str:
        """`group/version`, as in manifests."""
        return f"{self.group}/{self.version}"

    def __str__(self) -> str:
        return f"{self.api_version} {self.kind}"


@dataclass(frozen=True, slots=True)
class ReplicaType:
    """One role of a framework, such as Worker."""

    name: str
    default_replicas: int = field(default=1, kw_only=True)
    minimum: int = field(default=0, kw_only=True)
    maximum: int | None = field(default=None, kw_only=True)
    restart_policy: RestartPolicy = field(default=RestartPolicy.ON_FAILURE, kw_only=True)
    """The default if the manifest does not set one."""
    required_for_success: bool = field(default=True, kw_only=True)
    """Whether this role must succeed for the job to succeed."""
    required: bool = field(default=False, kw_only=True)
    """Whether a job without this role is invalid."""

    def __post_init__(self) -> None:
        _require(_ROLE.fullmatch(self.name), f"ReplicaType name {self.name!r}", "made of letters and digits, like 'Worker'")
        maximum = self.default_replicas if self.maximum is None else self.maximum
        _require(
            0 <= self.minimum <= self.default_replicas <= maximum,
            f"ReplicaType {self.name!r} with minimum={self.minimum}, default_replicas={self.default_replicas}, maximum={self.maximum}",
            "0 <= minimum <= default_replicas <= maximum",
        )


@dataclass(frozen=True, slots=True)
class ContainerProperties:
    """The training container: it gets the environment and the port, and its exit code is the result of the replica."""

    name: str
    """Empty selects the first container."""
    port: int | None = None
    """The default port; None means that the container does not listen."""
    port_name: str = "dlop-port"
    required: bool = field(default=False, kw_only=True)
    """Whether a template must have a container of this name. Otherwise a single container of any name is used."""

    def __post_init__(self) -> None:
        is_valid_name = not self.name or (_DNS_NAME.fullmatch(self.name) and "." not in self.name)
        _require(is_valid_name, f"ContainerProperties name {self.name!r}", "a DNS label, like 'main', or empty for the first container")
        _require(self.port is None or 0 < self.port < 65536, f"ContainerProperties port {self.port!r}", "a number from 1 to 65535")
        is_valid_port_name = len(self.port_name) <= 15 and _PORT_NAME.fullmatch(self.port_name)
        _require(
            is_valid_port_name, f"ContainerProperties port_name {self.port_name!r}", "at most 15 lower-case letters, digits and dashes"
        )


@dataclass(frozen=True, slots=True)
class PermissionSet:
    """Optional RBAC rules, granted with `dlop deploy --with NAME`."""

    name: str
    rules: tuple[JsonObject, ...]
    cluster_rules: tuple[JsonObject, ...] = ()
    """Rules for cluster-scoped resources. A namespaced operator, which has only Roles, runs without them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    """Volumes and variables for containers that request a device, on clusters whose device plugin does not add them."""

    volumes: tuple[JsonObject, ...] = ()
    volume_mounts: tuple[JsonObject, ...] = ()
    env: tuple[JsonObject, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Operator settings that affect how jobs are rendered and reconciled."""

    accelerators: Mapping[str, Accelerator] = field(default_factory=dict)
    """By resource name, for example `nvidia.com/gpu`."""
    cluster_domain: str = ""
    """For example `cluster.local`. If it is empty, host names are resolved with the search path of the pods."""
    node_lost_seconds: int | None = 60
    """Time after the grace period until a terminating pod is force-deleted; None disables force deletion."""
    kubectl_delivery_image: str = KUBECTL_DELIVERY_IMAGE
    """The image that delivers kubectl to the launchers of MPI jobs."""
    gang_scheduler_name: str = ""
    """The gang scheduler; empty disables gang scheduling."""
    pytorch_init_container_image: str = ""
    """Image of the init container of PyTorchJob workers that waits until the master's name resolves; empty disables it."""
    pytorch_init_container_max_tries: int = 100
    """Number of attempts of the init container, two seconds apart."""
    pytorch_init_container_template: str = ""
    """YAML that replaces the init containers, with `{{.MasterAddr}}`, `{{.InitContainerImage}}` and `{{.MaxTries}}`."""


def check_declaration(kind: type[Any]) -> None:
    """Raise DeclarationError unless a framework class declares all required attributes."""
    name = kind.__name__
    _check_attribute(kind, "job_type", JobType, 'JobType(group="example.org", version="v1", kind="RingJob")')
    _check_attribute(kind, "container_properties", ContainerProperties, 'ContainerProperties(name="main", port=7000)')
    roles = getattr(kind, "replica_types", None)
    if not isinstance(roles, tuple) or not roles or not all(isinstance(role, ReplicaType) for role in roles):
        raise DeclarationError(f'{name} must declare its roles: replica_types = (ReplicaType("Worker"),)')
    names = [role.name.lower() for role in roles]
    duplicate = next((role.name for role in roles if names.count(role.name.lower()) > 1), None)
    if duplicate is not None:
        raise DeclarationError(f"{name}.replica_types must not contain {duplicate!r} twice.")
    if getattr(kind.get_environment_variables, "__isabstractmethod__", False):
        raise DeclarationError(
            f"{name} must implement get_environment_variables: "
            "def get_environment_variables(self, replica: Replica) -> Mapping[str, str]: return {...}"
        )


def _check_attribute(kind: type[Any], attribute: str, expected: type[Any], example: str) -> None:
    if not isinstance(getattr(kind, attribute, None), expected):
        raise DeclarationError(f"{kind.__name__} must have a class attribute of type {expected.__name__}: {attribute} = {example}")


def _require(condition: Any, subject: str, expected: str) -> None:
    if not condition:
        raise DeclarationError(f"{subject} must be {expected}.")
