"""An Ingress for each web service of a MarsJob with `webHost`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlop import Create, Progress
from dlop.policies import INGRESS_PERMISSIONS, INGRESSES, ChildObjects, ingress_body

if TYPE_CHECKING:
    from dlop.frameworks.kubedl.marsjob import MarsJob

_REWRITE = {"nginx.ingress.kubernetes.io/rewrite-target": "/$1"}


def web_path(namespace: str, service: str) -> str:
    """The path of a web service on the host."""
    return f"/mars/{namespace}/{service}"


class WebIngress(ChildObjects["MarsJob"]):
    """Two paths lead to a web service: the one of the service, and everything below it."""

    resources = (INGRESSES,)
    on_demand = True
    permission_set = INGRESS_PERMISSIONS

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
    metadata = {**job.child_metadata(name), "annotations": dict(_REWRITE)}
    paths = [f"{path}/(.*)", path]
    return Create(INGRESSES, ingress_body(metadata, host=host, paths=paths, service=name, port=port))
