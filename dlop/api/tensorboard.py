"""The TensorBoard of a job: what a manifest asks for, and the names by which its objects are recognized.

There are two spellings: `runPolicy.tensorBoard`, and the annotation of KubeDL. Without a time to live, the annotation means that the
TensorBoard is deleted with the end of the job, as for KubeDL; the default of the field is one hour.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from dlop.api.fields import ManifestField
from dlop.api.names import dns_label
from dlop.kube.objects import ObjectMeta
from dlop.kube.timestamps import parse_time

TENSORBOARD_ANNOTATION = "kubedl.io/tensorboard-config"
"""On jobs: the configuration of a TensorBoard, as JSON. KubeDL copies it to the pod and the Ingress."""
COMPANION_LABEL = "dlop.dev/companion"
"""On pods and other objects that serve a job and are not part of it."""
TENSORBOARD = "tensorboard"
"""The value of the label, and the name of the container, of the port and of the role in KubeDL's labels."""
TENSORBOARD_PORT = 6006
REPLICA_TYPE_LABEL = "replica-type"
REPLICA_NAME_LABEL = "replica-name"
"""The labels of KubeDL. Only TensorBoards have the name of their pod as a label."""

DEFAULT_TTL_SECONDS = 3600
_HOST = re.compile(r"(\*\.)?[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
MAX_HOST_LENGTH = 253
PATH_PREFIX_PATTERN = r"^/[-A-Za-z0-9._~/]*$"
_PATH_PREFIX = re.compile(PATH_PREFIX_PATTERN)


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorBoardIngress:
    """The Ingress of a TensorBoard."""

    host: str
    annotations: Mapping[str, str] = field(default_factory=dict)
    class_name: str = ""
    """Empty leaves the class to the cluster, or to the annotations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorBoard:
    """A TensorBoard that shows the log directory of a job."""

    log_dir: str
    image: str = ""
    """Empty means the image of the job."""
    ttl_seconds: int = DEFAULT_TTL_SECONDS
    """Time after the end of the job, or after `updated_at` if that is later, until it is deleted."""
    updated_at: float | None = None
    """In seconds since the epoch."""
    path_prefix: str = "/"
    """The first part of its path; namespace and name of the job follow."""
    ingress: TensorBoardIngress | None = None

    def path(self, namespace: str, job_name: str) -> str:
        """The path of its pages, without a slash at the end."""
        return posixpath.join(self.path_prefix, namespace, job_name)

    def expires_at(self, finished_at: float) -> float:
        """When the TensorBoard of a finished job is deleted, in seconds since the epoch."""
        return max(finished_at, self.updated_at or 0.0) + self.ttl_seconds


def tensorboard_name(job_name: str) -> str:
    """The name of the pod, the service and the Ingress of the TensorBoard of a job."""
    return dns_label(job_name, "-tensorboard-0")


def is_tensorboard(metadata: ObjectMeta) -> bool:
    """Whether a pod or service belongs to a TensorBoard, which dlop or KubeDL has created."""
    labels = metadata.labels
    if labels.get(COMPANION_LABEL) == TENSORBOARD:
        return True
    return labels.get(REPLICA_TYPE_LABEL) == TENSORBOARD and labels.get(REPLICA_NAME_LABEL) == metadata.name


def read_tensorboard(field: ManifestField) -> TensorBoard | None:
    """Reads `runPolicy.tensorBoard`; None if it is absent or unusable."""
    if field.is_absent:
        return None
    field.object()
    ingress, path = field.get("ingress"), field.get("ingress").get("pathPrefix")
    ingress.object()
    if path.string() and not path.string().startswith("/"):
        path.error(f"must start with a slash: write {'/' + path.string()!r:.60}")
    if not ingress.is_absent and ingress.get("host").is_absent:
        ingress.get("host").error("is missing; add the host name of the Ingress, or remove ingress")
    return _tensorboard(
        field,
        ttl_seconds=DEFAULT_TTL_SECONDS,
        ingress=ingress,
        class_name=ingress.get("className").string(),
    )


def read_tensorboard_config(field: ManifestField) -> TensorBoard | None:
    """Reads the decoded annotation of KubeDL; None if it is unusable. An Ingress without a host is none, as for KubeDL."""
    field.object()
    ingress, updated = field.get("ingressSpec"), field.get("updateTimestamp")
    ingress.object()
    updated_at = parse_time(updated.string() or None)
    if updated.string() and updated_at is None:
        updated.error(f"must be a time such as 2024-01-31T12:00:00Z, got {updated.string()!r:.60}")
    class_name = "" if "kubernetes.io/ingress.class" in ingress.get("annotations").object() else "nginx"
    return _tensorboard(field, ttl_seconds=0, ingress=ingress, class_name=class_name, updated_at=updated_at)


def _tensorboard(
    field: ManifestField, *, ttl_seconds: int, ingress: ManifestField, class_name: str, updated_at: float | None = None
) -> TensorBoard | None:
    log_dir = field.get("logDir")
    if not log_dir.string() and (log_dir.is_absent or isinstance(log_dir.value, str)):
        log_dir.error("is missing; add the directory or URL in which the job writes its event files")
    tensorboard = TensorBoard(
        log_dir=log_dir.string(),
        image=field.get("image").string(),
        ttl_seconds=field.get("ttlSecondsAfterJobFinished").integer(ttl_seconds),
        updated_at=updated_at,
        path_prefix=_path_prefix(ingress.get("pathPrefix")),
        ingress=_ingress(ingress, class_name=class_name),
    )
    return tensorboard if tensorboard.log_dir else None


def _path_prefix(field: ManifestField) -> str:
    """Starts with a slash and does not end with one, except for the root."""
    path = posixpath.join("/", field.string())
    if not _PATH_PREFIX.match(path) or ".." in path.split("/"):
        field.error(f"must consist of letters, digits and -._~/ without '..', got {field.value!r:.60}")
        return "/"
    return "/" + posixpath.normpath(path).strip("/")


def _ingress(field: ManifestField, *, class_name: str) -> TensorBoardIngress | None:
    host, annotations = field.get("host"), field.get("annotations")
    annotations.object()
    for _, value in annotations.entries():
        value.string()
    if not host.string():
        return None
    if len(host.string()) > MAX_HOST_LENGTH or not _HOST.fullmatch(host.string()):
        host.error(f"must be a host name in lower case, such as boards.example.org, got {host.value!r:.60}")
        return None
    return TensorBoardIngress(
        host=host.string(),
        annotations={name: value for name, value in annotations.object().items() if isinstance(value, str)},
        class_name=class_name,
    )
