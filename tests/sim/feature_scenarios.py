"""Scenarios with features that any kind of job can use.

- ORDERED: workers that wait for servers, and after an edit servers that wait for workers, with restarts and suspension.
- SPOT: workers of which some are spot replicas, and fall back to on-demand pods after the second disruption.
- HOST_PORTS: servers and workers with assigned ports, and a growing role that moves the ports of another.
- SYNCED: a git repository whose first clone fails, then loses its image, and gets another one.
- TENSORBOARD: a TensorBoard that is evicted, configured anew, suspended with its job, evicted after the end, and deleted after its time.
- QUEUED: a job in a queue of Kueue, which is admitted, preempted, admitted elsewhere, scaled, suspended and resumed.
"""

from __future__ import annotations

from typing import Any

from dlop.kube.types import JsonObject
from dlop.testing.observed_job import ObservedJob
from dlop.testing.pod_steps import ContainerExit, Evict
from dlop.testing.script import Script
from tests.frameworks.kueue_workloads import KUEUE_CRDS, WorkloadKueue
from tests.sim.pair_job import PairJob, pair
from tests.sim.scenario_run import Scenario, ScenarioRun
from tests.sim.scenarios import TTL_SECONDS, all_running, has_counted, succeed

# --- start order -----------------------------------------------------------------------------------------------------


def _with_order(manifest: JsonObject, **depends_on: list[JsonObject]) -> JsonObject:
    for role, dependencies in depends_on.items():
        manifest["spec"]["replicaSpecs"][role]["dependsOn"] = dependencies
    return manifest


async def _ordered(run: ScenarioRun) -> None:
    policy: dict[str, Any] = {"restartScope": "Job", "ttlSecondsAfterFinished": TTL_SECONDS}
    await run.submit(_with_order(pair(**policy), Worker=[{"role": "Server", "condition": "Ready"}]))
    await run.reach("running", lambda job: all_running(job, 3), phase="Running")
    await run.kit.kubelet.perform("default/pair-server-0", Evict())
    await run.reach("evicted", lambda job: has_counted(job, restarts=0, disruptions=1) and all_running(job, 3), phase="Running")
    await run.edit(
        {"runPolicy": {"suspend": True}, "replicaSpecs": {"Worker": {"dependsOn": []}, "Server": {"dependsOn": [{"role": "worker"}]}}}
    )
    await run.reach("suspended", lambda job: not job.pods, phase="Suspended")
    await run.edit({"runPolicy": {"suspend": False}})
    await run.reach("resumed", lambda job: all_running(job, 3), phase="Running")
    await succeed(run, "pair-server-0", "pair-worker-0", "pair-worker-1")


# --- spot replicas ---------------------------------------------------------------------------------------------------


def _spot_manifest() -> JsonObject:
    manifest = pair(disruptionLimit=1, ttlSecondsAfterFinished=TTL_SECONDS)
    options = {"replicas": 1, "priorityClassName": "", "labels": {"tier": "spot"}, "maxDisruptions": 2}
    manifest["spec"]["replicaSpecs"]["Worker"]["spotReplicas"] = options
    return manifest


async def _spot(run: ScenarioRun) -> None:
    def has_tier(job: ObservedJob, tier: str | None, *, spot_disruptions: int, disruptions: int = 0) -> bool:
        record, labels = job.status.get("dlop", {}), job.pods.get("pair-worker-1", {"metadata": {"labels": {}}})["metadata"]["labels"]
        counts = [sum(record.get(name, {}).values()) for name in ("spotDisruptions", "disruptions")]
        return all_running(job, 3) and counts == [spot_disruptions, disruptions] and labels.get("tier") == tier

    await run.submit(_spot_manifest())
    await run.reach("running", lambda job: has_tier(job, "spot", spot_disruptions=0), phase="Running")
    await run.kit.kubelet.perform("default/pair-worker-1", Evict())
    await run.reach("evicted", lambda job: has_tier(job, "spot", spot_disruptions=1), phase="Running")
    await run.kit.kubelet.perform("default/pair-worker-1", Evict())
    await run.reach("fallen back", lambda job: has_tier(job, None, spot_disruptions=2), phase="Running")
    await run.kit.kubelet.perform("default/pair-worker-1", Evict())
    await run.reach("evicted on demand", lambda job: has_tier(job, None, spot_disruptions=2, disruptions=1), phase="Running")
    await succeed(run, "pair-server-0", "pair-worker-0", "pair-worker-1")


