"""Options of a request, parsed from its query and, for deletes, its body, and validated as kube-apiserver does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from dlop.embedded.apiserver.api_errors import FieldError, FieldErrorType, bad_request, invalid_options
from dlop.embedded.apiserver.request_info import RequestInfo, Verb
from dlop.embedded.apiserver.selectors import EVERYTHING, Selector, parse_selector
from dlop.kube.types import JsonObject

EXACT = "Exact"
NOT_OLDER_THAN = "NotOlderThan"


class FieldValidation(StrEnum):
    """How unknown fields are reported. They are dropped unless the request is rejected."""

    IGNORE = "Ignore"
    WARN = "Warn"
    STRICT = "Strict"


class PropagationPolicy(StrEnum):
    """What a delete does to the dependents of the object."""

    BACKGROUND = "Background"
    FOREGROUND = "Foreground"
    ORPHAN = "Orphan"


def _ignore_warning(_: str) -> None:
    pass


def _admit_all(_: JsonObject, __: JsonObject | None) -> None:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """Options of create, update and patch."""

    dry_run: bool = False
    field_validation: FieldValidation = FieldValidation.IGNORE
    duplicate_fields: tuple[str, ...] = ()
    """Paths of fields that the body has more than once. The last value wins; they are reported like unknown fields."""
    warn: Callable[[str], None] = _ignore_warning
    """Called with each message for the `Warning` header of the response."""
    admit: Callable[[JsonObject, JsonObject | None], None] = _admit_all
    """Called before validation with the new and the old object, which is None on create. Raises a StatusError to reject the write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOptions:
    """Options of delete and deletecollection."""

    dry_run: bool = False
    uid: str | None = None
    resource_version: str | None = None
    grace_seconds: int | None = None
    propagation: PropagationPolicy | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOptions:
    """Options of list and deletecollection, and those that watch shares with list."""

    selector: Selector = field(default=EVERYTHING)
    limit: int = 0
    """Maximum number of objects; 0 means no limit."""
    continue_token: str = ""
    resource_version: str = ""
    resource_version_match: str = ""


_WRITE_KINDS = {Verb.CREATE: "CreateOptions", Verb.UPDATE: "UpdateOptions", Verb.PATCH: "PatchOptions"}


def write_options(info: RequestInfo, *, duplicate_fields: tuple[str, ...], warn: Callable[[str], None]) -> WriteOptions:
    """The options of a create, update or patch.

    Raises:
        InvalidError: an option has an unsupported value.
    """
    errors: list[FieldError] = []
    dry_run = info.query.get("dryRun", "")
    if dry_run not in ("", "All"):
        errors.append(_unsupported("dryRun", [dry_run], ["All"]))
    validation = info.query.get("fieldValidation", "")
    if validation and validation not in list(FieldValidation):
        errors.append(_unsupported("fieldValidation", validation, ["", *sorted(FieldValidation)]))
    if errors:
        raise invalid_options(_WRITE_KINDS[info.verb], errors)
    return WriteOptions(
        dry_run=dry_run == "All",
        field_validation=FieldValidation(validation or "Warn"),
        duplicate_fields=duplicate_fields,
        warn=warn,
    )


def list_options(info: RequestInfo) -> ListOptions:
    """The options of a list.

    Raises:
        StatusError: they are malformed or contradict each other.
    """
    options = _common_list_options(info)
    errors = _list_errors(info, options)
    if errors:
        raise invalid_options("ListOptions", errors)
    return options


def watch_options(info: RequestInfo) -> ListOptions:
    """The options that a watch shares with a list.

    Raises:
        StatusError: they are malformed or contradict each other.
    """
    options = _common_list_options(info)
    errors = _watch_errors(info, options)
    if errors:
        raise invalid_options("ListOptions", errors)
    return options


def delete_options(info: RequestInfo, body: JsonObject | None) -> DeleteOptions:
    """The options of a delete, from the body if there is one, else from the query.

    Raises:
        StatusError: they are malformed or contradict each other.
    """
    return _parse_delete_options(_delete_options_from_query(info)) if body is None else body_delete_options(body)


def body_delete_options(body: JsonObject) -> DeleteOptions:
    """The options of a delete from a DeleteOptions object.

    Raises:
        StatusError: they are malformed or contradict each other.
    """
    _check_delete_types(body)
    return _parse_delete_options(body)


def _parse_delete_options(raw: JsonObject) -> DeleteOptions:
    policy, orphan = raw.get("propagationPolicy"), raw.get("orphanDependents")
    _check_delete_options(raw, policy, orphan)
    if policy is None and orphan is not None:
        policy = PropagationPolicy.ORPHAN if orphan else PropagationPolicy.BACKGROUND
    grace = raw.get("gracePeriodSeconds")
    preconditions = raw.get("preconditions") or {}
    return DeleteOptions(
        dry_run=bool(raw.get("dryRun")),
        uid=preconditions.get("uid"),
        resource_version=preconditions.get("resourceVersion"),
        # kube-apiserver treats a negative grace period as one second.
        grace_seconds=1 if grace is not None and grace < 0 else grace,
        propagation=None if policy is None else PropagationPolicy(policy),
    )


