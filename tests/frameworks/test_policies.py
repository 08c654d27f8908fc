"""Each policy of a framework can be replaced alone, and all of them together."""

from __future__ import annotations

from typing import Any

import pytest

from dlop import DLJob, Options, SpecError
from dlop.api.crd import build_crd
from dlop.deploy.rbac import find_grants, job_rules
from dlop.frameworks.registry import Registry
from dlop.jobs.render import parse_job, render
from dlop.kube.errors import InvalidError, NotFoundError
from dlop.kube.resources import CONFIG_MAPS
from dlop.kube.types import JsonObject
from dlop.testing.kit import OperatorKit
from dlop.testing.virtual_time import virtual_time
from tests.frameworks.example_manifests import by_name
from tests.frameworks.policy_jobs import (
    PERMISSIONS,
    ChildrenJob,
    ContainerJob,
    EverythingJob,
    FlagsJob,
    LifecycleJob,
    NamingJob,
    PeerFlags,
    SchemaJob,
    StatusJob,
)

CONTAINER = {"name": "peer", "image": "peer:1"}


def role(replicas: int = 2, **more: Any) -> JsonObject:
    return {"replicas": replicas, "template": {"spec": {"containers": [CONTAINER]}}, **more}


def manifest(kind: type[DLJob], *, field: str = "replicaSpecs", peers: JsonObject | None = None, **spec: Any) -> JsonObject:
    job_type = kind.job_type
    roles = {field: {"Peer": peers or role()}}
    return {"apiVersion": job_type.api_version, "kind": job_type.kind, "metadata": {"name": "crew"}, "spec": {**roles, **spec}}


@virtual_time
async def test_a_schema_defines_the_crd_and_validates_specs() -> None:
    version = build_crd(SchemaJob)["spec"]["versions"][0]
    assert [column["name"] for column in version["additionalPrinterColumns"]] == ["Motto", "Age"]
    assert version["subresources"]["scale"]["specReplicasPath"] == ".spec.peers.Peer.replicas"
    async with OperatorKit(frameworks=[SchemaJob]) as kit:
        kit.script.when("*").run().after(10).succeed()
        with pytest.raises(InvalidError, match=r"spec\.motto"):
            await kit.submit(manifest(SchemaJob, field="peers", motto="hm"))
        job = await kit.submit(manifest(SchemaJob, field="peers", motto="all for one"))
        # The default clean-pod policy of the schema is All.
        await kit.until(job, phase="Succeeded", reached=lambda view: not view.pods)
    with pytest.raises(SpecError, match=r"spec\.motto: must not be a question"):
        _ = parse_job(manifest(SchemaJob, field="peers", motto="why?"), Registry([SchemaJob])).spec


@virtual_time
async def test_a_naming_defines_names_labels_and_addresses() -> None:
    async with OperatorKit(frameworks=[NamingJob]) as kit:
        kit.script.when("crew-peer-square-4", times=1).run().after(5).evict()
        kit.script.when("*").run().after(30).succeed()
        job = await kit.submit(manifest(NamingJob, peers=role(3)))
        await kit.until(job, phase="Running")
        assert job.pods.keys() == job.services.keys() == {"crew-peer-square-0", "crew-peer-square-1", "crew-peer-square-4"}
        last = job.pods["crew-peer-square-4"]
        assert last["metadata"]["labels"].items() >= {"square": "crew-peer-square-4", "parity": "even"}.items()
        assert job.services["crew-peer-square-4"]["spec"]["selector"] == {"square": "crew-peer-square-4"}
        assert last["spec"]["containers"][0]["env"][0]["value"] == ",".join(f"crew-peer-square-{square}:7000" for square in (0, 1, 4))
        await kit.until(job, phase="Succeeded")
        assert job.status["dlop"]["disruptions"] == {"Peer": 1}


@virtual_time
async def test_a_lifecycle_decides_about_success_failure_and_restarts() -> None:
    async with OperatorKit(frameworks=[LifecycleJob]) as kit:
        kit.script.when("crew-peer-0").run().after(5).fail(exit_code=42)
        kit.script.when("crew-peer-1", times=1).run().after(5).fail(exit_code=1)
        kit.script.when("crew-peer-1").run().after(30).succeed()
        job = await kit.submit(manifest(LifecycleJob, peers=role(2, restartPolicy="Never")))
        await kit.until(job, phase="Succeeded")
        assert (job.status["dlop"]["failedIndexes"], job.status["dlop"]["restarts"]) == ({"Peer": "0"}, {"Peer": 1})
    async with OperatorKit(frameworks=[LifecycleJob]) as kit:
        kit.script.when("*").run().after(5).fail(exit_code=42)
        job = await kit.submit(manifest(LifecycleJob))
        await kit.until(job, phase="Failed")
        assert "Peer 0" in (job.condition("Failed") or {})["message"]


