"""An operator without the permission set for MPI jobs: these jobs are blocked with a hint, and other kinds are not affected."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from dlop.embedded.apiserver.faults import Faults, RequestMatch
from dlop.frameworks.kubeflow.mpi.job import MPIJob
from dlop.frameworks.kubeflow.pytorchjob import PyTorchJob
from dlop.kube.resources import HORIZONTAL_POD_AUTOSCALERS, ROLES
from dlop.kube.types import JsonObject
from dlop.testing.kit import OperatorKit
from dlop.testing.observed_job import ObservedJob
from dlop.testing.virtual_time import virtual_time
from tests.frameworks.kubeflow_jobs import all_run, created, job, message_of, mpi_job

ALWAYS = 1_000_000
HINT = (
    "add `--with mpi:default`, or `--with mpi` for all namespaces, to the `dlop deploy` line that was used, "
    "or `kubectl apply -f manifests/kubeflow/permissions.yaml`"
)


def forbidden(plural: str, *, group: str = "", verb: str = "list") -> JsonObject:
    message = (
        f'{plural} is forbidden: User "system:serviceaccount:dlop-system:dlop" cannot {verb} resource "{plural}" in API group "{group}"'
    )
    return {"kind": "Status", "status": "Failure", "code": 403, "reason": "Forbidden", "message": message}


@asynccontextmanager
async def open_restricted_kit(*plurals: str, verb: str = "list") -> AsyncIterator[tuple[OperatorKit, Faults]]:
    async with OperatorKit([MPIJob, PyTorchJob], operator=False) as kit:
        server = kit.new_server()
        for plural in plurals:
            server.faults.fail_before(forbidden(plural, verb=verb), match=RequestMatch(plural=plural, verb=verb), times=ALWAYS)
        await kit.start_operator(server)
        yield kit, server.faults


def is_blocked(view: ObservedJob) -> bool:
    return view.condition("Blocked") is not None


def forbidden_events(view: ObservedJob) -> Iterator[str]:
    return (message for reason, message in view.events if reason == "Forbidden")


@virtual_time
async def test_a_blocked_mpi_job_names_the_missing_permissions_and_how_to_grant_them() -> None:
    async with open_restricted_kit("serviceaccounts", "roles", "rolebindings") as (kit, _):
        demo = await kit.submit(mpi_job())
        await kit.until(demo, reached=is_blocked, within_seconds=10)
        missing = "serviceaccounts, roles.rbac.authorization.k8s.io, rolebindings.rbac.authorization.k8s.io"
        message = f"the operator is not allowed to read {missing}, which this job needs: {HINT}"
        condition = demo.condition("Blocked") or {}
        assert (condition["reason"], condition["message"]) == ("Forbidden", message)
        assert await kit.writes_when_idle() == []
        assert list(forbidden_events(demo)) == [message]
        assert [plural for plural in ("pods", "configmaps") if created(kit, plural)] == []


@virtual_time
async def test_jobs_of_other_kinds_are_not_blocked() -> None:
    async with open_restricted_kit("serviceaccounts", "configmaps", "roles", "rolebindings") as (kit, _):
        await kit.submit(mpi_job())
        await kit.submit(job(PyTorchJob, name="other"))
        await kit.until("default/other", phase="Running", reached=all_run, within_seconds=10)


@virtual_time
async def test_a_blocked_job_runs_after_the_permissions_are_granted() -> None:
    async with open_restricted_kit("serviceaccounts", "roles") as (kit, faults):
        demo = await kit.submit(mpi_job())
        await kit.until(demo, reached=is_blocked, within_seconds=10)
        faults.clear()
        await kit.until(demo, phase="Running", reached=all_run, within_seconds=90)
        assert demo.condition("Blocked") is None
        assert (await kit.client.get(ROLES, "demo-launcher", namespace="default"))["rules"]


@virtual_time
async def test_a_missing_create_permission_is_reported_in_the_same_way() -> None:
    async with open_restricted_kit("roles", verb="create") as (kit, faults):
        demo = await kit.submit(mpi_job())
        await kit.until(demo, reached=is_blocked, within_seconds=10)
        assert (demo.condition("Blocked") or {})["reason"] == "Forbidden"
        assert message_of(demo, "Blocked").endswith(f"; {HINT}")
        faults.clear()
        await kit.until(demo, phase="Running", reached=all_run, within_seconds=180)


@pytest.mark.parametrize("has_metrics", [False, True], ids=["without metrics", "with metrics"])
@virtual_time
async def test_missing_permissions_for_autoscalers_block_only_jobs_that_need_one(has_metrics: bool) -> None:
    metrics = {"metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}]}
    policy = {"minReplicas": 1, "maxReplicas": 2} | (metrics if has_metrics else {})
    async with open_restricted_kit(HORIZONTAL_POD_AUTOSCALERS.plural) as (kit, _):
        demo = await kit.submit(job(PyTorchJob, {"Worker": 1}, elasticPolicy=policy))
        await kit.until(demo, reached=is_blocked if has_metrics else all_run, within_seconds=10)
        assert bool(demo.pods) is not has_metrics
        assert await kit.writes_when_idle() == []
        assert ["--with hpa" in message for message in forbidden_events(demo)] == [True] * has_metrics
