"""The scenarios in which faults are injected.

- RING: create, run, restart twice, suspend, resume, scale up and down, succeed, TTL.
- JOB_SCOPE and ROLE_SCOPE: two roles that restart together or separately, after a failure, an eviction, a deletion by a
  user and the loss of a node.
- MXNET: the same for the MXJob of fioravanzo.org, with restart scope Replica, in-place restarts and success by the scheduler.
- GANG: a ring with gang scheduling, by a scheduler that admits each pod group after a delay.
- HOST_NETWORK: a PaddleJob of batch.paddlepaddle.org, with assigned ports and a config map with the addresses of its pods.
- PARAMETER_SERVERS: a PaddleJob of paddlepaddle.org whose trainer fails, and that loses a parameter server.
- ELASTIC: a PyTorchJob that the autoscaler scales when the capacity of the cluster changes.
- FAULT_TOLERANT: a TrainingJob with a master that is scaled, loses a parameter server, and continues when a trainer has failed.
- SCALED_BY_PLANS: an ElasticJob with scale plans that start, replace, add and remove workers; it loses a worker and its master.
- ADOPTED: the same with workers that the master creates.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from elastic_master import member_pod

from dlop.api.gang import VOLCANO
from dlop.api.scale_plan import Member
from dlop.api.types import Options
from dlop.embedded.apiserver.store import ChangeType, StoreEvent
from dlop.frameworks.batch_paddlepaddle.paddlejob import PaddleJob as BatchPaddleJob
from dlop.frameworks.dlrover.elasticjob import ElasticJob
from dlop.frameworks.fioravanzo.mxjob import MXJob
from dlop.frameworks.kubeflow.pytorchjob import PyTorchJob
from dlop.frameworks.paddlepaddle.paddlejob import PaddleJob
from dlop.frameworks.paddlepaddle.trainingjob import TrainingJob
from dlop.kube.errors import NotFoundError
from dlop.kube.resources import NODES, PODS, VOLCANO_POD_GROUPS
from dlop.kube.types import JsonObject
from dlop.testing.kit import OperatorKit
from dlop.testing.kubelet import NODE_NAME
from dlop.testing.observed_job import ObservedJob
from dlop.testing.pod_steps import ContainerExit, Evict, LoseNode
from dlop.testing.script import Script
from tests.frameworks.elastic_manifests import SCALE_PLANS, elastic_job, pod_meta, scale_plan
from tests.frameworks.paddle_manifests import batch_job, batch_role
from tests.frameworks.pod_groups import BY_VOLCANO, PodGroups, pod_group_crd
from tests.sim.pair_job import PairJob, pair
from tests.sim.ring_job import RingJob, ring
from tests.sim.scenario_run import Scenario, ScenarioRun

TTL_SECONDS = 300
# Time after which the pods of a silent node are deleted. The operator waits longer before it forces the deletion.
_NODE_LOST_AFTER_SECONDS = 40.0
_ADMISSION_SECONDS = 2.0


# --- ring ------------------------------------------------------------------------------------------------------------


def _ring_script() -> Script:
    script = Script()
    script.when("ring-worker-1", times=1).run().after(5).fail(137)
    script.when("ring-worker-0", times=1).run().after(10).fail(139)
    return script


async def _ring(run: ScenarioRun) -> None:
    await run.submit(ring(backoffLimit=3, ttlSecondsAfterFinished=TTL_SECONDS))
    await run.reach("restarted", lambda job: has_counted(job, restarts=2) and all_running(job, 2), phase="Running")
    await run.edit({"runPolicy": {"suspend": True}})
    await run.reach("suspended", lambda job: not job.pods, phase="Suspended")
    await run.edit({"runPolicy": {"suspend": False}})
    await run.reach("resumed", lambda job: all_running(job, 2), phase="Running")
    await run.edit({"replicaSpecs": {"Worker": {"replicas": 3}}})
    await run.reach("scaled up", lambda job: all_running(job, 3))
    await run.edit({"replicaSpecs": {"Worker": {"replicas": 2}}})
    await run.reach("scaled down", lambda job: all_running(job, 2))
    await succeed(run, "ring-worker-0", "ring-worker-1")


# --- two roles -------------------------------------------------------------------------------------------------------


def _pair_script() -> Script:
    script = Script()
    script.when("pair-worker-1", times=1).run().after(5).fail(137)
    return script


async def _job_scope(run: ScenarioRun) -> None:
    await _pair(run, scope="Job")


async def _role_scope(run: ScenarioRun) -> None:
    await _pair(run, scope="Role")


async def _pair(run: ScenarioRun, *, scope: str) -> None:
    await run.submit(pair(restartScope=scope, backoffLimit=2, ttlSecondsAfterFinished=TTL_SECONDS))
    await run.reach("restarted", lambda job: has_counted(job, restarts=1) and all_running(job, 3), phase="Running")
    await run.kit.kubelet.perform("default/pair-server-0", Evict())
    await run.reach("evicted", lambda job: has_counted(job, restarts=1, disruptions=1) and all_running(job, 3), phase="Running")
    await run.kit.client.delete(PODS, "pair-worker-0", namespace="default")
    await run.reach("pod deleted", lambda job: has_counted(job, restarts=1, disruptions=2) and all_running(job, 3), phase="Running")
    await run.kit.kubelet.perform("default/pair-worker-1", LoseNode(_NODE_LOST_AFTER_SECONDS))
    await run.reach("node lost", lambda job: has_counted(job, restarts=1, disruptions=3) and all_running(job, 3), phase="Running")
    await succeed(run, "pair-server-0", "pair-worker-0", "pair-worker-1")


# --- MXJob -----------------------------------------------------------------------------------------------------------


def _mxnet_script() -> Script:
    script = Script()
    script.when("mx-scheduler-*", times=1).run().after(5).fail(137)
    script.when("mx-worker-r-0", times=1).run().after(20).fail(1)
    return script


def _mxnet_manifest() -> JsonObject:
    template = {"spec": {"containers": [{"name": "mxnet", "image": "i"}]}}
    roles = [{"mxReplicaType": role, "replicas": number, "template": template} for role, number in _MX_ROLES.items()]
    policy = {"backoffLimit": 4, "ttlSecondsAfterFinished": TTL_SECONDS}
    # With a RuntimeId the names do not depend on the uid of the job, which faults may change.
    spec = {"RuntimeId": "r", "replicaSpecs": roles, "runPolicy": policy}
    return {"apiVersion": "fioravanzo.org/v1alpha1", "kind": "MXJob", "metadata": {"name": "mx", "namespace": "default"}, "spec": spec}


_MX_ROLES: Mapping[str, int] = {"SCHEDULER": 1, "SERVER": 1, "WORKER": 2}


async def _mxnet(run: ScenarioRun) -> None:
    await run.submit(_mxnet_manifest())
    await run.reach("restarted", lambda job: has_counted(job, restarts=2) and all_running(job, 4), phase="Running")
    await run.kit.kubelet.perform("default/mx-server-r-0", Evict())
    await run.reach("evicted", lambda job: has_counted(job, restarts=2, disruptions=1) and all_running(job, 4), phase="Running")
    await run.kit.client.delete(PODS, "mx-scheduler-r-0", namespace="default")
    await run.reach("pod deleted", lambda job: has_counted(job, restarts=2, disruptions=2) and all_running(job, 4), phase="Running")
    await run.kit.kubelet.perform("default/mx-worker-r-1", LoseNode(_NODE_LOST_AFTER_SECONDS))
    await run.reach("node lost", lambda job: has_counted(job, restarts=2, disruptions=3) and all_running(job, 4), phase="Running")
    await succeed(run, "mx-scheduler-r-0")


# --- gang scheduling -------------------------------------------------------------------------------------------------


def _gang_script() -> Script:
    script = Script()
    script.when("ring-worker-1", times=1).run().after(5).fail(137)
    return script


async def _gang(run: ScenarioRun) -> None:
    run.kit.cluster.store.listeners.append(lambda event: _admit(run.kit, event))
    await run.submit(ring(backoffLimit=3, ttlSecondsAfterFinished=TTL_SECONDS))
    await run.reach("restarted", lambda job: has_counted(job, restarts=1) and all_running(job, 2), phase="Running")
    await run.edit({"replicaSpecs": {"Worker": {"replicas": 3}}})
    await run.reach("scaled up", lambda job: all_running(job, 3))
    await run.edit({"runPolicy": {"suspend": True}})
    await run.reach("suspended", lambda job: not job.pods, phase="Suspended")
    await run.edit({"runPolicy": {"suspend": False}})
    await run.reach("resumed", lambda job: all_running(job, 3), phase="Running")
    await succeed(run, *(f"ring-worker-{index}" for index in range(3)))


def _admit(kit: OperatorKit, event: StoreEvent) -> None:
    """Admit a new pod group, as volcano does."""

    async def set_phase() -> None:
        await asyncio.sleep(_ADMISSION_SECONDS)
        with suppress(NotFoundError):
            await PodGroups(kit.client, VOLCANO).set_phase("Inqueue", "ring")

    if event.key.storage == VOLCANO_POD_GROUPS.qualified_name and event.type is ChangeType.ADDED:
        kit.start_soon(set_phase)


# --- host network ----------------------------------------------------------------------------------------------------


async def _host_network(run: ScenarioRun) -> None:
    policy = {"restartScope": "Job", "ttlSecondsAfterFinished": TTL_SECONDS}
    await run.submit(batch_job("wide", intranet="Host", ps=batch_role(1), worker=batch_role(2), runPolicy=policy))
    await run.reach("running", lambda job: all_running(job, 3), phase="Running")
    await run.kit.kubelet.perform("default/wide-ps-0", Evict())
    await run.reach("evicted", lambda job: has_counted(job, restarts=0, disruptions=1) and all_running(job, 3), phase="Running")
    await run.edit({"worker": {"replicas": 3}})
    await run.reach("scaled up", lambda job: all_running(job, 4), phase="Running")
    await run.edit({"runPolicy": {"suspend": True}})
    await run.reach("suspended", lambda job: not job.pods, phase="Suspended")
    await run.edit({"runPolicy": {"suspend": False}})
    await run.reach("resumed", lambda job: all_running(job, 4), phase="Running")
    await succeed(run, "wide-ps-0", "wide-worker-0", "wide-worker-1", "wide-worker-2")


# --- parameter servers -----------------------------------------------------------------------------------------------


def _parameter_servers_script() -> Script:
    script = Script()
    script.when("servers-trainer-1", times=1).run().after(5).fail(139)
    return script


async def _parameter_servers(run: ScenarioRun) -> None:
    policy = {"backoffLimit": 3, "ttlSecondsAfterFinished": TTL_SECONDS}
    spec = {"image": "i", "pserver": {"min-instance": 1}, "trainer": {"min-instance": 2}, "runPolicy": policy}
    metadata = {"name": "servers", "namespace": "default"}
    await run.submit({"apiVersion": "paddlepaddle.org/v1", "kind": "PaddleJob", "metadata": metadata, "spec": spec})
    await run.reach("restarted", lambda job: has_counted(job, restarts=1) and all_running(job, 3), phase="Running")
    await run.kit.kubelet.perform("default/servers-pserver-0", Evict())
    await run.reach("evicted", lambda job: has_counted(job, restarts=1, disruptions=1) and all_running(job, 3), phase="Running")
    await run.edit({"trainer": {"min-instance": 3}})
    await run.reach("scaled up", lambda job: all_running(job, 4), phase="Running")
    await run.edit({"runPolicy": {"suspend": True}})
    await run.reach("suspended", lambda job: not job.pods, phase="Suspended")
    await run.edit({"runPolicy": {"suspend": False}})
    await run.reach("resumed", lambda job: all_running(job, 4), phase="Running")
    await succeed(run, *(f"servers-trainer-{index}" for index in range(3)))


# --- elastic jobs ----------------------------------------------------------------------------------------------------


def _elastic_manifest() -> JsonObject:
    container = {"name": "pytorch", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    spec = {
        "elasticPolicy": {"minReplicas": 2, "maxReplicas": 4},
        "runPolicy": {"autoscale": True, "backoffLimit": 3, "ttlSecondsAfterFinished": TTL_SECONDS},
        "pytorchReplicaSpecs": {"Worker": {"replicas": 2, "template": {"spec": {"containers": [container]}}}},
    }
    return {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "elastic", "namespace": "default"}, "spec": spec}


async def _elastic(run: ScenarioRun) -> None:
    # The API server adds a taint until the node is ready.
    await run.kit.client.patch(NODES, NODE_NAME, {"spec": {"taints": None}})
    await _set_cpus(run, 2)
    await run.submit(_elastic_manifest())
    await run.reach("running", lambda job: all_running(job, 2), phase="Running")
    await _set_cpus(run, 8)
    await run.reach("grown", lambda job: all_running(job, 4), phase="Running")
    await run.kit.kubelet.perform("default/elastic-worker-3", Evict())
    await run.reach("evicted", lambda job: has_counted(job, restarts=0, disruptions=1) and all_running(job, 4), phase="Running")
    await _set_cpus(run, 4)
    await run.reach("shrunk", lambda job: all_running(job, 3), phase="Running")
    await run.edit({"runPolicy": {"suspend": True}})
    await run.reach("suspended", lambda job: not job.pods, phase="Suspended")
    await run.edit({"runPolicy": {"suspend": False}})
    await run.reach("resumed", lambda job: all_running(job, 3), phase="Running")
    await succeed(run, *(f"elastic-worker-{index}" for index in range(3)))


def _fault_tolerant_manifest() -> JsonObject:
    roles = {
        "pserver": {"min-instance": 1},
        "trainer": {"min-instance": 2, "max-instance": 4, "resources": {"requests": {"cpu": "1"}}},
    }
    spec = {"image": "i", "fault_tolerant": True, **roles, "runPolicy": {"ttlSecondsAfterFinished": TTL_SECONDS}}
    return {"apiVersion": "paddlepaddle.org/v1", "kind": "TrainingJob", "metadata": {"name": "ft", "namespace": "default"}, "spec": spec}


async def _fault_tolerant(run: ScenarioRun) -> None:
    await run.kit.client.patch(NODES, NODE_NAME, {"spec": {"taints": None}})
    await _set_cpus(run, 4)  # the master requests one
    await run.submit(_fault_tolerant_manifest())
    await run.reach("running", lambda job: all_running(job, 4), phase="Running")
    await _set_cpus(run, 8)
    await run.reach("grown", lambda job: all_running(job, 6), phase="Running")
    await run.kit.kubelet.perform("default/ft-pserver-0", Evict())
    await run.reach("evicted", lambda job: has_counted(job, restarts=0, disruptions=1) and all_running(job, 6), phase="Running")
    await run.kit.kubelet.perform("default/ft-trainer-3", ContainerExit(1))
    await run.reach("failed", lambda job: job.status["dlop"].get("failedIndexes") == {"trainer": "3"}, phase="Running")
    await _set_cpus(run, 4)
    await run.reach("shrunk", lambda job: all_running(job, 4), phase="Running")
    await succeed(run, "ft-trainer-0", "ft-trainer-1")


async def _set_cpus(run: ScenarioRun, cpus: int) -> None:
    allocatable = {"cpu": str(cpus), "memory": "64Gi", "pods": "110"}
    await run.kit.client.patch(NODES, NODE_NAME, {"status": {"allocatable": allocatable}}, subresource="status")


# --- jobs whose master manages the pods ------------------------------------------------------------------------------


async def _scale_plans(run: ScenarioRun) -> None:
    client = run.kit.client

    async def write_plan(number: int, **plan: Any) -> None:
        owner = None if run.job is None else run.job.body
        await client.create(SCALE_PLANS, scale_plan(number=number, owner=owner, **plan), namespace="default")

    await run.submit(elastic_job(runPolicy={"ttlSecondsAfterFinished": TTL_SECONDS}))
    await run.reach("master running", lambda job: all_running(job, 1), phase="Running")
    await write_plan(0, replicas={"worker": 2})
    await run.reach("workers running", lambda job: all_running(job, 3), phase="Running")
    await run.kit.kubelet.perform("default/elastic-edljob-worker-1", ContainerExit(137))
    await write_plan(1, create=[pod_meta("worker", 2, 1)], remove=["elastic-edljob-worker-1"])
    await write_plan(2)
    await write_plan(3, replicas={"worker": 4})
    await run.reach("replaced", lambda job: all_running(job, 5), phase="Running")
    await run.edit({"suspend": True})
    await write_plan(4, replicas={"worker": 3})
    await run.reach("held", lambda job: job.status["phase"] == "Suspended")
    await run.edit({"suspend": False})
    await run.reach("shrunk", lambda job: all_running(job, 4), phase="Running")
    await run.kit.kubelet.perform("default/elasticjob-elastic-dlrover-master-0", Evict())
    await run.reach("new master", lambda job: has_counted(job, restarts=0, disruptions=1) and all_running(job, 4), phase="Running")
    await succeed(run, "elasticjob-elastic-dlrover-master-1")


async def _adopted(run: ScenarioRun) -> None:
    await run.submit(elastic_job(platform="pyk8s", runPolicy={"ttlSecondsAfterFinished": TTL_SECONDS}))
    await run.reach("master running", lambda job: all_running(job, 1), phase="Running")
    for number in range(2):
        await _create_worker(run, number, rank=number)
    await run.reach("adopted", lambda job: all_running(job, 3), phase="Running")
    await run.kit.kubelet.perform("default/elastic-edljob-worker-1", Evict())
    await run.kit.kubelet.perform("default/elasticjob-elastic-dlrover-master-0", ContainerExit(137))
    await run.reach("new master", lambda job: has_counted(job, restarts=1) and len(job.pods) == 3, phase="Running")
    await _create_worker(run, 2, rank=1)
    await run.reach("replaced", lambda job: len(job.pods) == 4, phase="Running")
    await run.edit({"runPolicy": {"suspend": True}})
    await run.reach("suspended", lambda job: not job.pods, phase="Suspended")
    await run.edit({"runPolicy": {"suspend": False}})
    await run.reach("resumed", lambda job: all_running(job, 1), phase="Running")
    await _create_worker(run, 0, rank=0)
    await run.reach("adopted again", lambda job: all_running(job, 2), phase="Running")
    await succeed(run, "elasticjob-elastic-dlrover-master-1")


async def _create_worker(run: ScenarioRun, number: int, *, rank: int) -> None:
    """Create a pod as the master does, which is not its controller."""
    job = run.job
    if job is not None:
        await run.kit.client.create(PODS, member_pod(job.body, Member(role="worker", id=number, rank=rank)), namespace="default")


# --- shared steps and predicates -------------------------------------------------------------------------------------


async def succeed(run: ScenarioRun, *pods: str) -> None:
    for pod in pods:
        await run.kit.kubelet.perform(f"default/{pod}", ContainerExit(0))
    await run.reach("succeeded", phase="Succeeded")
    await run.reach("deleted by TTL", lambda job: not job.exists)


def has_counted(job: ObservedJob, *, restarts: int, disruptions: int = 0) -> bool:
    """Whether the record has these numbers of restarts and disruptions."""
    record = job.status.get("dlop", {})
    counts = [sum(record.get(counter, {}).values()) for counter in ("restarts", "disruptions")]
    return counts == [restarts, disruptions]


def all_running(job: ObservedJob, count: int) -> bool:
    """Whether the job has this number of pods, all running and none terminating."""
    running = [pod["status"]["phase"] == "Running" and "deletionTimestamp" not in pod["metadata"] for pod in job.pods.values()]
    return running == [True] * count


RING = Scenario(name="ring", framework=RingJob, script=_ring_script, steps=_ring)
JOB_SCOPE = Scenario(name="restart scope Job", framework=PairJob, script=_pair_script, steps=_job_scope)
ROLE_SCOPE = Scenario(name="restart scope Role", framework=PairJob, script=_pair_script, steps=_role_scope)
GANG = Scenario(name="gang", framework=RingJob, script=_gang_script, steps=_gang, options=BY_VOLCANO, crds=(pod_group_crd(VOLCANO),))
HOST_NETWORK = Scenario(name="host network", framework=BatchPaddleJob, script=Script, steps=_host_network)
PARAMETER_SERVERS = Scenario(name="parameter servers", framework=PaddleJob, script=_parameter_servers_script, steps=_parameter_servers)
SCALED_BY_PLANS = Scenario(name="scale plans", framework=ElasticJob, script=Script, steps=_scale_plans)
ADOPTED = Scenario(name="adopted", framework=ElasticJob, script=Script, steps=_adopted)
ELASTIC = Scenario(name="elastic", framework=PyTorchJob, script=Script, steps=_elastic, options=Options(autoscaler=True))
FAULT_TOLERANT = Scenario(
    name="fault-tolerant", framework=TrainingJob, script=Script, steps=_fault_tolerant, options=Options(autoscaler=True)
)
MXNET = Scenario(name="mxnet", framework=MXJob, script=_mxnet_script, steps=_mxnet)
