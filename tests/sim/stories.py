"""The stories that everything goes wrong in.

- RING: create, run, a restart and another one, suspend, resume, scale up and down, succeed, TTL;
- WHOLE_JOB and ROLE_BY_ROLE: two roles that are started anew together, or each for itself, after a failure, an eviction, a
  deletion by somebody and the loss of a node;
- MXNET: the same in the older dialect, replica by replica, with containers that restart in place and a chief that decides;
- GANG: a ring whose pods are placed together, by a scheduler that lets each group in after a while.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress

from dlop.api.gang import VOLCANO
from dlop.embedded.apiserver.store import ChangeType, StoreEvent
from dlop.frameworks.fioravanzo.mxjob import MXJob
from dlop.kube.errors import NotFoundError
from dlop.kube.resources import PODS, VOLCANO_POD_GROUPS
from dlop.kube.types import JsonObject
from dlop.testing.kit import OperatorKit
from dlop.testing.observed_job import ObservedJob
from dlop.testing.pod_steps import Evict, Exit, LoseNode
from dlop.testing.script import Script
from tests.frameworks.pod_groups import BY_VOLCANO, Groups, definition
from tests.sim.pair import PairJob, pair
from tests.sim.ring import RingJob, ring
from tests.sim.telling import Story, Telling

TTL_SECONDS = 300
# How long after its node has fallen silent a pod is deleted. What the operator then waits is its own affair.
_NODE_IS_LOST_AFTER_SECONDS = 40.0
_LET_IN_AFTER_SECONDS = 2.0


# --- a ring ----------------------------------------------------------------------------------------------------------


def _ring_script() -> Script:
    script = Script()
    script.when("ring-worker-1", times=1).run().after(5).fail(137)
    script.when("ring-worker-0", times=1).run().after(10).fail(139)
    return script


async def _ring(telling: Telling) -> None:
    await telling.submit(ring(backoffLimit=3, ttlSecondsAfterFinished=TTL_SECONDS))
    await telling.reach("restarted", lambda job: lost(job, restarts=2) and all_run(job, 2), phase="Running")
    await telling.edit({"runPolicy": {"suspend": True}})
    await telling.reach("suspended", lambda job: not job.pods, phase="Suspended")
    await telling.edit({"runPolicy": {"suspend": False}})
    await telling.reach("resumed", lambda job: all_run(job, 2), phase="Running")
    await telling.edit({"replicaSpecs": {"Worker": {"replicas": 3}}})
    await telling.reach("scaled up", lambda job: all_run(job, 3))
    await telling.edit({"replicaSpecs": {"Worker": {"replicas": 2}}})
    await telling.reach("scaled down", lambda job: all_run(job, 2))
    await _succeed(telling, "ring-worker-0", "ring-worker-1")


# --- two roles, started anew together or each for itself -------------------------------------------------------------


def _pair_script() -> Script:
    script = Script()
    script.when("pair-worker-1", times=1).run().after(5).fail(137)
    return script


async def _whole_job(telling: Telling) -> None:
    await _pair(telling, scope="Job")


async def _role_by_role(telling: Telling) -> None:
    await _pair(telling, scope="Role")


async def _pair(telling: Telling, *, scope: str) -> None:
    await telling.submit(pair(restartScope=scope, backoffLimit=2, ttlSecondsAfterFinished=TTL_SECONDS))
    await telling.reach("restarted", lambda job: lost(job, restarts=1) and all_run(job, 3), phase="Running")
    await telling.kit.kubelet.perform("default/pair-server-0", Evict())
    await telling.reach("evicted", lambda job: lost(job, restarts=1, disruptions=1) and all_run(job, 3), phase="Running")
    await telling.kit.client.delete(PODS, "pair-worker-0", namespace="default")
    await telling.reach("deleted", lambda job: lost(job, restarts=1, disruptions=2) and all_run(job, 3), phase="Running")
    await telling.kit.kubelet.perform("default/pair-worker-1", LoseNode(_NODE_IS_LOST_AFTER_SECONDS))
    await telling.reach("node lost", lambda job: lost(job, restarts=1, disruptions=3) and all_run(job, 3), phase="Running")
    await _succeed(telling, "pair-server-0", "pair-worker-0", "pair-worker-1")


# --- the older dialect -----------------------------------------------------------------------------------------------


def _mxnet_script() -> Script:
    script = Script()
    script.when("mx-scheduler-*", times=1).run().after(5).fail(137)
    script.when("mx-worker-r-0", times=1).run().after(20).fail(1)
    return script


def _mxnet_manifest() -> JsonObject:
    template = {"spec": {"containers": [{"name": "mxnet", "image": "i"}]}}
    roles = [{"mxReplicaType": role, "replicas": number, "template": template} for role, number in _MX_ROLES.items()]
    policy = {"backoffLimit": 4, "ttlSecondsAfterFinished": TTL_SECONDS}
    # With an id of its own the job's names do not depend on its uid, which what goes wrong may change.
    spec = {"RuntimeId": "r", "replicaSpecs": roles, "runPolicy": policy}
    return {"apiVersion": "fioravanzo.org/v1alpha1", "kind": "MXJob", "metadata": {"name": "mx", "namespace": "default"}, "spec": spec}


_MX_ROLES: Mapping[str, int] = {"SCHEDULER": 1, "SERVER": 1, "WORKER": 2}


async def _mxnet(telling: Telling) -> None:
    await telling.submit(_mxnet_manifest())
    await telling.reach("restarted", lambda job: lost(job, restarts=2) and all_run(job, 4), phase="Running")
    await telling.kit.kubelet.perform("default/mx-server-r-0", Evict())
    await telling.reach("evicted", lambda job: lost(job, restarts=2, disruptions=1) and all_run(job, 4), phase="Running")
    await telling.kit.client.delete(PODS, "mx-scheduler-r-0", namespace="default")
    await telling.reach("deleted", lambda job: lost(job, restarts=2, disruptions=2) and all_run(job, 4), phase="Running")
    await telling.kit.kubelet.perform("default/mx-worker-r-1", LoseNode(_NODE_IS_LOST_AFTER_SECONDS))
    await telling.reach("node lost", lambda job: lost(job, restarts=2, disruptions=3) and all_run(job, 4), phase="Running")
    await _succeed(telling, "mx-scheduler-r-0")


# --- pods that are placed together -----------------------------------------------------------------------------------


def _gang_script() -> Script:
    script = Script()
    script.when("ring-worker-1", times=1).run().after(5).fail(137)
    return script


async def _gang(telling: Telling) -> None:
    telling.kit.cluster.store.listeners.append(lambda change: _let_in(telling.kit, change))
    await telling.submit(ring(backoffLimit=3, ttlSecondsAfterFinished=TTL_SECONDS))
    await telling.reach("restarted", lambda job: lost(job, restarts=1) and all_run(job, 2), phase="Running")
    await telling.edit({"replicaSpecs": {"Worker": {"replicas": 3}}})
    await telling.reach("scaled up", lambda job: all_run(job, 3))
    await telling.edit({"runPolicy": {"suspend": True}})
    await telling.reach("suspended", lambda job: not job.pods, phase="Suspended")
    await telling.edit({"runPolicy": {"suspend": False}})
    await telling.reach("resumed", lambda job: all_run(job, 3), phase="Running")
    await _succeed(telling, *(f"ring-worker-{index}" for index in range(3)))


def _let_in(kit: OperatorKit, change: StoreEvent) -> None:
    """What volcano does with a new group."""

    async def say() -> None:
        await asyncio.sleep(_LET_IN_AFTER_SECONDS)
        with suppress(NotFoundError):
            await Groups(kit.client, VOLCANO).say("Inqueue", "ring")

    if change.key.storage == VOLCANO_POD_GROUPS.qualified_name and change.type is ChangeType.ADDED:
        kit.later(say)


# --- words that the stories share ------------------------------------------------------------------------------------


async def _succeed(telling: Telling, *pods: str) -> None:
    for pod in pods:
        await telling.kit.kubelet.perform(f"default/{pod}", Exit(0))
    await telling.reach("succeeded", phase="Succeeded")
    await telling.reach("gone", lambda job: not job.exists)


def lost(job: ObservedJob, *, restarts: int, disruptions: int = 0) -> bool:
    """Whether so many losses have been counted."""
    record = job.status.get("dlop", {})
    counted = [sum(record.get(counter, {}).values()) for counter in ("restarts", "disruptions")]
    return counted == [restarts, disruptions]


def all_run(job: ObservedJob, count: int) -> bool:
    """Whether there are so many pods, and all of them run and go on running."""
    running = [pod["status"]["phase"] == "Running" and "deletionTimestamp" not in pod["metadata"] for pod in job.pods.values()]
    return running == [True] * count


RING = Story(name="ring", framework=RingJob, script=_ring_script, tell=_ring)
WHOLE_JOB = Story(name="whole job", framework=PairJob, script=_pair_script, tell=_whole_job)
ROLE_BY_ROLE = Story(name="role by role", framework=PairJob, script=_pair_script, tell=_role_by_role)
GANG = Story(name="gang", framework=RingJob, script=_gang_script, tell=_gang, options=BY_VOLCANO, definitions=(definition(VOLCANO),))
MXNET = Story(name="mxnet", framework=MXJob, script=_mxnet_script, tell=_mxnet)
