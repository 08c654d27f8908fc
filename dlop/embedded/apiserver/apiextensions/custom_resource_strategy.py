"""The rules that custom resources follow: those that their CRD's schema gives, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from dlop.embedded.apiserver.api_errors import FieldError, FieldErrorType, failure
from dlop.embedded.apiserver.apiextensions.cel import rule_tree
from dlop.embedded.apiserver.apiextensions.list_types import embedded_errors, has_promises, list_errors
from dlop.embedded.apiserver.apiextensions.schema import MISSING, Node
from dlop.embedded.apiserver.core.go_decoder import read
from dlop.embedded.apiserver.resource_type import Moment, Rules, ScalePaths
from dlop.kube.errors import MethodNotAllowedError
from dlop.kube.types import JsonObject

# Errors after which rules are not run: they could stumble over what is already known to be wrong.
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


class CustomResourceRules(Rules):
    """One version of a custom resource."""

    def __init__(self, schema: JsonObject, *, scale: ScalePaths | None = None) -> None:
        self._root = Node({**schema, "x-kubernetes-embedded-resource": True})
        self._rules = rule_tree(self._root)
        self._has_promises = any(has_promises(child) for child in self._root.properties.values())
        self._scale = scale
        self.is_ending = False
        """Whether the CRD is being deleted: then no new objects may come while the old ones go."""

    def prepare_create(self, body: JsonObject, *, moment: Moment) -> JsonObject:
        """Nothing is left to be prepared; but it may be too late.

        Raises:
            MethodNotAllowedError: when the CRD is being deleted.
        """
        if self.is_ending:
            raise failure(MethodNotAllowedError, "create not allowed while custom resource definition is terminating", {})
        return body

    def unknown_fields(self, body: JsonObject) -> tuple[JsonObject, list[str]]:
        """The body without what the schema does not have, with its defaults filled in, and the paths of what was unknown.

        Raises:
            ValueError: when the metadata is not what metadata looks like.
        """
        unknown: list[str] = []
        known = self.read(body, unknown)
        metadata, unknown_metadata = read("meta.v1.ObjectMeta", body.get("metadata") or {})
        unknown += [f"metadata.{path}" for path in unknown_metadata]
        return {**known, "metadata": metadata}, sorted(unknown)

    def read(self, body: JsonObject, unknown: list[str]) -> JsonObject:
        """A body pruned and with its defaults; the body itself when there is nothing to change."""
        filled: JsonObject = self._root.with_defaults(self._root.prune(body, "", unknown))
        return filled

    def validate(self, body: JsonObject, old: JsonObject | None, *, subresource: str | None) -> list[FieldError]:
        """What the schema, the lists' promises and the rules find wrong, in the real server's order."""
        before = MISSING if old is None else old
        errors = self._status_errors(body, before) if subresource == "status" else self._schema_errors(body, before)
        if self._has_promises:
            errors += self._promise_errors(body, old)
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

    def _promise_errors(self, body: JsonObject, old: JsonObject | None) -> list[FieldError]:
        errors = embedded_errors(self._root, body, "")
        # A list that already had duplicates may keep them: it could otherwise never be changed again.
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
    shown = "." + ".".join(path)
    if type(value) is not int:
        kind = _GO_TYPES.get(type(value), "string")
        detail = f"{shown} accessor error: {_go_text(value)} is of the type {kind}, expected int64"
        yield FieldError(FieldErrorType.INVALID, shown, detail, 0)
    elif value < 0:
        yield FieldError(FieldErrorType.INVALID, shown, "should be a non-negative integer", value)
    elif value > _MAX_REPLICAS:
        yield FieldError(FieldErrorType.INVALID, shown, f"should be less than or equal to {_MAX_REPLICAS}", value)


def _go_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
