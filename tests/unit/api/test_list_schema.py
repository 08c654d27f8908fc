"""Specs whose roles are a list, with and without an enclosing object."""

from __future__ import annotations

from typing import Any

from pydantic import RootModel

from dlop import JobSpec, ListSchema, ManifestField
from tests.unit.job.jobs import PairJob, template


class AnySpec(RootModel[Any]):
    """Any spec."""


INSIDE = ListSchema(field="entries", type_field="role", default_type="Leader", port_field="port", model=AnySpec)
BARE = ListSchema(field="", type_field="role", model=AnySpec, suspend_path=None)


def read(schema: ListSchema, spec: Any) -> tuple[JobSpec, list[str]]:
    field = ManifestField("spec", spec)
    return schema.read(field, PairJob), [str(problem) for problem in field.problems]


def test_entries_name_their_role_and_port() -> None:
    entries = [{"role": "Follower", "replicas": 3, "template": template()}, {"port": 99, "template": template()}]
    spec, problems = read(INSIDE, {"entries": entries, "runPolicy": {"backoffLimit": 2}})
    assert not problems
    assert [(role.name, role.replicas, role.port) for role in spec.roles] == [("Leader", 1, 99), ("Follower", 3, None)]
    assert spec.run_policy.backoff_limit == 2
    field = ManifestField("spec", {"entries": entries})
    assert [INSIDE.replicas_path(field, role) for role in ("Leader", "Follower", "Captain")] == [
        ("entries", 1, "replicas"),
        ("entries", 0, "replicas"),
        None,
    ]
    assert INSIDE.template_path(field, "Follower") == "spec.entries[0].template"


def test_a_spec_that_is_a_list_has_no_run_policy() -> None:
    spec, problems = read(BARE, [{"role": "Leader", "template": template()}])
    assert (problems, [role.name for role in spec.roles]) == ([], ["Leader"])
    assert BARE.replicas_path(ManifestField("spec", [{"role": "Leader"}]), "Leader") == (0, "replicas")
    spec, problems = read(BARE, {"runPolicy": {"ttlSecondsAfterFinished": 5}})
    assert problems == ["spec: must be a list, got an object"]
    assert spec.run_policy.ttl_seconds_after_finished is None


def test_unknown_and_duplicate_roles_are_reported_at_their_entries() -> None:
    entries = [{"role": role, "template": template()} for role in ("Leader", "Captain", "Leader")]
    assert read(INSIDE, {"entries": entries})[1] == [
        "spec.entries[1].role: must be one of Leader, Follower, got 'Captain'",
        "spec.entries[2].role: duplicates the role Leader; only one entry per role is allowed",
    ]
