"""Roles and role bindings. They are enforced in `dlop.embedded.apiserver.authorization`."""

from __future__ import annotations

from dlop.embedded.apiserver.api_errors import FieldError
from dlop.embedded.apiserver.core.base import BuiltinStrategy, builtin_type, column, columns, enum_errors, get_nested, invalid, required
from dlop.embedded.apiserver.name_validation import path_segment_errors, subdomain_errors
from dlop.embedded.apiserver.resource_type import ResourceType, TableColumn, Timestamp
from dlop.kube.resources import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, ROLE_BINDINGS, ROLES, Resource
from dlop.kube.types import JsonObject

_GROUP = "rbac.authorization.k8s.io"


class _RbacStrategy(BuiltinStrategy):
    def validate_name(self, name: str) -> list[str]:
        return path_segment_errors(name)


class _RoleStrategy(_RbacStrategy):
    def validate(self, body: JsonObject, old: JsonObject | None, *, subresource: str | None) -> list[FieldError]:
        errors = super().validate(body, old, subresource=subresource)
        for index, rule in enumerate(body.get("rules") or ()):
            errors += _rule_errors(rule, f"rules[{index}]", namespaced=bool(body["metadata"].get("namespace")))
        return errors


def _rule_errors(rule: JsonObject, path: str, *, namespaced: bool) -> list[FieldError]:
    errors = [] if rule.get("verbs") else [required(f"{path}.verbs", "verbs must contain at least one value")]
    if urls := rule.get("nonResourceURLs"):
        urls_path = f"{path}.nonResourceURLs"
        if namespaced:
            errors.append(invalid(urls_path, urls, "namespaced rules cannot apply to non-resource URLs"))
        if any(rule.get(field) for field in ("apiGroups", "resources", "resourceNames")):
            errors.append(invalid(urls_path, urls, "rules cannot apply to both regular resources and non-resource URLs"))
        return errors
    if not rule.get("apiGroups"):
        errors.append(required(f"{path}.apiGroups", "resource rules must supply at least one api group"))
    if not rule.get("resources"):
        errors.append(required(f"{path}.resources", "resource rules must supply at least one resource"))
    return errors


class _BindingStrategy(_RbacStrategy):
    def prepare_create(self, body: JsonObject, *, now: Timestamp) -> JsonObject:
        body["roleRef"] = {"apiGroup": _GROUP, **{key: value for key, value in body["roleRef"].items() if value}}
        if subjects := body.get("subjects"):
            body["subjects"] = [_with_api_group(subject) for subject in subjects]
        return body

    def prepare_update(self, body: JsonObject, old: JsonObject, *, now: Timestamp) -> JsonObject:
        return self.prepare_create(body, now=now)

    def validate(self, body: JsonObject, old: JsonObject | None, *, subresource: str | None) -> list[FieldError]:
        errors = super().validate(body, old, subresource=subresource)
        role = body["roleRef"]
        kinds = ("Role", "ClusterRole") if body["metadata"].get("namespace") else ("ClusterRole",)
        errors += enum_errors("roleRef.apiGroup", role["apiGroup"], (_GROUP,))
        errors += enum_errors("roleRef.kind", role.get("kind", ""), kinds)
        if not role.get("name"):
            errors.append(required("roleRef.name"))
        for index, subject in enumerate(body.get("subjects") or ()):
            errors += _subject_errors(subject, f"subjects[{index}]", namespaced=bool(body["metadata"].get("namespace")))
        if old is not None and role != old["roleRef"]:
            role_ref = {"APIGroup": role["apiGroup"], "Kind": role.get("kind", ""), "Name": role.get("name", "")}
            errors.append(invalid("roleRef", role_ref, "cannot change roleRef"))
        return errors


def _with_api_group(subject: JsonObject) -> JsonObject:
    if subject.get("apiGroup") or subject.get("kind") not in ("User", "Group"):
        return subject
    return {**subject, "apiGroup": _GROUP}


def _subject_errors(subject: JsonObject, path: str, *, namespaced: bool) -> list[FieldError]:
    name, kind = subject.get("name", ""), subject.get("kind", "")
    errors = [] if name else [required(f"{path}.name")]
    if kind == "ServiceAccount":
        errors += [invalid(f"{path}.name", name, detail) for detail in subdomain_errors(name)] if name else []
        errors += enum_errors(f"{path}.apiGroup", subject.get("apiGroup", ""), ("",))
        # The namespace of a service account defaults to that of the role binding.
        return errors if subject.get("namespace") or namespaced else [*errors, required(f"{path}.namespace")]
    if kind in ("User", "Group"):
        return errors + enum_errors(f"{path}.apiGroup", subject.get("apiGroup"), (_GROUP,))
    return errors + enum_errors(f"{path}.kind", kind, ("ServiceAccount", "User", "Group"))


def _subjects_column(kind: str, name: str) -> TableColumn:
    def names(binding: JsonObject) -> str:
        matching = [subject for subject in binding.get("subjects") or () if subject.get("kind") == kind]
        if kind == "ServiceAccount":
            return ", ".join(f"{subject.get('namespace', '')}/{subject.get('name', '')}" for subject in matching)
        return ", ".join(subject.get("name", "") for subject in matching)

    return column(name, names, priority=1)


def _role_type(resource: Resource, extra: tuple[TableColumn, ...]) -> ResourceType:
    go_type = f"rbac.v1.{resource.kind}"
    return builtin_type(resource, go_type, strategy=_RoleStrategy(go_type), columns=extra, creates_on_update=True)


def _binding_type(resource: Resource) -> ResourceType:
    role = column("Role", lambda binding: f"{get_nested(binding, 'roleRef', 'kind')}/{get_nested(binding, 'roleRef', 'name')}")
    wide = (_subjects_column("User", "Users"), _subjects_column("Group", "Groups"), _subjects_column("ServiceAccount", "ServiceAccounts"))
    go_type = f"rbac.v1.{resource.kind}"
    return builtin_type(
        resource, go_type, strategy=_BindingStrategy(go_type), columns=columns(role, after_age=wide), creates_on_update=True
    )


def rbac_types() -> list[ResourceType]:
    """roles, rolebindings, clusterroles and clusterrolebindings."""
    created = TableColumn(name="Created At", type="date", cell=lambda body, _: body["metadata"].get("creationTimestamp"))
    roles = (columns()[0], created)
    return [
        _role_type(ROLES, roles),
        _binding_type(ROLE_BINDINGS),
        _role_type(CLUSTER_ROLES, roles),
        _binding_type(CLUSTER_ROLE_BINDINGS),
    ]