# --- host network ----------------------------------------------------------------------------------------------------


async def _host_ports(run: ScenarioRun) -> None:
    def has_ports(job: ObservedJob, count: int) -> bool:
        ports = [pod["spec"]["containers"][0]["ports"][0].get("hostPort") for pod in job.pods.values()]
        return all_running(job, count) and sorted(ports) == list(range(36_000, 36_000 + count))

    await run.submit(pair(hostNetwork=True, ttlSecondsAfterFinished=TTL_SECONDS))
    await run.reach("running", lambda job: has_ports(job, 3), phase="Running")
    await run.kit.kubelet.perform("default/pair-server-0", Evict())
    await run.reach("evicted", lambda job: has_counted(job, restarts=0, disruptions=1) and has_ports(job, 3), phase="Running")
    await run.edit({"replicaSpecs": {"Worker": {"replicas": 3}}})
    await run.reach("workers added", lambda job: has_ports(job, 4), phase="Running")
    await run.edit({"replicaSpecs": {"Server": {"replicas": 2}}})
    await run.reach("server added", lambda job: has_ports(job, 5) and job.status["dlop"].get("attempt") == 1, phase="Running")
    await run.edit({"runPolicy": {"suspend": True}})
    await run.reach("suspended", lambda job: not job.pods, phase="Suspended")
    await run.edit({"runPolicy": {"suspend": False}})
    await run.reach("resumed", lambda job: has_ports(job, 5), phase="Running")
    await succeed(run, "pair-server-0", "pair-server-1", "pair-worker-0", "pair-worker-1", "pair-worker-2")


# --- code sync -------------------------------------------------------------------------------------------------------


def _code(**image: str) -> list[JsonObject]:
    return [{"source": "https://example.org/team/train.git", "branch": "main", **image}]


def _synced_script() -> Script:
    script = Script()
    script.when("pair-worker-0", times=1).fail_init("git-sync-code", message="fatal: repository not found")
    return script


async def _synced(run: ScenarioRun) -> None:
    await run.submit(pair(restartScope="Job", ttlSecondsAfterFinished=TTL_SECONDS, codeSync=_code(image="git-sync:4")))
    await run.reach("cloned", lambda job: has_counted(job, restarts=1) and all_running(job, 3), phase="Running")
    await run.edit({"runPolicy": {"suspend": True, "codeSync": _code()}})
    await run.reach("suspended", lambda job: not job.pods, phase="Suspended")
    await run.edit({"runPolicy": {"suspend": False}})
    await run.reach("blocked", lambda job: "NoGitSyncImage" in str(job.condition("Blocked")))
    await run.edit({"runPolicy": {"codeSync": _code(image="git-sync:5")}})
    await run.reach("resumed", lambda job: all_running(job, 3), phase="Running")
    await succeed(run, "pair-server-0", "pair-worker-0", "pair-worker-1")


# --- TensorBoard -----------------------------------------------------------------------------------------------------

_BOARD = "pair-tensorboard-0"
_BOARD_SECONDS = 400


