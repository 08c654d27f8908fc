"""Edits of job specs.

Some edits are valid, some must be rejected by the API server, some can only be detected by the operator, and some cause the
creation of pods to fail. Every edit is a function that changes the draft (see `edited_kinds`) of its context.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

from hypothesis import strategies as st

from dlop.kube.types import JsonObject
from tests.cluster.edited_kinds import Draft, EditedKind

T = TypeVar("T")


class Draw(Protocol):
    """The `draw` function of Hypothesis."""

    def __call__(self, strategy: st.SearchStrategy[T]) -> T: ...


@dataclass(frozen=True)
class EditContext:
    """The draft to edit and the source of random values."""

    draw: Draw
    kind: EditedKind
    draft: Draft

    def pick(self, values: Sequence[T]) -> T:
        return self.draw(st.sampled_from(values))

    def role(self) -> JsonObject:
        """Any role of the draft."""
        role: JsonObject = self.pick(self.draft["roles"])
        return role

    def role_named(self, name: str) -> JsonObject:
        """The role with this name. It is added if the draft does not have it."""
        roles: list[JsonObject] = [role for role in self.draft["roles"] if role["name"].casefold() == name.casefold()]
        if not roles:
            roles = [self.kind.new_role(name)]
            self.draft["roles"] += roles
        return roles[0]

    def missing_roles(self) -> list[str]:
        """Roles of the kind that the draft does not have."""
        present = {role["name"].casefold() for role in self.draft["roles"]}
        return [role.name for role in self.kind.roles if role.name.casefold() not in present]

    def optional_role(self) -> str:
        """A role that is not required."""
        return next(role.name for role in self.kind.roles if not role.required)


class EditResult(NamedTuple):
    """A description of the edit, and the field that the error must name; empty if no error is expected."""

    description: str
    field: str = ""


Edit = Callable[[EditContext], EditResult]


# --- valid edits -----------------------------------------------------------------------------------------------------


def scale(context: EditContext) -> EditResult:
    role = context.role()
    limits = context.kind.role(role["name"])
    numbers = range(limits.minimum, (3 if limits.maximum is None else limits.maximum) + 1)
    others = [number for number in numbers if number != role["replicas"]]
    if not others:
        return edit_image(context)
    role["replicas"] = context.pick(others)
    return EditResult(f"{role['replicas']} of {role['name']}")


def add_role(context: EditContext) -> EditResult:
    missing_roles = context.missing_roles()
    if not missing_roles or len(context.draft["roles"]) >= len(context.kind.roles):
        return remove_role(context)
    name = context.pick(missing_roles)
    context.draft["roles"].insert(context.draw(st.integers(0, len(context.draft["roles"]))), context.kind.new_role(name))
    return EditResult(f"with {name}")


def remove_role(context: EditContext) -> EditResult:
    free = [role for role in context.draft["roles"] if not context.kind.role(role["name"]).required]
    if not free:
        return edit_image(context)
    role = context.pick(free)
    context.draft["roles"].remove(role)
    return EditResult(f"without {role['name']}")


def edit_image(context: EditContext) -> EditResult:
    role = context.role()
    image = _container(role)["image"] = f"example.org/train:{context.draw(st.integers(2, 9))}"
    return EditResult(f"{role['name']} runs {image}")


def edit_environment(context: EditContext) -> EditResult:
    role = context.role()
    # The operator sets the last two. Values of the user take precedence.
    name = context.pick(("EPOCHS", "DATA", "DMLC_ROLE", "CREW"))
    value = context.pick(("", "1", "$(DATA)/x", "ü {{x}} %s"))
    _container(role)["env"] = [{"name": name, "value": value}]
    return EditResult(f"{role['name']} has {name}={value!r}")


def edit_command(context: EditContext) -> EditResult:
    role = context.role()
    command = _container(role)["command"] = ["train", context.pick(("--fast", "--slow"))]
    return EditResult(f"{role['name']} calls {command}")


def edit_metadata(context: EditContext) -> EditResult:
    role = context.role()
    part = context.pick(("labels", "annotations"))
    values = context.draw(st.dictionaries(st.sampled_from(("team", "example.org/cost")), st.sampled_from(("a", "b")), max_size=2))
    role["template"].setdefault("metadata", {})[part] = values
    return EditResult(f"{role['name']} has {part} {values}")


def edit_containers(context: EditContext) -> EditResult:
    role = context.role()
    containers = role["template"]["spec"]["containers"]
    if len(containers) > 1:
        del containers[1:]
        return EditResult(f"{role['name']} has no sidecar")
    containers.append({"name": "sidecar", "image": "example.org/logs:1"})
    return EditResult(f"{role['name']} has a sidecar")


def edit_ports(context: EditContext) -> EditResult:
    role = context.role()
    name = context.pick((context.kind.framework.container_properties.port_name, "metrics"))
    ports = _container(role)["ports"] = [{"name": name, "containerPort": context.draw(st.integers(7001, 7003))}]
    return EditResult(f"{role['name']} listens on {ports}")


def edit_restart_policy(context: EditContext) -> EditResult:
    role = context.role()
    policy = role["restartPolicy"] = context.pick(("Always", "OnFailure", "Never", "ExitCode"))
    return EditResult(f"{role['name']} restarts {policy}")


def edit_policy(context: EditContext) -> EditResult:
    choices: dict[str, tuple[Any, ...]] = {
        "backoffLimit": (None, 0, 3),
        "disruptionLimit": (None, 0),
        "activeDeadlineSeconds": (None, 3600, 0),
        "startDeadlineSeconds": (None, 3600),
        "ttlSecondsAfterFinished": (None, 3600),
        "cleanPodPolicy": (None, "All", "Running", "None"),
        "restartScope": (None, "Replica", "Role", "Job"),
    }
    name = context.pick(tuple(choices))
    return _set(context.draft["policy"], name, context.pick(choices[name]))


def suspend(context: EditContext) -> EditResult:
    return _set(context.draft["policy"], "suspend", not context.draft["policy"].get("suspend", False))


def edit_seed_fields(context: EditContext) -> EditResult:
    choices: dict[str, tuple[Any, ...]] = {
        "RuntimeId": (None, "run1", "run2"),
        "schedulerName": (None, "gang"),
        "terminationPolicy": (None, {"chief": {"replicaName": "SCHEDULER", "replicaIndex": 0}}),
    }
    name = context.pick(tuple(choices))
    return _set(context.draft["more"], name, context.pick(choices[name]))


def reorder(context: EditContext) -> EditResult:
    context.draft["roles"].reverse()
    return EditResult("roles in reverse order")


# --- invalid edits ---------------------------------------------------------------------------------------------------


def invalid_replicas(context: EditContext) -> EditResult:
    return _set(context.role(), "replicas", context.pick((-1, 10_001, "two", 1.5)), field="replicas")


def no_containers(context: EditContext) -> EditResult:
    return _set(context.role()["template"]["spec"], "containers", [], field="containers")


def no_image(context: EditContext) -> EditResult:
    return _set(_container(context.role()), "image", context.pick(("", None, 7)), field="image")


def no_template(context: EditContext) -> EditResult:
    return _set(context.role(), "template", {}, field="template")


def non_string_labels(context: EditContext) -> EditResult:
    return _set(context.role()["template"], "metadata", {"labels": {"team": 7}}, field="labels")


def unknown_role(context: EditContext) -> EditResult:
    context.role()["name"] = "Boss"
    return EditResult("a Boss", "Type" if context.kind.has_role_list else "replicaSpecs")


def too_many_chiefs(context: EditContext) -> EditResult:
    context.role_named("Chief")["replicas"] = 2
    return EditResult("two chiefs", "replicaSpecs")


def no_required_role(context: EditContext) -> EditResult:
    free = [role for role in context.draft["roles"] if not context.kind.role(role["name"]).required]
    context.draft["roles"] = free or [context.kind.new_role(context.optional_role())]
    return EditResult("without the required role", _roles_field(context.kind))


def unknown_restart_policy(context: EditContext) -> EditResult:
    return _set(context.role(), "restartPolicy", "Sometimes", field="restartPolicy")


def invalid_policy(context: EditContext) -> EditResult:
    wrong = {"suspend": "yes", "backoffLimit": -1, "activeDeadlineSeconds": "1h", "cleanPodPolicy": "Some", "restartScope": 3}
    name = context.pick(tuple(wrong))
    return _set(context.draft["policy"], name, wrong[name], field=name)


def invalid_port(context: EditContext) -> EditResult:
    return _set(context.role(), "mxPort", context.pick((0, 65_536, "http")), field="mxPort")


def invalid_container_port(context: EditContext) -> EditResult:
    return _set(_container(context.role()), "ports", [{"containerPort": context.pick((0, 65_536))}], field="ports")


def unnamed_variable(context: EditContext) -> EditResult:
    return _set(_container(context.role()), "env", [{"value": "1"}], field="env")


def unnamed_volume(context: EditContext) -> EditResult:
    return _set(context.role()["template"]["spec"], "volumes", [{"emptyDir": {}}], field="volumes")


def duplicate_role(context: EditContext) -> EditResult:
    """The same role twice in a list; in a mapping, two keys that differ only in case."""
    name = context.optional_role()
    context.draft["roles"] = [role for role in context.draft["roles"] if context.kind.role(role["name"]).required]
    context.draft["roles"] += [context.kind.new_role(name), context.kind.new_role(name if context.kind.has_role_list else name.upper())]
    return EditResult(f"duplicate {name}", _roles_field(context.kind))


def two_schedulers(context: EditContext) -> EditResult:
    context.role_named("SCHEDULER")["replicas"] = 2
    return EditResult("two schedulers", "replicas")


def unknown_chief(context: EditContext) -> EditResult:
    chief = {"replicaName": context.pick(("WORKER", "SCHEDULER", "BOSS")), "replicaIndex": 9}
    return _set(context.draft["more"], "terminationPolicy", {"chief": chief}, field="terminationPolicy.chief")


def invalid_runtime_id(context: EditContext) -> EditResult:
    return _set(context.draft["more"], "RuntimeId", "Not_A_Name", field="RuntimeId")


def unknown_container(context: EditContext) -> EditResult:
    return _set(_container(context.role()), "name", "other", field="container")


# --- edits whose pods the API server rejects -------------------------------------------------------------------------


def invalid_label(context: EditContext) -> EditResult:
    return _set(context.role()["template"], "metadata", {"labels": {"team": "not valid!"}})


def invalid_variable_name(context: EditContext) -> EditResult:
    return _set(_container(context.role()), "env", [{"name": "A=B", "value": "1"}])


def duplicate_container(context: EditContext) -> EditResult:
    role = context.role()
    role["template"]["spec"]["containers"].append(dict(_container(role)))
    return EditResult(f"{role['name']} has two containers with the same name")


# --- edits that apply to a kind --------------------------------------------------------------------------------------


def valid_edits(kind: EditedKind) -> list[Edit]:
    edits: list[Edit] = [scale, scale, add_role, remove_role, edit_image, edit_environment, edit_command, edit_metadata, edit_containers]
    edits += [edit_ports, edit_restart_policy]
    edits += [edit_policy, edit_policy, suspend, suspend] if kind.has_policy else []
    edits += [reorder] if kind.has_role_list else []
    return [*edits, edit_seed_fields] if kind.name == "fioravanzo" else edits


def unrelated_edits(kind: EditedKind) -> list[Edit]:
    """Valid edits that do not touch the parts of the spec in which an error can be."""
    return [suspend, edit_policy] if kind.has_policy else [reorder]


def rejected_edits(kind: EditedKind) -> list[Edit]:
    return _schema_violations(kind) if kind.has_schema else []


def invalid_edits(kind: EditedKind) -> list[Edit]:
    """Edits that the schema accepts and the operator must report."""
    edits: list[Edit] = [invalid_container_port, unnamed_variable, unnamed_volume]
    # A schema cannot express that role names are case-insensitive.
    edits += [] if kind.has_role_list else [duplicate_role]
    return edits if kind.has_schema else edits + _schema_violations(kind)


def _schema_violations(kind: EditedKind) -> list[Edit]:
    edits: list[Edit] = [invalid_replicas, no_containers, no_image, no_template, non_string_labels, unknown_role]
    edits += [no_required_role, unknown_restart_policy]
    edits += [invalid_policy] if kind.has_policy else []
    edits += [duplicate_role] if kind.has_role_list else [too_many_chiefs]
    edits += [two_schedulers] if "SCHEDULER" in [role.name for role in kind.roles] else []
    return [*edits, invalid_port, unknown_chief, invalid_runtime_id, unknown_container] if kind.name == "fioravanzo" else edits


def pod_rejected_edits(_: EditedKind) -> list[Edit]:
    return [invalid_label, invalid_variable_name, duplicate_container]


def _roles_field(kind: EditedKind) -> str:
    return "replicaSpecs" if kind.has_policy else "spec"


def _container(role: JsonObject) -> JsonObject:
    container: JsonObject = role["template"]["spec"]["containers"][0]
    return container


def _set(target: JsonObject, name: str, value: Any, *, field: str = "") -> EditResult:
    """Set a field, or remove it if the value is None."""
    if value is None:
        target.pop(name, None)
    else:
        target[name] = value
    return EditResult(f"{name} is {value!r}", field)
