"""An operator that was not given the rights for MPI jobs: these jobs say what is missing and how to mend it, and nothing else suffers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from dlop.embedded.apiserver.faults import Faults, Match
from dlop.frameworks.kubeflow.mpi.job import MPIJob
from dlop.frameworks.kubeflow.pytorchjob import PyTorchJob
from dlop.kube.resources import HORIZONTAL_POD_AUTOSCALERS, ROLES
from dlop.kube.types import JsonObject
from dlop.testing.kit import OperatorKit
from dlop.testing.observed_job import ObservedJob
from dlop.testing.virtual_time import virtual_time
from tests.frameworks.kubeflow_jobs import all_run, created, job, message_of, mpi_job

FOR_EVER = 1_000_000
WAY_OUT = "add `--with mpi` to the `dlop deploy` line that was used, or `kubectl apply -f manifests/kubeflow/rights.yaml`"


def forbidden(plural: str, *, group: str = "", verb: str = "list") -> JsonObject:
    message = (
        f'{plural} is forbidden: User "system:serviceaccount:dlop-system:dlop" cannot {verb} resource "{plural}" in API group "{group}"'
    )
    return {"kind": "Status", "status": "Failure", "code": 403, "reason": "Forbidden", "message": message}


@asynccontextmanager
async def without_rights(*plurals: str, verb: str = "list") -> AsyncIterator[tuple[OperatorKit, Faults]]:
    async with OperatorKit([MPIJob, PyTorchJob], operator=False) as kit:
        server = kit.new_server()
        for plural in plurals:
            server.faults.fail_before(forbidden(plural, verb=verb), match=Match(plural=plural, verb=verb), times=FOR_EVER)
        await kit.start_operator(server)
        yield kit, server.faults


def blocked(view: ObservedJob) -> bool:
    return view.condition("Blocked") is not None


def told(view: ObservedJob) -> Iterator[str]:
    return (message for reason, message in view.events if reason == "Forbidden")


@virtual_time
async def test_an_mpi_job_says_which_rights_are_missing_and_how_to_give_them() -> None:
    async with without_rights("serviceaccounts", "roles", "rolebindings") as (kit, _):
        demo = await kit.submit(mpi_job())
        await kit.until(demo, reached=blocked, within_seconds=10)
        missing = "serviceaccounts, roles.rbac.authorization.k8s.io, rolebindings.rbac.authorization.k8s.io"
        sentence = f"the operator may not read {missing}, which this job needs: {WAY_OUT}"
        condition = demo.condition("Blocked") or {}
        assert (condition["reason"], condition["message"]) == ("Forbidden", sentence)
        assert await kit.writes_at_rest() == []
        assert list(told(demo)) == [sentence]
        assert [plural for plural in ("pods", "configmaps") if created(kit, plural)] == []


@virtual_time
async def test_jobs_of_other_kinds_do_not_wait_for_the_rights_of_mpi_jobs() -> None:
    async with without_rights("serviceaccounts", "configmaps", "roles", "rolebindings") as (kit, _):
        await kit.submit(mpi_job())
        await kit.submit(job(PyTorchJob, name="other"))
        await kit.until("default/other", phase="Running", reached=all_run, within_seconds=10)


@virtual_time
async def test_a_job_that_waits_for_rights_runs_soon_after_they_are_given() -> None:
    async with without_rights("serviceaccounts", "roles") as (kit, faults):
        demo = await kit.submit(mpi_job())
        await kit.until(demo, reached=blocked, within_seconds=10)
        faults.clear()
        await kit.until(demo, phase="Running", reached=all_run, within_seconds=90)
        assert demo.condition("Blocked") is None
        assert (await kit.client.get(ROLES, "demo-launcher", namespace="default"))["rules"]


@virtual_time
async def test_a_right_that_is_missing_only_when_something_is_made_is_told_in_the_same_way() -> None:
    async with without_rights("roles", verb="create") as (kit, faults):
        demo = await kit.submit(mpi_job())
        await kit.until(demo, reached=blocked, within_seconds=10)
        assert (demo.condition("Blocked") or {})["reason"] == "Forbidden"
        assert message_of(demo, "Blocked").endswith(f"; {WAY_OUT}")
        faults.clear()
        await kit.until(demo, phase="Running", reached=all_run, within_seconds=180)


@pytest.mark.parametrize("has_metrics", [False, True], ids=["that asks for none", "that asks for one"])
@virtual_time
async def test_who_may_not_see_autoscalers_can_run_every_job_but_one(has_metrics: bool) -> None:
    metrics = {"metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}]}
    policy = {"minReplicas": 1, "maxReplicas": 2} | (metrics if has_metrics else {})
    async with without_rights(HORIZONTAL_POD_AUTOSCALERS.plural) as (kit, _):
        demo = await kit.submit(job(PyTorchJob, {"Worker": 1}, elasticPolicy=policy))
        await kit.until(demo, reached=blocked if has_metrics else all_run, within_seconds=10)
        assert bool(demo.pods) is not has_metrics