def _common_list_options(info: RequestInfo) -> ListOptions:
    query = info.query
    return ListOptions(
        selector=parse_selector(info.type, labels=query.get("labelSelector", ""), fields=query.get("fieldSelector", "")),
        limit=info.number("limit"),
        continue_token=query.get("continue", ""),
        resource_version=query.get("resourceVersion", ""),
        resource_version_match=query.get("resourceVersionMatch", ""),
    )


def _list_errors(info: RequestInfo, options: ListOptions) -> list[FieldError]:
    errors: list[FieldError] = []
    match = options.resource_version_match
    if match:
        errors += _match_errors(options, match)
    if "sendInitialEvents" in info.query:
        errors.append(_forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"))
    return errors


def _match_errors(options: ListOptions, match: str) -> list[FieldError]:
    errors: list[FieldError] = []
    field = "resourceVersionMatch"
    if not options.resource_version:
        errors.append(_forbidden(field, "resourceVersionMatch is forbidden unless resourceVersion is provided"))
    if options.continue_token:
        errors.append(_forbidden(field, "resourceVersionMatch is forbidden when continue is provided"))
    if match not in (EXACT, NOT_OLDER_THAN):
        errors.append(_unsupported(field, match, [EXACT, NOT_OLDER_THAN, ""]))
    if match == EXACT and options.resource_version == "0":
        errors.append(_forbidden(field, 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'))
    return errors


def _watch_errors(info: RequestInfo, options: ListOptions) -> list[FieldError]:
    errors: list[FieldError] = []
    field, match = "resourceVersionMatch", options.resource_version_match
    if "sendInitialEvents" in info.query:
        if match != NOT_OLDER_THAN:
            errors.append(_forbidden(field, f"sendInitialEvents requires setting resourceVersionMatch to {NOT_OLDER_THAN}"))
        if match not in ("", NOT_OLDER_THAN):
            errors.append(_unsupported(field, match, [NOT_OLDER_THAN]))
    elif match:
        errors.append(_forbidden(field, "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"))
    if options.continue_token and (match or options.resource_version in ("", "0")):
        errors.append(_forbidden(field, "resourceVersionMatch is forbidden when continue is provided"))
    return errors


def _delete_options_from_query(info: RequestInfo) -> JsonObject:
    query = info.query
    raw: JsonObject = {}
    if "gracePeriodSeconds" in query:
        raw["gracePeriodSeconds"] = info.number("gracePeriodSeconds")
    if "propagationPolicy" in query:
        raw["propagationPolicy"] = query["propagationPolicy"]
    if "orphanDependents" in query:
        raw["orphanDependents"] = info.flag("orphanDependents")
    if query.get("dryRun"):
        raw["dryRun"] = [query["dryRun"]]
    return raw


def _check_delete_types(body: JsonObject) -> None:
    kind, api_version = body.get("kind") or "DeleteOptions", body.get("apiVersion") or "v1"
    if kind != "DeleteOptions":
        raise bad_request(f'no kind "{kind}" is registered for version "{api_version}" in scheme "pkg/runtime/scheme.go:111"')
    _check_type(body, "gracePeriodSeconds", int, "int64")
    _check_type(body, "orphanDependents", bool, "bool")
    _check_type(body, "propagationPolicy", str, "v1.DeletionPropagation")
    _check_type(body, "preconditions", dict, "v1.Preconditions")
    _check_type(body, "dryRun", list, "[]string")
    for name in ("uid", "resourceVersion"):
        _check_type(body.get("preconditions") or {}, name, str, "string")


def _check_type(body: JsonObject, name: str, expected: type, go_type: str) -> None:
    value = body.get(name)
    if value is not None and value.__class__ is not expected:
        json_type = {str: "string", bool: "bool", int: "number", float: "number", list: "array", dict: "object"}[value.__class__]
        raise bad_request(f"json: cannot unmarshal {json_type} into Go struct field DeleteOptions.{name} of type {go_type}")


def _check_delete_options(raw: JsonObject, policy: str | None, orphan: bool | None) -> None:  # noqa: FBT001
    errors: list[FieldError] = []
    if policy is not None and orphan is not None:
        detail = "orphanDependents and deletionPropagation cannot be both set"
        errors.append(FieldError(FieldErrorType.INVALID, "propagationPolicy", detail, policy))
    if policy is not None and policy not in list(PropagationPolicy):
        errors.append(_unsupported("propagationPolicy", policy, ["Foreground", "Background", "Orphan", "nil"]))
    if raw.get("dryRun") not in (None, [], ["All"]):
        errors.append(_unsupported("dryRun", raw["dryRun"], ["All"]))
    if errors:
        raise invalid_options("DeleteOptions", errors)


def _unsupported(field: str, value: Any, supported: list[str]) -> FieldError:
    quoted = ", ".join(f'"{option}"' for option in supported)
    return FieldError(FieldErrorType.NOT_SUPPORTED, field, f"supported values: {quoted}", value)


def _forbidden(field: str, detail: str) -> FieldError:
    return FieldError(FieldErrorType.FORBIDDEN, field, detail)