async def _tensorboard(run: ScenarioRun) -> None:
    board = {"logDir": "/logs", "ttlSecondsAfterJobFinished": _BOARD_SECONDS}
    await run.submit(pair(restartScope="Job", ttlSecondsAfterFinished=3 * TTL_SECONDS, tensorBoard=board))
    await run.reach("running", lambda job: all_running(job, 4), phase="Running")
    await run.kit.kubelet.perform(f"default/{_BOARD}", Evict())
    await run.reach("board evicted", lambda job: all_running(job, 4), phase="Running")
    await run.edit({"runPolicy": {"tensorBoard": {"logDir": "/new"}}})
    await run.reach("configured", lambda job: _reads(job, "/new") and all_running(job, 4), phase="Running")
    await run.kit.kubelet.perform("default/pair-server-0", Evict())
    await run.reach("evicted", lambda job: has_counted(job, restarts=0, disruptions=1) and all_running(job, 4), phase="Running")
    await run.edit({"runPolicy": {"suspend": True}})
    await run.reach("suspended", lambda job: not job.pods, phase="Suspended")
    await run.edit({"runPolicy": {"suspend": False}})
    await run.reach("resumed", lambda job: all_running(job, 4), phase="Running")
    for pod in ("pair-server-0", "pair-worker-0", "pair-worker-1"):
        await run.kit.kubelet.perform(f"default/{pod}", ContainerExit(0))
    await run.reach("succeeded", lambda job: _BOARD in job.pods, phase="Succeeded")
    await run.kit.kubelet.perform(f"default/{_BOARD}", Evict())
    await run.reach("evicted after the end", lambda job: job.pod_phases.get(_BOARD) == "Running")
    await run.reach("board deleted", lambda job: _BOARD not in job.pods and _BOARD not in job.services)
    await run.reach("deleted by TTL", lambda job: not job.exists)


def _reads(job: ObservedJob, directory: str) -> bool:
    pod = job.pods.get(_BOARD)
    return pod is not None and f"--logdir={directory}" in pod["spec"]["containers"][0]["args"]


# --- queues of Kueue -------------------------------------------------------------------------------------------------


async def _queued(run: ScenarioRun) -> None:
    def runs_on(job: ObservedJob, flavor: str, count: int) -> bool:
        return all_running(job, count) and {pod["spec"]["nodeSelector"]["flavor"] for pod in job.pods.values()} == {flavor}

    kueue = WorkloadKueue(run.kit.client, "default")
    await kueue.create_flavors("spot", "reserved")
    await run.submit(pair(schedulingPolicy={"queue": "research"}, ttlSecondsAfterFinished=TTL_SECONDS))
    await run.reach("queued", lambda job: not job.pods, phase="Suspended")
    await kueue.admit("spot")
    await run.reach("running", lambda job: runs_on(job, "spot", 3), phase="Running")
    await run.kit.kubelet.perform("default/pair-server-0", Evict())
    await run.reach("pod evicted", lambda job: has_counted(job, restarts=0, disruptions=1) and runs_on(job, "spot", 3), phase="Running")
    await kueue.evict()
    await run.reach("preempted", lambda job: not job.pods, phase="Suspended")
    assert not await kueue.holds_quota()
    await kueue.admit("reserved")
    await run.reach("admitted again", lambda job: runs_on(job, "reserved", 3), phase="Running")
    await run.edit({"replicaSpecs": {"Worker": {"replicas": 3}}})
    await run.reach("queued with another size", lambda job: not job.pods, phase="Suspended")
    await kueue.admit("spot")
    await run.reach("scaled up", lambda job: runs_on(job, "spot", 4), phase="Running")
    await run.edit({"runPolicy": {"suspend": True}})
    await run.reach("suspended", lambda job: not job.pods, phase="Suspended")
    assert await kueue.workload() is None
    await run.edit({"runPolicy": {"suspend": False}})
    await run.reach("queued again", lambda job: not job.pods, phase="Suspended")
    await kueue.admit("spot")
    await run.reach("resumed", lambda job: runs_on(job, "spot", 4), phase="Running")
    await succeed(run, "pair-server-0", "pair-worker-0", "pair-worker-1", "pair-worker-2")


ORDERED = Scenario(name="start order", framework=PairJob, script=Script, steps=_ordered)
SPOT = Scenario(name="spot replicas", framework=PairJob, script=Script, steps=_spot)
HOST_PORTS = Scenario(name="host ports", framework=PairJob, script=Script, steps=_host_ports)
SYNCED = Scenario(name="code sync", framework=PairJob, script=_synced_script, steps=_synced)
TENSORBOARD = Scenario(name="TensorBoard", framework=PairJob, script=Script, steps=_tensorboard)
QUEUED = Scenario(name="queue", framework=PairJob, script=Script, steps=_queued, crds=KUEUE_CRDS)
