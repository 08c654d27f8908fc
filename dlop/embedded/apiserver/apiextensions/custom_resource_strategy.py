"""Strategy of custom resources: pruning, defaulting and validation by the schema of the CRD."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from dlop.embedded.apiserver.api_errors import FieldError, FieldErrorType, status_error
from dlop.embedded.apiserver.apiextensions.cel import rule_tree
from dlop.embedded.apiserver.apiextensions.list_types import embedded_errors, list_errors, needs_list_or_embedded_checks
from dlop.embedded.apiserver.apiextensions.schema import MISSING, SchemaNode
from dlop.embedded.apiserver.core.go_decoder import decode
from dlop.embedded.apiserver.resource_type import ScaleFieldPaths, Strategy, Timestamp
from dlop.kube.errors import MethodNotAllowedError
from dlop.kube.types import JsonObject

# Errors after which CEL rules do not run, because they could fail on the invalid values.
_BLOCKING = frozenset(
    {
        FieldErrorType.NOT_SUPPORTED,
        FieldErrorType.REQUIRED,
        FieldErrorType.TOO_LONG,
        FieldErrorType.TOO_MANY,
        FieldErrorType.TYPE_INVALID,
    }
)
_NOT_RUN = "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation"
_MAX_REPLICAS = 2**31 - 1
_GO_TYPES = {str: "string", bool: "bool", float: "float64", list: "[]interface {}", dict: "map[string]interface {}"}


class CustomResourceStrategy(Strategy):
    """Strategy of one version of a custom resource."""

    def __init__(self, schema: JsonObject, *, scale: ScaleFieldPaths | None = None) -> None:
        self._root = SchemaNode({**schema, "x-kubernetes-embedded-resource": True})
        self._rules = rule_tree(self._root)
        self._needs_list_or_embedded_checks = any(needs_list_or_embedded_checks(child) for child in self._root.properties.values())
        self._scale = scale
        self.crd_terminating = False
        """Whether the CRD is being deleted. Objects can no longer be created then."""

    def prepare_create(self, body: JsonObject, *, now: Timestamp) -> JsonObject:
        """Check that the CRD is not being deleted.

        Raises:
            MethodNotAllowedError: the CRD is being deleted.
        """
        if self.crd_terminating:
            raise status_error(MethodNotAllowedError, "create not allowed while custom resource definition is terminating", {})
        return body

    def prune_unknown_fields(self, body: JsonObject) -> tuple[JsonObject, list[str]]:
        """The pruned body with defaults, and the paths of unknown fields.

        Raises:
            ValueError: the metadata has values of the wrong type.
        """
        unknown: list[str] = []
        known = self.prune(body, unknown)
        metadata, unknown_metadata = decode("meta.v1.ObjectMeta", body.get("metadata") or {})
        unknown += [f"metadata.{path}" for path in unknown_metadata]
        return {**known, "metadata": metadata}, sorted(unknown)

    def prune(self, body: JsonObject, unknown: list[str]) -> JsonObject:
        """The pruned body with defaults. Returns `body` itself if nothing changes."""
        filled: JsonObject = self._root.with_defaults(self._root.prune(body, "", unknown))
        return filled

    def validate(self, body: JsonObject, old: JsonObject | None, *, subresource: str | None) -> list[FieldError]:
        """The errors of the schema, of list types and embedded objects, and of CEL rules, in this order."""
        before = MISSING if old is None else old
        errors = self._status_errors(body, before) if subresource == "status" else self._schema_errors(body, before)
        if self._needs_list_or_embedded_checks:
            errors += self._list_and_embedded_errors(body, old)
        if self._rules is None:
            return errors
        if any(error.type in _BLOCKING for error in errors):
            return [*errors, FieldError(FieldErrorType.INVALID, "<nil>", _NOT_RUN, None)]
        self._rules.check(body, before, "", errors)
        return errors

    def _schema_errors(self, body: JsonObject, before: Any) -> list[FieldError]:
        errors: list[FieldError] = []
        self._root.check(body, before, "", errors)
        if self._scale is not None:
            errors += _replicas_errors(body, self._scale.spec_replicas)
            errors += _replicas_errors(body, self._scale.status_replicas)
        return errors

    def _status_errors(self, body: JsonObject, before: Any) -> list[FieldError]:
        errors: list[FieldError] = []
        node = self._root.properties.get("status")
        if node is not None and "status" in body:
            node.check(body["status"], before.get("status", MISSING), "", errors)
            errors = [_under_status(error) for error in errors]
        if self._scale is not None:
            errors += _replicas_errors(body, self._scale.status_replicas)
        return errors

    def _list_and_embedded_errors(self, body: JsonObject, old: JsonObject | None) -> list[FieldError]:
        errors = embedded_errors(self._root, body, "")
        # Existing duplicates are tolerated, because otherwise the object could not be updated.
        if old is None or not list_errors(self._root, old, ""):
            errors += list_errors(self._root, body, "")
        return errors


def _under_status(error: FieldError) -> FieldError:
    return replace(error, path="status" if error.path == "<nil>" else f"status.{error.path}")


def _replicas_errors(body: JsonObject, path: tuple[str, ...]) -> Iterator[FieldError]:
    value: Any = body
    for name in path:
        value = value.get(name, MISSING) if isinstance(value, dict) else MISSING
    if value is MISSING or value is None:
        return
    field_path = "." + ".".join(path)
    if type(value) is not int:
        kind = _GO_TYPES.get(type(value), "string")
        detail = f"{field_path} accessor error: {_go_text(value)} is of the type {kind}, expected int64"
        yield FieldError(FieldErrorType.INVALID, field_path, detail, 0)
    elif value < 0:
        yield FieldError(FieldErrorType.INVALID, field_path, "should be a non-negative integer", value)
    elif value > _MAX_REPLICAS:
        yield FieldError(FieldErrorType.INVALID, field_path, f"should be less than or equal to {_MAX_REPLICAS}", value)


def _go_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
