"""Creates jobs on a server as KubeDL leaves them, and an installation of KubeDL."""

from __future__ import annotations

from pathlib import Path

import yaml

from dlop.deploy.apply import DEPLOYMENTS, apply
from dlop.frameworks.kubedl.base import KubeDLJob
from dlop.kube.client import Client, PatchType
from dlop.kube.resources import CONFIG_MAPS, PODS, SERVICES, Resource
from dlop.kube.types import JsonObject
from dlop.testing.kubelet import ScriptedKubelet
from dlop.testing.pod_steps import Step
from tests.frameworks.golden_pod_steps import FinishPod, RunPod
from tests.frameworks.kubedl_manifests import KINDS
from tests.frameworks.kubedl_objects import KubeDLState
from tests.frameworks.kubeflow_installation import kubeflow_crd
from tests.frameworks.takeover_jobs import InheritedJob

NAMESPACE, NAME = "kubedl-system", "kubedl"
_BY_NAME: dict[str, type[KubeDLJob]] = {kind.job_type.kind: kind for kind in KINDS}
_STEPS: dict[str, Step] = {"Running": RunPod(), "Succeeded": FinishPod(0), "Failed": FinishPod(1)}
_LABELS = {"app": NAME}


async def create_inherited_job(
    client: Client, kubelet: ScriptedKubelet, state: KubeDLState, *, name: str, namespace: str, manifest: JsonObject | None = None
) -> InheritedJob:
    """Create a job on the server with all its objects and its status."""
    resource = _BY_NAME[state.kind.name].job_type.resource
    job = await client.create(resource, manifest or state.manifest(name), namespace=namespace)
    owner = {"apiVersion": job["apiVersion"], "kind": job["kind"], "name": name, "uid": job["metadata"]["uid"]}
    owner |= {"controller": True, "blockOwnerDeletion": True}
    objects = ((CONFIG_MAPS, state.config_maps(name)), (SERVICES, state.services(name)), (PODS, state.pods(name, namespace)))
    uids = {owned: await _create_all(client, owned, bodies, owner=owner, namespace=namespace) for owned, bodies in objects}
    for pod, phase in state.phases(name).items():
        if phase in _STEPS:
            await kubelet.perform(f"{namespace}/{pod}", _STEPS[phase])
    patch = {"status": state.status(name)}
    stored = await client.patch(resource, name, patch, namespace=namespace, patch_type=PatchType.MERGE, subresource="status")
    return InheritedJob(name, state.title, resource, stored["status"], uids[PODS])


async def _create_all(
    client: Client, resource: Resource, bodies: dict[str, JsonObject], *, owner: JsonObject, namespace: str
) -> dict[str, str]:
    """Returns the uids by name."""
    uids: dict[str, str] = {}
    for name, body in bodies.items():
        metadata = {**body["metadata"], "name": name, "namespace": namespace, "ownerReferences": [owner]}
        manifest = {"apiVersion": resource.api_version, "kind": resource.kind, **body, "metadata": metadata}
        uids[name] = (await client.create(resource, manifest, namespace=namespace))["metadata"]["uid"]
    return uids


# --- the installation ---------------------------------------------------------------------------------------------------


def kubedl_crds() -> list[JsonObject]:
    """CRDs that require the counts of the roles, and prune status fields that KubeDL does not write."""
    crds = [kubeflow_crd(kind) for kind in KINDS]
    for crd in crds:
        status = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]
        status["required"] = ["conditions", "replicaStatuses"]
    return crds


async def install_kubedl(client: Client) -> None:
    """Install the Deployment without a process."""
    await apply(client, _operator_objects(), report=lambda _: None)


def write_manifests(path: Path) -> None:
    """Write all manifests for `kubectl apply --filename`."""
    path.write_text(yaml.safe_dump_all((*kubedl_crds(), *_operator_objects())))


def _operator_objects() -> list[JsonObject]:
    pod = {"containers": [{"name": "kubedl-manager", "image": "example.org/kubedl:0.5.0"}]}
    spec = {"replicas": 1, "selector": {"matchLabels": _LABELS}, "template": {"metadata": {"labels": _LABELS}, "spec": pod}}
    metadata = {"name": NAME, "namespace": NAMESPACE, "labels": _LABELS}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        {"apiVersion": DEPLOYMENTS.api_version, "kind": DEPLOYMENTS.kind, "metadata": metadata, "spec": spec},
    ]
