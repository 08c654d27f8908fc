"""The life of a TensorBoard: it comes with the running job, is replaced when necessary, and goes some time after the end."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from dlop.deploy.apply import apply
from dlop.kube.resources import PODS, SERVICES
from dlop.kube.timestamps import format_time
from dlop.kube.transport import JSON, Request, Response
from dlop.kube.types import JsonObject
from dlop.policies import INGRESSES
from dlop.testing.faulty_transport import FaultyTransport
from dlop.testing.kit import OperatorKit
from dlop.testing.observed_job import ObservedJob
from dlop.testing.pod_steps import ContainerExit, Evict, LoseNode
from dlop.testing.virtual_time import virtual_time
from tests.frameworks.ingress_crd import INGRESS_CRD
from tests.sim.pair_job import PairJob, pair

BOARD = "pair-tensorboard-0"
REPLICAS = {"pair-server-0", "pair-worker-0", "pair-worker-1"}
ANNOTATION = "kubedl.io/tensorboard-config"
QUOTA = {"kind": "Status", "status": "Failure", "code": 403, "reason": "Forbidden", "message": "exceeded quota: team"}
LOGS: JsonObject = {"logDir": "/logs", "ttlSecondsAfterJobFinished": 600}


def kit() -> OperatorKit:
    return OperatorKit([PairJob])


def with_config(config: Any, **run_policy: Any) -> JsonObject:
    manifest = pair(**run_policy)
    return {**manifest, "metadata": {**manifest["metadata"], "annotations": {ANNOTATION: json.dumps(config)}}}


def board(job: ObservedJob) -> JsonObject | None:
    return job.pods.get(BOARD)


def uid_of_board(job: ObservedJob) -> str:
    pod = board(job)
    return "" if pod is None else str(pod["metadata"]["uid"])


def is_shown(job: ObservedJob) -> bool:
    """Whether the pod and the service exist and the pod runs."""
    pod = board(job)
    return pod is not None and pod["status"]["phase"] == "Running" and BOARD in job.services


def is_gone(job: ObservedJob) -> bool:
    return BOARD not in job.pods and BOARD not in job.services


async def running(kit: OperatorKit, manifest: JsonObject | None = None) -> ObservedJob:
    job = await kit.submit(manifest or pair(tensorBoard=LOGS))
    return await kit.until(job, phase="Running", reached=is_shown)


async def finish(kit: OperatorKit, job: ObservedJob) -> None:
    for name in REPLICAS:
        await kit.kubelet.perform(f"default/{name}", ContainerExit(0))
    await kit.until(job, phase="Succeeded")


def messages(job: ObservedJob, reason: str) -> list[str]:
    return [message for each, message in job.events if each == reason]


@virtual_time
async def test_the_pod_is_created_when_the_job_runs_and_nothing_is_written_at_rest() -> None:
    async with kit() as env:
        env.script.when("pair-*").after(60).run()
        job = await env.submit(pair(tensorBoard=LOGS))
        await asyncio.sleep(30)
        assert set(job.pods) == REPLICAS
        await env.until(job, phase="Running", reached=is_shown)
        assert set(job.pods) == {*REPLICAS, BOARD}
        assert await env.writes_when_idle() == []


@virtual_time
async def test_after_the_end_the_tensorboard_stays_for_its_time_to_live() -> None:
    async with kit() as env:
        job = await running(env)
        created = uid_of_board(job)
        await finish(env, job)
        await asyncio.sleep(590)
        assert (is_shown(job), uid_of_board(job)) == (True, created)
        await asyncio.sleep(50)
        assert is_gone(job)
        assert messages(job, "DeletedTensorBoard") == ["Deleted the TensorBoard of the finished job"]
        assert await env.writes_when_idle() == []


@virtual_time
async def test_the_clean_pod_policy_does_not_concern_the_tensorboard() -> None:
    async with kit() as env:
        job = await running(env, pair(tensorBoard=LOGS, cleanPodPolicy="All"))
        await finish(env, job)
        await env.until(job, reached=lambda job: not REPLICAS & set(job.pods))
        await asyncio.sleep(300)
        assert is_shown(job)


@virtual_time
async def test_a_tensorboard_outlives_the_operator_that_created_it_and_the_next_one_deletes_it() -> None:
    async with kit() as env:
        job = await running(env)
        await finish(env, job)
        await env.operator.crash()
        await asyncio.sleep(300)
        await env.start_operator()
        await asyncio.sleep(280)
        assert is_shown(job)
        await env.until(job, reached=is_gone, within_seconds=120)


@virtual_time
async def test_an_annotation_without_a_time_to_live_ends_the_tensorboard_with_the_job() -> None:
    async with kit() as env:
        job = await running(env, with_config({"logDir": "/logs"}))
        await finish(env, job)
        await env.until(job, reached=is_gone, within_seconds=60)


@virtual_time
async def test_a_later_update_timestamp_shows_the_logs_of_a_finished_job_again() -> None:
    async with kit() as env:
        job = await env.submit(pair())
        await env.until(job, phase="Running")
        await finish(env, job)
        await asyncio.sleep(10_000)
        config = {**LOGS, "updateTimestamp": format_time(env.clock())}
        await env.edit(job, {"metadata": {"annotations": {ANNOTATION: json.dumps(config)}}})
        await env.until(job, reached=is_shown, within_seconds=60)
        await asyncio.sleep(500)
        assert is_shown(job)
        await env.until(job, reached=is_gone, within_seconds=200)


@virtual_time
async def test_a_deleted_job_takes_its_tensorboard_with_it() -> None:
    async with kit() as env:
        job = await running(env)
        await env.client.delete(PairJob.job_type.resource, "pair", namespace="default")
        await env.until(job, reached=lambda job: not job.exists)
        await asyncio.sleep(60)
        for resource in (PODS, SERVICES):
            assert (await env.client.list(resource, namespace="default"))["items"] == []


@virtual_time
async def test_a_suspended_job_has_no_tensorboard_and_gets_it_back() -> None:
    async with kit() as env:
        job = await running(env)
        await env.edit(job, {"spec": {"runPolicy": {"suspend": True}}})
        await env.until(job, phase="Suspended", reached=lambda job: not job.pods)
        assert await env.writes_when_idle() == []
        await env.edit(job, {"spec": {"runPolicy": {"suspend": False}}})
        await env.until(job, phase="Running", reached=is_shown)


@virtual_time
async def test_the_tensorboard_is_neither_counted_nor_restarted_with_the_job() -> None:
    async with kit() as env:
        job = await running(env, pair(tensorBoard=LOGS, restartScope="Job", backoffLimit=1))
        created = uid_of_board(job)
        await env.kubelet.perform("default/pair-worker-0", ContainerExit(137))
        await env.until(job, phase="Running", reached=lambda job: job.status["dlop"].get("restarts") == {"Worker": 1})
        await asyncio.sleep(120)
        assert uid_of_board(job) == created
        await env.kubelet.perform(f"default/{BOARD}", Evict())
        await env.until(job, reached=lambda job: is_shown(job) and uid_of_board(job) != created)
        record = job.status["dlop"]
        assert (record["restarts"], record.get("disruptions", {}), job.phase) == ({"Worker": 1}, {}, "Running")


@virtual_time
async def test_a_pod_that_fails_is_replaced_at_most_once_a_minute() -> None:
    async with kit() as env:
        env.script.when(BOARD).run().after(1).evict()
        job = await env.submit(pair(tensorBoard=LOGS))
        await env.until(job, phase="Running")
        await asyncio.sleep(600)
        assert 8 <= sum(1 for write in env.writes if is_create_of_board(write.request)) <= 11
        assert job.phase == "Running"
        assert messages(job, "DeletedTensorBoard")[0] == f"Deleted pod {BOARD} of the TensorBoard: its pod has ended (Evicted)"


@virtual_time
async def test_a_pod_whose_node_is_lost_is_replaced_also_after_the_end() -> None:
    async with kit() as env:
        job = await running(env)
        created = uid_of_board(job)
        await finish(env, job)
        await env.kubelet.perform(f"default/{BOARD}", LoseNode(40.0))
        await env.until(job, reached=lambda job: is_shown(job) and uid_of_board(job) != created, within_seconds=400)
        await env.until(job, reached=is_gone, within_seconds=600)


@virtual_time
async def test_a_pod_and_a_service_that_a_user_deletes_are_created_again() -> None:
    async with kit() as env:
        job = await running(env)
        for is_finished in (False, True):
            created = uid_of_board(job)
            for resource in (PODS, SERVICES):
                await env.client.delete(resource, BOARD, namespace="default")
            await env.until(job, reached=lambda job, created=created: is_shown(job) and uid_of_board(job) != created, within_seconds=60)  # type: ignore[misc]
            if not is_finished:
                await finish(env, job)


@virtual_time
@pytest.mark.parametrize("change", [{"logDir": "/other"}, {"image": "tensorboard:2"}], ids=str)
async def test_the_pod_is_recreated_when_its_configuration_changes(change: JsonObject) -> None:
    async with kit() as env:
        job = await running(env, with_config(LOGS))
        created = uid_of_board(job)
        touched = {**LOGS, "updateTimestamp": "2030-01-01T00:00:00Z", "ttlSecondsAfterJobFinished": 60}
        await env.edit(job, {"metadata": {"annotations": {ANNOTATION: json.dumps(touched)}}})
        await asyncio.sleep(120)
        assert uid_of_board(job) == created
        await env.edit(job, {"metadata": {"annotations": {ANNOTATION: json.dumps({**LOGS, **change})}}})
        await env.until(job, reached=lambda job: is_shown(job) and uid_of_board(job) != created)
        assert await env.writes_when_idle() == []


@virtual_time
@pytest.mark.parametrize("is_finished", [False, True])
async def test_a_tensorboard_that_is_no_longer_wanted_is_deleted(is_finished: bool) -> None:
    async with kit() as env:
        job = await running(env)
        if is_finished:
            await finish(env, job)
        await env.edit(job, {"spec": {"runPolicy": {"tensorBoard": None}}})
        await env.until(job, reached=is_gone, within_seconds=120)
        assert await env.writes_when_idle() == []
        assert job.phase == ("Succeeded" if is_finished else "Running")


class OverQuota:
    """The server rejects the create."""

    def before(self, transport: FaultyTransport, request: Request) -> Response | None:
        return Response(403, {"content-type": JSON}, json.dumps(QUOTA).encode())

    def after(self, transport: FaultyTransport, request: Request) -> None:
        pass


def is_create_of_board(request: Request) -> bool:
    body = request.body if isinstance(request.body, bytes) else json.dumps(request.body).encode()
    return request.method == "POST" and request.path.endswith("/pods") and BOARD.encode() in body


@virtual_time
@pytest.mark.parametrize("is_finished", [False, True])
async def test_a_rejected_pod_is_retried_with_back_off_and_reported_once(is_finished: bool) -> None:
    async with kit() as env:
        env.operator.transport.inject_faults_by(lambda _, request: OverQuota() if is_create_of_board(request) else None)
        job = await env.submit(pair(tensorBoard={**LOGS, "ttlSecondsAfterJobFinished": 86_400}))
        await env.until(job, phase="Running")
        if is_finished:
            await finish(env, job)
        before = len(env.writes)
        await asyncio.sleep(3600)
        attempts = [write for write in env.writes[before:] if is_create_of_board(write.request)]
        assert 25 < len(attempts) < 60
        assert [str(write) for write in env.writes[before:] if "/events/" in write.request.path] == []
        assert messages(job, "FailedCreate") == [f"pod {BOARD} could not be created: exceeded quota: team; the job continues without it"]
        env.operator.transport.inject_faults_by(lambda _number, _request: None)
        await env.until(job, reached=is_shown, within_seconds=200)


@virtual_time
async def test_a_rejected_pod_neither_blocks_the_job_nor_delays_the_replacement_of_a_replica() -> None:
    async with kit() as env:
        env.operator.transport.inject_faults_by(lambda _, request: OverQuota() if is_create_of_board(request) else None)
        job = await env.submit(pair(tensorBoard=LOGS))
        await env.until(job, phase="Running")
        await asyncio.sleep(1000)
        assert "blocked" not in job.status["dlop"]
        evicted = job.pods["pair-worker-0"]["metadata"]["uid"]
        await env.kubelet.perform("default/pair-worker-0", Evict())
        await env.until(job, reached=lambda job: _uid(job, "pair-worker-0") not in ("", evicted), within_seconds=10)


class BrokenWebhook(OverQuota):
    """The server fails, because an admission webhook does not answer."""

    def before(self, transport: FaultyTransport, request: Request) -> Response | None:
        body = {"kind": "Status", "status": "Failure", "code": 500, "reason": "InternalError", "message": "failed calling webhook: timeout"}
        return Response(500, {"content-type": JSON}, json.dumps(body).encode())


@virtual_time
async def test_a_service_of_another_owner_does_not_delay_the_replacement_of_a_replica() -> None:
    async with kit() as env:
        job = await env.submit(pair())
        await env.until(job, phase="Running")
        other: JsonObject = {"metadata": {"name": BOARD}, "spec": {"ports": [{"port": 1}]}}
        await env.client.create(SERVICES, {"apiVersion": "v1", "kind": "Service", **other}, namespace="default")
        await env.edit(job, {"spec": {"runPolicy": {"tensorBoard": LOGS, "startDeadlineSeconds": 60}}})
        await env.until(job, reached=lambda job: BOARD in job.pods)
        await asyncio.sleep(300)
        evicted = _uid(job, "pair-worker-0")
        await env.kubelet.perform("default/pair-worker-0", Evict())
        await env.until(job, reached=lambda job: _uid(job, "pair-worker-0") not in ("", evicted), within_seconds=60)
        await asyncio.sleep(300)
        assert job.phase == "Running"
        assert messages(job, "FailedCreate") == [
            f"service {BOARD} could not be created: the name is already used; the job continues without it"
        ]


@virtual_time
async def test_a_server_that_fails_to_create_the_pod_does_not_hold_up_the_job() -> None:
    async with kit() as env:
        env.operator.transport.inject_faults_by(lambda _, request: BrokenWebhook() if is_create_of_board(request) else None)
        job = await env.submit(pair(tensorBoard=LOGS))
        await env.until(job, phase="Running", within_seconds=30)
        await asyncio.sleep(1000)
        evicted = job.pods["pair-worker-0"]["metadata"]["uid"]
        await env.kubelet.perform("default/pair-worker-0", Evict())
        await env.until(job, reached=lambda job: _uid(job, "pair-worker-0") not in ("", evicted), within_seconds=10)
        env.operator.transport.inject_faults_by(lambda _number, _request: None)
        await env.until(job, reached=is_shown, within_seconds=200)


def _uid(job: ObservedJob, pod: str) -> str:
    return str(job.pods.get(pod, {"metadata": {"uid": ""}})["metadata"]["uid"])


@virtual_time
async def test_a_pod_of_another_owner_with_the_name_is_left_alone_and_awaited() -> None:
    async with kit() as env:
        foreign = {"metadata": {"name": BOARD}, "spec": {"containers": [{"name": "main", "image": "other:1"}]}}
        await env.client.create(PODS, {"apiVersion": "v1", "kind": "Pod", **foreign}, namespace="default")
        job = await env.submit(pair(tensorBoard=LOGS))
        await env.until(job, phase="Running")
        assert await env.writes_when_idle() == []
        assert messages(job, "FailedCreate") == [
            f"pod {BOARD} could not be created: the name is already used; the job continues without it"
        ]
        await env.client.delete(PODS, BOARD, namespace="default")
        await env.until(job, reached=is_shown, within_seconds=60)


@virtual_time
async def test_the_ingress_follows_the_configuration_and_goes_with_the_tensorboard() -> None:
    async with kit() as env:
        await apply(env.client, [INGRESS_CRD], report=lambda _: None)
        job = await running(env, pair(tensorBoard={**LOGS, "ingress": {"host": "boards.example.org", "annotations": {"team": "blue"}}}))
        created = uid_of_board(job)
        ingress = job.children(INGRESSES.qualified_name)[BOARD]
        assert ingress["spec"]["rules"][0]["host"] == "boards.example.org"
        await env.edit(job, {"spec": {"runPolicy": {"tensorBoard": {"ingress": {"annotations": {"team": "red"}}}}}})
        await asyncio.sleep(60)
        assert job.children(INGRESSES.qualified_name)[BOARD]["metadata"]["annotations"]["team"] == "red"
        await finish(env, job)
        await env.client.delete(INGRESSES, BOARD, namespace="default")
        await env.until(job, reached=lambda job: bool(job.children(INGRESSES.qualified_name)), within_seconds=60)
        assert uid_of_board(job) == created
        await env.until(job, reached=lambda job: is_gone(job) and not job.children(INGRESSES.qualified_name), within_seconds=700)
        assert await env.writes_when_idle() == []


@virtual_time
async def test_an_ingress_that_the_cluster_does_not_serve_blocks_the_job_with_a_reason() -> None:
    async with kit() as env:
        job = await env.submit(pair(tensorBoard={**LOGS, "ingress": {"host": "boards.example.org"}}))
        await env.until(job, reached=lambda job: "blocked" in job.status.get("dlop", {}))
        assert job.status["dlop"]["blocked"]["message"] == (
            "the cluster does not serve ingresses.networking.k8s.io, which this job needs: "
            "use a cluster that serves them, or remove the fields that ask for them"
        )
        await env.edit(job, {"spec": {"runPolicy": {"tensorBoard": {"ingress": None}}}})
        await running_again(env, job)


@virtual_time
async def test_a_running_job_without_the_ingress_says_so_and_replaces_its_pods() -> None:
    async with kit() as env:
        job = await env.submit(pair(tensorBoard=LOGS, startDeadlineSeconds=60))
        await env.until(job, phase="Running")
        await env.edit(job, {"spec": {"runPolicy": {"tensorBoard": {"ingress": {"host": "boards.example.org"}}}}})
        await env.until(job, reached=lambda job: "blocked" in job.status["dlop"])
        assert "the cluster does not serve ingresses.networking.k8s.io" in job.status["dlop"]["blocked"]["message"]
        await asyncio.sleep(300)
        evicted = _uid(job, "pair-worker-0")
        await env.kubelet.perform("default/pair-worker-0", Evict())
        await env.until(job, phase="Running", reached=lambda job: _uid(job, "pair-worker-0") not in ("", evicted), within_seconds=60)
        await asyncio.sleep(60)
        assert await env.writes_when_idle() == []


async def running_again(env: OperatorKit, job: ObservedJob) -> None:
    await env.until(job, phase="Running", reached=is_shown, within_seconds=300)


# --- takeover from KubeDL -------------------------------------------------------------------------------------------------


def uids(job: ObservedJob) -> set[str]:
    """The UIDs of the objects of the TensorBoard."""
    children = (job.children(resource.qualified_name).get(BOARD) for resource in (PODS, SERVICES, INGRESSES))
    return {child["metadata"]["uid"] for child in children if child is not None}


async def create_board_of_kubedl(env: OperatorKit, job: ObservedJob, config: Any) -> None:
    """The pod, the service and the Ingress that KubeDL creates."""
    metadata, kind = job.body["metadata"], PairJob.job_type
    owner = {"apiVersion": kind.api_version, "kind": kind.kind, "name": metadata["name"], "uid": metadata["uid"], "controller": True}
    labels: JsonObject = {"replica-type": "tensorboard", "replica-index": "0", "replica-name": BOARD}
    common: JsonObject = {"name": BOARD, "ownerReferences": [owner]}
    pod = {"metadata": {**common, "labels": {**labels, "job-name": "pair"}, "annotations": {ANNOTATION: json.dumps(config)}}}
    service = {"metadata": {**common, "labels": labels}, "spec": {"clusterIP": "None", "selector": labels, "ports": [{"port": 6006}]}}
    containers = [{"name": "tensorboard", "image": "i"}]
    await env.client.create(PODS, {"apiVersion": "v1", "kind": "Pod", **pod, "spec": {"containers": containers}}, namespace="default")
    await env.client.create(SERVICES, {"apiVersion": "v1", "kind": "Service", **service}, namespace="default")
    if "ingressSpec" in config:
        metadata = {**common, "labels": {"job-name": "pair"}, "annotations": {ANNOTATION: json.dumps(config)}}
        ingress = {"apiVersion": INGRESSES.api_version, "kind": INGRESSES.kind, "metadata": metadata, "spec": {"rules": []}}
        await env.client.create(INGRESSES, ingress, namespace="default")


@virtual_time
async def test_a_tensorboard_of_kubedl_is_taken_over_and_not_replaced() -> None:
    async with OperatorKit([PairJob], operator=False) as env:
        await apply(env.client, [INGRESS_CRD], report=lambda _: None)
        config = {**LOGS, "updateTimestamp": "2025-01-01T00:00:00Z", "ingressSpec": {"host": "boards.example.org"}}
        job = await env.submit(with_config({**config, "updateTimestamp": "2025-01-02T00:00:00Z"}))
        await create_board_of_kubedl(env, job, config)
        created = uids(job)
        await env.start_operator()
        await env.until(job, phase="Running")
        await finish(env, job)
        await asyncio.sleep(500)
        assert uids(job) == created
        await env.until(job, reached=lambda job: uids(job) == set(), within_seconds=200)
        assert await env.writes_when_idle() == []


@virtual_time
async def test_a_tensorboard_of_kubedl_with_another_configuration_is_replaced() -> None:
    async with OperatorKit([PairJob], operator=False) as env:
        job = await env.submit(with_config(LOGS))
        await create_board_of_kubedl(env, job, {"logDir": "/old"})
        created = uid_of_board(job)
        await env.start_operator()
        await env.until(job, phase="Running", reached=lambda job: is_shown(job) and uid_of_board(job) != created)


# --- bad input ------------------------------------------------------------------------------------------------------------


@virtual_time
async def test_an_invalid_annotation_of_a_running_job_is_reported_and_disturbs_nothing() -> None:
    async with kit() as env:
        job = await running(env, with_config(LOGS))
        pods = {name: pod["metadata"]["uid"] for name, pod in job.pods.items()}
        await env.edit(job, {"metadata": {"annotations": {ANNOTATION: "{"}}})
        await env.until(job, reached=lambda job: "blocked" in job.status["dlop"])
        assert job.status["dlop"]["blocked"]["message"].startswith(f"metadata.annotations[{ANNOTATION}]: must be JSON")
        await asyncio.sleep(600)
        assert {name: pod["metadata"]["uid"] for name, pod in job.pods.items()} == pods
        await env.edit(job, {"metadata": {"annotations": {ANNOTATION: json.dumps(LOGS)}}})
        await env.until(job, phase="Running", reached=lambda job: "blocked" not in job.status["dlop"])
