"""An Ingress for each web service of a MarsJob with `webHost`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlop import Create, JsonObject, PermissionSet, Progress, Resource
from dlop.policies import ChildObjects

if TYPE_CHECKING:
    from dlop.frameworks.kubedl.marsjob import MarsJob

INGRESSES = Resource("networking.k8s.io", "v1", "ingresses", "Ingress")
_RULE: JsonObject = {
    "apiGroups": [INGRESSES.group],
    "resources": [INGRESSES.plural],
    "verbs": ["get", "list", "watch", "create", "patch", "delete"],
}
_REWRITE = {"nginx.ingress.kubernetes.io/rewrite-target": "/$1"}


def web_path(namespace: str, service: str) -> str:
    """The path of a web service on the host."""
    return f"/mars/{namespace}/{service}"


class WebIngress(ChildObjects["MarsJob"]):
    """Two paths lead to a web service: the one of the service, and everything below it."""

    resources = (INGRESSES,)
    on_demand = True
    permission_set = PermissionSet("ingress", (_RULE,))

    def build(self, job: MarsJob) -> tuple[Create, ...]:
        host, role = job.spec_field.get("webHost").string(), job.spec.role("WebService")
        if not host or role is None:
            return ()
        names = ((index, job.naming.pod_name(job, role, index)) for index in range(role.replicas))
        return tuple(_ingress(job, name, host=host, port=job.port(role.name, index)) for index, name in names)

    def update(self, job: MarsJob, progress: Progress) -> tuple[Create, ...]:
        """The host of a running job can change."""
        return self.build(job)


def _ingress(job: MarsJob, name: str, *, host: str, port: int | None) -> Create:
    path = web_path(job.metadata.namespace, name)
    backend = {"service": {"name": name, "port": {"number": port}}}
    paths = [{"path": each, "pathType": "ImplementationSpecific", "backend": backend} for each in (f"{path}/(.*)", path)]
    metadata = {**job.child_metadata(name), "annotations": dict(_REWRITE)}
    body = {
        "apiVersion": INGRESSES.api_version,
        "kind": INGRESSES.kind,
        "metadata": metadata,
        "spec": {"rules": [{"host": host, "http": {"paths": paths}}]},
    }
    return Create(INGRESSES, body)
