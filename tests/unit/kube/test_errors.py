"""Errors: how responses and Status objects map to error classes."""

from __future__ import annotations

import msgspec
import pytest

from dlop.kube.errors import (
    AlreadyExistsError,
    ConflictError,
    ForbiddenError,
    GoneError,
    InvalidError,
    NotFoundError,
    ServerError,
    StatusError,
    TooManyRequestsError,
    UnauthorizedError,
    error_from_response,
)
from dlop.kube.types import JsonObject


def from_status(code: int, **fields: object) -> StatusError:
    status: JsonObject = {"kind": "Status", "code": code, **fields}
    return error_from_response(code, {}, msgspec.json.encode(status))


@pytest.mark.parametrize(
    ("code", "reason", "error_type"),
    [
        (401, "Unauthorized", UnauthorizedError),
        (403, "Forbidden", ForbiddenError),
        (404, "NotFound", NotFoundError),
        (409, "Conflict", ConflictError),
        (409, "AlreadyExists", AlreadyExistsError),
        (410, "Gone", GoneError),
        (410, "Expired", GoneError),
        (422, "Invalid", InvalidError),
        (429, "TooManyRequests", TooManyRequestsError),
        (500, "InternalError", ServerError),
        (503, "", ServerError),
        (418, "", StatusError),
    ],
)
def test_code_and_reason_choose_the_error_class(code: int, reason: str, error_type: type[StatusError]) -> None:
    error = from_status(code, reason=reason, message="no")
    assert type(error) is error_type
    assert (error.status_code, error.status_reason, str(error)) == (code, reason, "no")


@pytest.mark.parametrize("body", [b"", b"no", b"[]", b"7", b'{"kind":"Pod"}', b"\xff\xfe"])
def test_a_response_without_a_status_keeps_its_code_and_text(body: bytes) -> None:
    error = error_from_response(503, {}, body)
    assert (type(error), error.status_code) == (ServerError, 503)
    assert str(error) == (body.decode(errors="replace") or "the server responded with HTTP 503")


@pytest.mark.parametrize(
    "fields", [{"code": "many"}, {"code": None}, {"details": [1]}, {"details": {"retryAfterSeconds": []}}, {"message": 7}]
)
def test_a_malformed_status_is_still_an_error(fields: JsonObject) -> None:
    error = error_from_response(500, {}, msgspec.json.encode({"kind": "Status", **fields}))
    assert (type(error), error.status_code) == (ServerError, 500)


@pytest.mark.parametrize(
    ("header", "seconds"), [("3", 3.0), ("0", 0.0), ("-5", 0.0), ("0.5", 0.5), ("nan", 0.0), ("Wed, 21 Oct 2026 07:28:00 GMT", 1.0)]
)
def test_retry_after_is_read_from_the_header(header: str, seconds: float) -> None:
    assert error_from_response(429, {"retry-after": header}, b"").retry_after_seconds == seconds


def test_retry_after_is_read_from_the_details_without_a_header() -> None:
    assert from_status(429, details={"retryAfterSeconds": 4}).retry_after_seconds == 4
    assert from_status(429).retry_after_seconds is None


def test_the_causes_name_the_fields() -> None:
    error = from_status(422, details={"causes": [{"reason": "FieldValueRequired", "field": "spec.a", "message": "Required value"}]})
    assert [cause["field"] for cause in error.causes] == ["spec.a"]
    assert error.has_cause("FieldValueRequired")
    assert not error.has_cause("FieldValueInvalid")


def test_a_patch_of_an_object_with_another_uid_is_a_conflict() -> None:
    cause = {"reason": "FieldValueInvalid", "field": "metadata.uid", "message": 'Invalid value: "a": field is immutable'}
    assert type(from_status(422, reason="Invalid", details={"causes": [cause]})) is ConflictError
    assert type(from_status(422, reason="Invalid", details={"causes": [{**cause, "field": "spec.uid"}]})) is InvalidError
    assert type(from_status(422, reason="Invalid", details={"causes": ["metadata.uid"]})) is InvalidError
