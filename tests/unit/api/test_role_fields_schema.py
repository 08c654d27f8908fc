"""Specs whose roles are fields of the spec."""

from __future__ import annotations

from typing import Any

from pydantic import RootModel

from dlop import JobSpec, ManifestField, RoleFieldsSchema
from tests.unit.job.jobs import PairJob, template


class AnySpec(RootModel[Any]):
    """Any spec."""


SCHEMA = RoleFieldsSchema(model=AnySpec, scale="Follower", scheduling_path=("gang",))


def read(spec: Any) -> tuple[JobSpec, list[str]]:
    field = ManifestField("spec", spec)
    return SCHEMA.read(field, PairJob), [str(problem) for problem in field.problems]


def test_each_role_is_a_field_of_the_spec() -> None:
    roles = {"Follower": {"replicas": 3, "template": template()}, "Leader": {"template": template()}}
    spec, problems = read({**roles, "runPolicy": {"backoffLimit": 2}})
    assert not problems
    assert [(role.name, role.replicas) for role in spec.roles] == [("Leader", 1), ("Follower", 3)]
    assert spec.run_policy.backoff_limit == 2
    field = ManifestField("spec", roles)
    assert [SCHEMA.replicas_path(field, role) for role in ("leader", "Captain")] == [("Leader", "replicas"), None]
    assert SCHEMA.template_path(field, "Follower") == "spec.Follower.template"


def test_the_scale_subresource_has_the_field_of_a_role() -> None:
    paths = SCHEMA.scale_paths(PairJob)
    assert paths is not None
    assert (paths.spec_replicas, paths.status_replicas) == (".spec.Follower.replicas", ".status.Follower.replicas")
    assert RoleFieldsSchema(model=AnySpec).scale_paths(PairJob) is None


def test_missing_roles_are_reported() -> None:
    assert read({})[1] == ["spec: must contain at least one role with replicas and a template"]
    assert read({"Follower": {"template": template()}})[1] == ["spec: must contain the role Leader"]
    assert read({"Leader": 5})[1] == [
        "spec.Leader: must be an object, got 5",
        "spec.Leader.template: is missing; add the pod template of this role",
    ]


def test_the_options_of_gang_scheduling_have_a_path_of_their_own() -> None:
    roles = {"Leader": {"template": template()}}
    assert read({**roles, "gang": {"queue": "a"}})[0].run_policy.scheduling.queue == "a"
    assert read({**roles, "runPolicy": {"schedulingPolicy": {"queue": "b"}}})[0].run_policy.scheduling.queue == "b"
    assert SCHEMA.used_scheduling_path(ManifestField("spec", roles)) == ("runPolicy", "schedulingPolicy")
