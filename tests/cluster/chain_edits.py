"""What people do to the spec of a job.

Some edits are right, some the API server must refuse, some only the operator sees through, and some only come out when
pods are made. Every edit is a function that changes the wish (see `chain_kinds`) that it gets with its pen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

from hypothesis import strategies as st

from dlop.kube.types import JsonObject
from tests.cluster.chain_kinds import Kind, Wish

T = TypeVar("T")


class Draw(Protocol):
    """How values are had from hypothesis."""

    def __call__(self, strategy: st.SearchStrategy[T]) -> T: ...


@dataclass(frozen=True)
class Pen:
    """What an edit is made with: where values come from, and what is edited."""

    draw: Draw
    kind: Kind
    wish: Wish

    def pick(self, values: Sequence[T]) -> T:
        """One of these."""
        return self.draw(st.sampled_from(values))

    def role(self) -> JsonObject:
        """One of the roles that the wish has."""
        role: JsonObject = self.pick(self.wish["roles"])
        return role

    def named(self, name: str) -> JsonObject:
        """The role of that name, which is added if the wish does not have it."""
        found: list[JsonObject] = [role for role in self.wish["roles"] if role["name"].casefold() == name.casefold()]
        if not found:
            found = [self.kind.new_role(name)]
            self.wish["roles"] += found
        return found[0]

    def missing(self) -> list[str]:
        """The roles that the wish does not have."""
        present = {role["name"].casefold() for role in self.wish["roles"]}
        return [role.name for role in self.kind.roles if role.name.casefold() not in present]

    def free_role(self) -> str:
        """A role that a job of the kind need not have."""
        return next(role.name for role in self.kind.roles if not role.required)


class Done(NamedTuple):
    """What an edit did, and the field that somebody must complain about by name, if somebody must."""

    what: str
    field: str = ""


Edit = Callable[[Pen], Done]


# --- right ones ------------------------------------------------------------------------------------------------------


def scale(pen: Pen) -> Done:
    role = pen.role()
    limits = pen.kind.role(role["name"])
    numbers = range(limits.minimum, (3 if limits.maximum is None else limits.maximum) + 1)
    others = [number for number in numbers if number != role["replicas"]]
    if not others:
        return edit_image(pen)
    role["replicas"] = pen.pick(others)
    return Done(f"{role['replicas']} of {role['name']}")


def add_role(pen: Pen) -> Done:
    missing = pen.missing()
    if not missing or len(pen.wish["roles"]) >= len(pen.kind.roles):
        return remove_role(pen)
    name = pen.pick(missing)
    pen.wish["roles"].insert(pen.draw(st.integers(0, len(pen.wish["roles"]))), pen.kind.new_role(name))
    return Done(f"with {name}")


def remove_role(pen: Pen) -> Done:
    free = [role for role in pen.wish["roles"] if not pen.kind.role(role["name"]).required]
    if not free:
        return edit_image(pen)
    role = pen.pick(free)
    pen.wish["roles"].remove(role)
    return Done(f"without {role['name']}")


def edit_image(pen: Pen) -> Done:
    role = pen.role()
    image = _container(role)["image"] = f"example.org/train:{pen.draw(st.integers(2, 9))}"
    return Done(f"{role['name']} runs {image}")


def edit_environment(pen: Pen) -> Done:
    role = pen.role()
    # The last two are the operator's own: what the user says goes first.
    name = pen.pick(("EPOCHS", "DATA", "DMLC_ROLE", "CREW"))
    value = pen.pick(("", "1", "$(DATA)/x", "ü {{x}} %s"))
    _container(role)["env"] = [{"name": name, "value": value}]
    return Done(f"{role['name']} has {name}={value!r}")


def edit_command(pen: Pen) -> Done:
    role = pen.role()
    command = _container(role)["command"] = ["train", pen.pick(("--fast", "--slow"))]
    return Done(f"{role['name']} calls {command}")


def edit_metadata(pen: Pen) -> Done:
    role = pen.role()
    part = pen.pick(("labels", "annotations"))
    values = pen.draw(st.dictionaries(st.sampled_from(("team", "example.org/cost")), st.sampled_from(("a", "b")), max_size=2))
    role["template"].setdefault("metadata", {})[part] = values
    return Done(f"{role['name']} has {part} {values}")


def edit_containers(pen: Pen) -> Done:
    role = pen.role()
    containers = role["template"]["spec"]["containers"]
    if len(containers) > 1:
        del containers[1:]
        return Done(f"{role['name']} has no sidecar")
    containers.append({"name": "sidecar", "image": "example.org/logs:1"})
    return Done(f"{role['name']} has a sidecar")


def edit_ports(pen: Pen) -> Done:
    role = pen.role()
    name = pen.pick((pen.kind.framework.container_properties.port_name, "metrics"))
    ports = _container(role)["ports"] = [{"name": name, "containerPort": pen.draw(st.integers(7001, 7003))}]
    return Done(f"{role['name']} listens on {ports}")


def edit_restart_policy(pen: Pen) -> Done:
    role = pen.role()
    policy = role["restartPolicy"] = pen.pick(("Always", "OnFailure", "Never", "ExitCode"))
    return Done(f"{role['name']} restarts {policy}")


def edit_policy(pen: Pen) -> Done:
    choices: dict[str, tuple[Any, ...]] = {
        "backoffLimit": (None, 0, 3),
        "disruptionLimit": (None, 0),
        "activeDeadlineSeconds": (None, 3600, 0),
        "startDeadlineSeconds": (None, 3600),
        "ttlSecondsAfterFinished": (None, 3600),
        "cleanPodPolicy": (None, "All", "Running", "None"),
        "restartScope": (None, "Replica", "Role", "Job"),
    }
    name = pen.pick(tuple(choices))
    return _set(pen.wish["policy"], name, pen.pick(choices[name]))


def suspend(pen: Pen) -> Done:
    return _set(pen.wish["policy"], "suspend", not pen.wish["policy"].get("suspend", False))


def edit_seed_fields(pen: Pen) -> Done:
    choices: dict[str, tuple[Any, ...]] = {
        "RuntimeId": (None, "run1", "run2"),
        "schedulerName": (None, "gang"),
        "terminationPolicy": (None, {"chief": {"replicaName": "SCHEDULER", "replicaIndex": 0}}),
    }
    name = pen.pick(tuple(choices))
    return _set(pen.wish["more"], name, pen.pick(choices[name]))


def reorder(pen: Pen) -> Done:
    pen.wish["roles"].reverse()
    return Done("roles the other way round")


# --- wrong ones -------------------------------------------------------------------------------------------------------


def impossible_replicas(pen: Pen) -> Done:
    return _set(pen.role(), "replicas", pen.pick((-1, 10_001, "two", 1.5)), field="replicas")


def no_containers(pen: Pen) -> Done:
    return _set(pen.role()["template"]["spec"], "containers", [], field="containers")


def no_image(pen: Pen) -> Done:
    return _set(_container(pen.role()), "image", pen.pick(("", None, 7)), field="image")


def no_template(pen: Pen) -> Done:
    return _set(pen.role(), "template", {}, field="template")


def labels_that_are_no_texts(pen: Pen) -> Done:
    return _set(pen.role()["template"], "metadata", {"labels": {"team": 7}}, field="labels")


def unknown_role(pen: Pen) -> Done:
    pen.role()["name"] = "Boss"
    return Done("a Boss", "Type" if pen.kind.roles_are_listed else "replicaSpecs")


def too_many_chiefs(pen: Pen) -> Done:
    pen.named("Chief")["replicas"] = 2
    return Done("two chiefs", "replicaSpecs")


def no_required_role(pen: Pen) -> Done:
    free = [role for role in pen.wish["roles"] if not pen.kind.role(role["name"]).required]
    pen.wish["roles"] = free or [pen.kind.new_role(pen.free_role())]
    return Done("without the role that has to be there", _roles_field(pen.kind))


def unknown_restart_policy(pen: Pen) -> Done:
    return _set(pen.role(), "restartPolicy", "Sometimes", field="restartPolicy")


def wrong_policy(pen: Pen) -> Done:
    wrong = {"suspend": "yes", "backoffLimit": -1, "activeDeadlineSeconds": "1h", "cleanPodPolicy": "Some", "restartScope": 3}
    name = pen.pick(tuple(wrong))
    return _set(pen.wish["policy"], name, wrong[name], field=name)


def wrong_port(pen: Pen) -> Done:
    return _set(pen.role(), "mxPort", pen.pick((0, 65_536, "http")), field="mxPort")


def wrong_container_port(pen: Pen) -> Done:
    return _set(_container(pen.role()), "ports", [{"containerPort": pen.pick((0, 65_536))}], field="ports")


def nameless_variable(pen: Pen) -> Done:
    return _set(_container(pen.role()), "env", [{"value": "1"}], field="env")


def nameless_volume(pen: Pen) -> Done:
    return _set(pen.role()["template"]["spec"], "volumes", [{"emptyDir": {}}], field="volumes")


def role_twice(pen: Pen) -> Done:
    """In a list the same again; in a mapping with other letters, which mean the same role."""
    name = pen.free_role()
    pen.wish["roles"] = [role for role in pen.wish["roles"] if pen.kind.role(role["name"]).required]
    pen.wish["roles"] += [pen.kind.new_role(name), pen.kind.new_role(name if pen.kind.roles_are_listed else name.upper())]
    return Done(f"{name} twice", _roles_field(pen.kind))


def two_schedulers(pen: Pen) -> Done:
    pen.named("SCHEDULER")["replicas"] = 2
    return Done("two schedulers", "replicas")


def no_such_chief(pen: Pen) -> Done:
    chief = {"replicaName": pen.pick(("WORKER", "SCHEDULER", "BOSS")), "replicaIndex": 9}
    return _set(pen.wish["more"], "terminationPolicy", {"chief": chief}, field="terminationPolicy.chief")


def wrong_runtime_id(pen: Pen) -> Done:
    return _set(pen.wish["more"], "RuntimeId", "Not_A_Name", field="RuntimeId")


def other_container(pen: Pen) -> Done:
    return _set(_container(pen.role()), "name", "other", field="container")


# --- those whose pods the API server refuses -------------------------------------------------------------------------


def unbearable_label(pen: Pen) -> Done:
    return _set(pen.role()["template"], "metadata", {"labels": {"team": "not valid!"}})


def unbearable_variable(pen: Pen) -> Done:
    return _set(_container(pen.role()), "env", [{"name": "A=B", "value": "1"}])


def unbearable_sidecar(pen: Pen) -> Done:
    role = pen.role()
    role["template"]["spec"]["containers"].append(dict(_container(role)))
    return Done(f"{role['name']} has two containers of one name")


# --- which there are for a kind --------------------------------------------------------------------------------------


def right_edits(kind: Kind) -> list[Edit]:
    found: list[Edit] = [scale, scale, add_role, remove_role, edit_image, edit_environment, edit_command, edit_metadata, edit_containers]
    found += [edit_ports, edit_restart_policy]
    found += [edit_policy, edit_policy, suspend, suspend] if kind.has_policy else []
    found += [reorder] if kind.roles_are_listed else []
    return [*found, edit_seed_fields] if kind.name == "fioravanzo" else found


def modest_edits(kind: Kind) -> list[Edit]:
    """Right ones that mend nothing and that look at no part in which something may be wrong."""
    return [suspend, edit_policy] if kind.has_policy else [reorder]


def refused_edits(kind: Kind) -> list[Edit]:
    """What the API server must refuse."""
    return _wrong_edits(kind) if kind.is_described else []


def odd_edits(kind: Kind) -> list[Edit]:
    """What only the operator sees through."""
    found: list[Edit] = [wrong_container_port, nameless_variable, nameless_volume]
    # That the case of letters does not matter is known to no schema.
    found += [] if kind.roles_are_listed else [role_twice]
    return found if kind.is_described else found + _wrong_edits(kind)


def _wrong_edits(kind: Kind) -> list[Edit]:
    found: list[Edit] = [impossible_replicas, no_containers, no_image, no_template, labels_that_are_no_texts, unknown_role]
    found += [no_required_role, unknown_restart_policy]
    found += [wrong_policy] if kind.has_policy else []
    found += [role_twice] if kind.roles_are_listed else [too_many_chiefs]
    found += [two_schedulers] if "SCHEDULER" in [role.name for role in kind.roles] else []
    return [*found, wrong_port, no_such_chief, wrong_runtime_id, other_container] if kind.name == "fioravanzo" else found


def unbearable_edits(_: Kind) -> list[Edit]:
    return [unbearable_label, unbearable_variable, unbearable_sidecar]


def _roles_field(kind: Kind) -> str:
    return "replicaSpecs" if kind.has_policy else "spec"


def _container(role: JsonObject) -> JsonObject:
    container: JsonObject = role["template"]["spec"]["containers"][0]
    return container


def _set(where: JsonObject, name: str, value: Any, *, field: str = "") -> Done:
    """Write a value, or take the field out where there is none."""
    if value is None:
        where.pop(name, None)
    else:
        where[name] = value
    return Done(f"{name} is {value!r}", field)
