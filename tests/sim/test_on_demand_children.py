"""Child objects of a resource that is watched only from the first job on that needs it."""

from __future__ import annotations

from typing import Any, ClassVar

from dlop.api.child_objects import Create
from dlop.embedded.apiserver.faults import RequestMatch
from dlop.kube.errors import NotFoundError
from dlop.kube.resources import CONFIG_MAPS
from dlop.kube.types import JsonObject
from dlop.policies import ChildObjects
from dlop.testing.virtual_time import virtual_time
from tests.sim.operator_env import NAMESPACE, OperatorEnv, operator_env, ring, settle
from tests.sim.ring_job import RingJob

FORBIDDEN = {"kind": "Status", "status": "Failure", "code": 403, "reason": "Forbidden", "message": "cannot list configmaps"}


class Notes(ChildObjects[RingJob]):
    """A config map for jobs whose spec has notes."""

    resources = (CONFIG_MAPS,)
    on_demand = True

    def build(self, job: RingJob) -> tuple[Create, ...]:
        notes = job.spec_field.get("notes").string()
        if not notes:
            return ()
        metadata = job.child_metadata(f"{job.metadata.name}-notes")
        return (Create(CONFIG_MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"notes": notes}}),)


class NotesJob(RingJob):
    children: ClassVar[tuple[ChildObjects[Any], ...]] = (Notes(),)


def with_notes(name: str = "ring") -> JsonObject:
    manifest = ring(name)
    return {**manifest, "spec": {**manifest["spec"], "notes": "seen"}}


def reads_of_config_maps(env: OperatorEnv) -> int:
    return sum(1 for request in env.transport.requests if "configmaps" in request.path)


async def has_notes(env: OperatorEnv, name: str = "ring-notes") -> bool:
    try:
        await env.client.get(CONFIG_MAPS, name, namespace=NAMESPACE)
    except NotFoundError:
        return False
    return True


@virtual_time
async def test_a_resource_that_no_job_needs_is_not_read() -> None:
    async with operator_env() as env, env.run_operator(job_class=NotesJob):
        await env.submit(ring())
        await settle(3600)
        assert len(await env.pods()) == 3
        assert reads_of_config_maps(env) == 0


@virtual_time
async def test_the_child_object_of_the_first_job_that_needs_one_is_created_before_its_pods() -> None:
    async with operator_env() as env, env.run_operator(job_class=NotesJob):
        await env.submit(with_notes())
        await settle()
        posts = [request.path.rsplit("/", 1)[1] for request in env.writes(method="POST")]
        assert posts == ["configmaps"] + ["services"] * 3 + ["pods"] * 3
        await env.client.delete(CONFIG_MAPS, "ring-notes", namespace=NAMESPACE)
        await settle()
        assert await has_notes(env)


@virtual_time
async def test_a_child_object_that_is_no_longer_needed_is_deleted_by_the_next_operator() -> None:
    async with operator_env() as env:
        async with env.run_operator(job_class=NotesJob):
            await env.submit(with_notes())
            await settle()
        await env.client.patch(RingJob.job_type.resource, "ring", {"spec": {"notes": None}}, namespace=NAMESPACE)
        async with env.run_operator(job_class=NotesJob, identity="two"):
            await settle()
            assert not await has_notes(env)
            assert len(await env.pods()) == 3


@virtual_time
async def test_a_job_is_blocked_until_the_operator_may_read_the_resource_and_others_are_not() -> None:
    async with operator_env() as env, env.run_operator(job_class=NotesJob):
        env.faults.fail_before(FORBIDDEN, match=RequestMatch(verb="list", plural="configmaps"), times=3)
        await env.submit(with_notes())
        await env.submit(ring("plain"))
        await settle(3)
        assert len(await env.pods()) == 3
        blocked = (await env.status())["dlop"]["blocked"]
        assert (blocked["reason"], "configmaps" in blocked["message"]) == ("Forbidden", True)
        await settle(120)
        assert len(await env.pods()) == 6
        assert "blocked" not in (await env.status())["dlop"]


@virtual_time
async def test_a_failed_read_of_the_resource_is_retried() -> None:
    error = {"kind": "Status", "status": "Failure", "code": 500, "reason": "InternalError", "message": "boom"}
    async with operator_env() as env, env.run_operator(job_class=NotesJob):
        env.faults.fail_before(error, match=RequestMatch(verb="list", plural="configmaps"), times=2)
        await env.submit(with_notes())
        await settle(120)
        assert await has_notes(env)
        assert len(await env.pods()) == 3
