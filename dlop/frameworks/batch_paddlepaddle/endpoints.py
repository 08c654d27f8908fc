"""How the pods of a PaddleJob find each other.

With services, the addresses are known before the pods exist and are plain variables. Addresses of pods and hosts are known only when all
pods are scheduled. They are then written to a config map, for which the containers wait. A key for each attempt of a role keeps the pods
of a new attempt from starting with the addresses of the last one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from dlop import CONFIG_MAPS, ConfigMapKey, Create, FieldRef, JsonObject, PermissionSet, Progress, Replica
from dlop.frameworks.batch_paddlepaddle.schema import PORTS
from dlop.policies import ATTEMPT_LABEL, ChildObjects

if TYPE_CHECKING:
    from dlop.frameworks.batch_paddlepaddle.paddlejob import PaddleJob

FIRST_PORT = 36000
_GLOO_OFFSET = 18
"""Port of the rendezvous of Gloo on parameter server 0, relative to its first one."""
_GLOO_HTTP = "3"
_LISTS = {"ps": "PADDLE_PSERVERS_IP_PORT_LIST", "worker": "PADDLE_TRAINER_ENDPOINTS", "heter": "PADDLE_HETER_ENDPOINTS"}
_RULES: tuple[JsonObject, ...] = (
    {"apiGroups": [""], "resources": [CONFIG_MAPS.plural], "verbs": ["get", "list", "watch", "create", "patch"]},
)


def endpoint_variables(job: PaddleJob, hosts: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Variables with the addresses of all pods. `hosts` are the hosts of each role, ordered by index."""
    port = job.first_port
    variables = {"TRAINER_PORTS_NUM": str(PORTS), "PADDLE_PORT": str(port)}
    variables |= {_LISTS[role]: ",".join(_address(host, port) for host in names) for role, names in hosts.items()}
    if "worker" in hosts:
        variables |= {"PADDLE_TRAINERS": ",".join(hosts["worker"]), "PADDLE_TRAINERS_NUM": str(len(hosts["worker"]))}
    gloo = job.spec_field.get("withGloo").integer(0)
    if gloo and hosts.get("ps"):
        endpoint = _address(hosts["ps"][0], port + _GLOO_OFFSET)
        variables |= {"PADDLE_WITH_GLOO": str(gloo), "PADDLE_GLOO_RENDEZVOUS": _GLOO_HTTP, "PADDLE_GLOO_HTTP_ENDPOINT": endpoint}
    return variables


def shared_variables(job: PaddleJob) -> Mapping[str, str | FieldRef | ConfigMapKey]:
    """The endpoint variables of all replicas: values if the addresses are known, otherwise references to the config map."""
    hosts = {role.name: [job.host(role.name, index) for index in range(role.replicas)] for role in job.spec.roles}
    variables = endpoint_variables(job, hosts)
    return {name: ConfigMapKey(config_map_name(job), name) for name in variables} if job.has_config_map else variables


def attempt_variables(job: PaddleJob, replica: Replica) -> Mapping[str, str | FieldRef | ConfigMapKey]:
    """A variable that lets the container wait for the addresses of its attempt."""
    return (
        {"DLOP_ENDPOINTS": ConfigMapKey(config_map_name(job), _attempt_key(replica.role, str(replica.attempt)))}
        if job.has_config_map
        else {}
    )


def config_map_name(job: PaddleJob) -> str:
    """The config map has the name of the job."""
    return job.metadata.name


class Endpoints(ChildObjects["PaddleJob"]):
    """A config map with the addresses of the pods, which is empty until all of them are known."""

    resources = (CONFIG_MAPS,)
    permission_set = PermissionSet("paddle", _RULES)

    def build(self, job: PaddleJob) -> tuple[Create, ...]:
        return (_config_map(job, {}),) if job.has_config_map else ()

    def update(self, job: PaddleJob, progress: Progress) -> tuple[Create, ...]:
        if not job.has_config_map:
            return ()
        pods = {role.spec.name: [replica.pod for replica in role.replicas] for role in progress.roles}
        known = {role: [pod for pod in listed if pod is not None and pod.status.pod_ip] for role, listed in pods.items()}
        attempts = {(role, pod.metadata.labels.get(ATTEMPT_LABEL, "")) for role, listed in known.items() for pod in listed}
        # Pods of an earlier attempt of a role are about to be deleted.
        if len(attempts) > len({role for role, _ in attempts}) or any(len(known[role]) < len(pods[role]) for role in pods):
            return ()
        hosts = {role: [pod.status.pod_ip for pod in listed] for role, listed in known.items()}
        return (_config_map(job, {**endpoint_variables(job, hosts), **{_attempt_key(*attempt): "complete" for attempt in attempts}}),)


def _attempt_key(role: str, attempt: str) -> str:
    return f"{role}-attempt-{attempt}"


def _config_map(job: PaddleJob, data: Mapping[str, str]) -> Create:
    metadata = {**job.child_metadata(config_map_name(job)), "labels": {"paddle-res-name": config_map_name(job)}}
    return Create(CONFIG_MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": dict(data)})


def _address(host: str, port: int) -> str:
    """`host:port`, with an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