@virtual_time
async def test_a_status_is_read_and_written_in_the_format_of_the_kind() -> None:
    async with OperatorKit(frameworks=[StatusJob]) as kit:
        kit.script.when("crew-peer-1").run().after(60).fail(exit_code=1)
        job = await kit.submit(manifest(StatusJob, peers=role(2, restartPolicy="Never")))
        await kit.until(job, phase="Running")
        assert {name: value for name, value in job.status.items() if name != "dlop"} == {"mood": "running", "because": ""}
        await kit.edit(job, {"spec": {"replicaSpecs": {"Peer": {"template": {"spec": {"volumes": [{}]}}}}}})
        await kit.until(job, phase="Running", reached=lambda view: "must have a name" in view.status["because"])
        await kit.edit(job, {"spec": {"replicaSpecs": {"Peer": {"template": {"spec": {"volumes": None}}}}}})
        await kit.until(job, phase="Failed")
        assert job.status["because"] == "peer 1 gave up"
        assert await kit.writes_when_idle() == []
        assert ("Failed", "peer 1 gave up") in job.events


@virtual_time
async def test_children_are_created_kept_current_and_deleted_with_the_end_of_the_job() -> None:
    assert PERMISSIONS not in job_rules([ChildrenJob])
    (grant,) = find_grants(["roster"], [ChildrenJob])
    assert grant.permission_set.rules == (PERMISSIONS,)
    async with OperatorKit(frameworks=[ChildrenJob]) as kit:
        kit.script.when("*").run().until_released().succeed()
        job = await kit.submit(manifest(ChildrenJob))
        await kit.until(job, phase="Running", reached=lambda view: set(view.pod_phases.values()) == {"Running"})
        assert await kit.writes_when_idle() == []
        assert (await kit.client.get(CONFIG_MAPS, "crew-roster", namespace="default"))["data"] == {"running": "2"}
        for name in job.pods:
            kit.kubelet.release(f"default/{name}")
        await kit.until(job, phase="Succeeded")
        assert await kit.writes_when_idle() == []
        with pytest.raises(NotFoundError):
            await kit.client.get(CONFIG_MAPS, "crew-roster", namespace="default")


def test_container_properties_decide_about_ports_and_the_environment() -> None:
    sidecar = {"name": "side", "image": "side:1"}
    user_env = {**CONTAINER, "env": [{"name": "ADDRESS", "value": "mine"}], "ports": [{"name": "web", "containerPort": 80}]}
    spec = {"Peer": {"template": {"spec": {"containers": [user_env, sidecar]}}}}
    objects = render({**manifest(ContainerJob), "spec": {"replicaSpecs": spec}}, Registry([ContainerJob]))
    peer, side = by_name(objects, "Pod")["crew-peer-0"]["spec"]["containers"]
    env = [
        {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "ADDRESS", "value": "$(IP):7000"},
    ]
    assert (peer["env"], peer["ports"]) == ([*user_env["env"], *env], user_env["ports"])
    assert side["env"] == env
    assert by_name(objects, "Service")["crew-peer-0"]["spec"]["ports"] == [{"name": "ring", "port": 7000}]


@pytest.mark.parametrize(("flags", "expected"), [((), 30), ((PeerFlags(peer_grace_seconds=7),), 7)])
def test_flags_reach_the_pods(flags: tuple[PeerFlags, ...], expected: int) -> None:
    objects = render(manifest(FlagsJob), Registry([FlagsJob]), options=Options(framework_flags=flags))
    assert {pod["spec"]["terminationGracePeriodSeconds"] for pod in by_name(objects, "Pod").values()} == {expected}


@virtual_time
async def test_a_framework_can_replace_all_policies() -> None:
    roles = {"Peer": role(), "Referee": role(1)}
    body = {**manifest(EverythingJob), "spec": {"motto": "all for one", "peers": roles}}
    peers = {"crew-peer-square-0", "crew-peer-square-1"}
    options = Options(framework_flags=(PeerFlags(peer_grace_seconds=7),))
    async with OperatorKit(frameworks=[EverythingJob], options=options) as kit:
        kit.script.when("crew-peer-square-1").until_released().run().until_released().succeed()
        kit.script.when("crew-peer-square-0").run().after(5).succeed()
        job = await kit.submit(body)
        await kit.until(job, reached=lambda view: view.pod_phases.get("crew-peer-square-0") == "Succeeded")
        assert job.pods.keys() == peers
        kit.kubelet.release("default/crew-peer-square-1")
        await kit.until(job, phase="Running", reached=lambda view: len(view.pods) == 3)
        container = job.pods["crew-referee-square-0"]["spec"]["containers"][0]
        assert container["env"][1] == {"name": "PEERS", "value": "crew-peer-square-0:7000,crew-peer-square-1:7000"}
        assert {pod["spec"]["terminationGracePeriodSeconds"] for pod in job.pods.values()} == {7}
        assert await kit.writes_when_idle() == []
        assert (await kit.client.get(CONFIG_MAPS, "crew-roster", namespace="default"))["data"] == {"running": "2"}
        kit.kubelet.release("default/crew-peer-square-1")
        await kit.until(job, phase="Succeeded", reached=lambda view: not view.pods)
        assert (job.status["mood"], job.status["because"]) == ("succeeded", "well done")
        assert await kit.writes_when_idle() == []
        with pytest.raises(NotFoundError):
            await kit.client.get(CONFIG_MAPS, "crew-roster", namespace="default")
