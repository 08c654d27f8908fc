"""Errors of calls to the API server.

KubeError
├── ConfigurationError        no usable kubeconfig or service account; the message names the file and how to fix the problem
├── NotLeaderError            a write without leadership; nothing was sent
├── RequestCancelledError     a low-priority request was cancelled while it waited for a slot; nothing was sent
├── TransportError            no response to a read, or nothing was sent; nothing has changed
├── AmbiguousWriteError       a write was sent and no response arrived; it may or may not have succeeded
└── StatusError               the server responded with a Status
    ├── BadRequestError UnauthorizedError ForbiddenError NotFoundError MethodNotAllowedError NotAcceptableError
    ├── ConflictError         the object has changed, or another precondition failed
    │   └── AlreadyExistsError
    ├── GoneError             the resource version is no longer available; also reason Expired
    ├── RequestTooLargeError UnsupportedMediaTypeError InvalidError TooManyRequestsError
    └── ServerError           5xx
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec


class KubeError(Exception):
    """Base class of all errors of this package."""


class ConfigurationError(KubeError):
    """No usable kubeconfig or service account. The message names the file and how to fix the problem."""


class NotLeaderError(KubeError):
    """A write was not sent because this process does not hold the lease."""


class RequestCancelledError(KubeError):
    """A low-priority request was cancelled by its `cancel_if` while it waited for a slot. Nothing was sent."""


class TransportError(KubeError):
    """The server could not be reached, or a read was cut off. Nothing has changed; a retry is safe."""


class AmbiguousWriteError(KubeError):
    """A write was sent and its response was lost. Read the object to find out whether the write succeeded."""


class StatusError(KubeError):
    """The server rejected the call; `status` is its Status object."""

    # Defaults for a Status without code or reason. The embedded server also uses them to build its responses.
    code: ClassVar[int] = 0
    reason: ClassVar[str] = ""

    def __init__(self, status: Mapping[str, Any], *, retry_after_seconds: float | None = None) -> None:
        self.status = dict(status)
        self.retry_after_seconds = retry_after_seconds
        super().__init__(str(status.get("message") or status.get("reason") or f"HTTP {status.get('code')}"))

    @property
    def status_code(self) -> int:
        return int(self.status.get("code") or self.code)

    @property
    def status_reason(self) -> str:
        """The machine-readable reason, e.g. `AlreadyExists`; empty if the server gave none."""
        return str(self.status.get("reason") or "")

    @property
    def details(self) -> Mapping[str, Any]:
        """StatusDetails: name, kind, group, uid, causes, retryAfterSeconds."""
        return self.status.get("details") or {}

    @property
    def causes(self) -> list[Mapping[str, str]]:
        """One entry per invalid field: `reason`, `message`, `field`."""
        return list(self.details.get("causes") or [])

    def has_cause(self, reason: str) -> bool:
        return any(cause.get("reason") == reason for cause in self.causes)


class BadRequestError(StatusError):
    """400: the request is malformed."""

    code, reason = 400, "BadRequest"


class UnauthorizedError(StatusError):
    """401: no credentials, or expired ones."""

    code, reason = 401, "Unauthorized"


class ForbiddenError(StatusError):
    """403: denied by RBAC, a quota or a webhook, or the namespace is terminating."""

    code, reason = 403, "Forbidden"


class NotFoundError(StatusError):
    """404: no such object, or no such resource."""

    code, reason = 404, "NotFound"


class MethodNotAllowedError(StatusError):
    """405: the resource does not support the verb."""

    code, reason = 405, "MethodNotAllowed"


class NotAcceptableError(StatusError):
    """406: the server cannot respond in the requested media type."""

    code, reason = 406, "NotAcceptable"


class ConflictError(StatusError):
    """409: the object changed since it was read, or a precondition does not hold."""

    code, reason = 409, "Conflict"


class AlreadyExistsError(ConflictError):
    """409: an object of that name exists."""

    code, reason = 409, "AlreadyExists"


class GoneError(StatusError):
    """410: the resource version was compacted."""

    code, reason = 410, "Expired"


class RequestTooLargeError(StatusError):
    """413: the body exceeds the server's limit."""

    code, reason = 413, "RequestEntityTooLarge"


class UnsupportedMediaTypeError(StatusError):
    """415: the server does not accept the content type of the body."""

    code, reason = 415, "UnsupportedMediaType"


class InvalidError(StatusError):
    """422: the object is invalid; `causes` names the fields."""

    code, reason = 422, "Invalid"


class TooManyRequestsError(StatusError):
    """429: the server is overloaded or limits this client."""

    code, reason = 429, "TooManyRequests"


class ServerError(StatusError):
    """5xx: the server failed."""

    code, reason = 500, "InternalError"


_BY_REASON: Mapping[str, type[StatusError]] = {"AlreadyExists": AlreadyExistsError, "Gone": GoneError, "Expired": GoneError}
_BY_CODE: Mapping[int, type[StatusError]] = {
    error.code: error
    for error in (
        BadRequestError,
        UnauthorizedError,
        ForbiddenError,
        NotFoundError,
        MethodNotAllowedError,
        NotAcceptableError,
        ConflictError,
        GoneError,
        RequestTooLargeError,
        UnsupportedMediaTypeError,
        InvalidError,
        TooManyRequestsError,
    )
}


_TOO_LARGE_MESSAGES = ("etcdserver: request is too large", "trying to send message larger than max")
"""Sent with status 500 for an object that exceeds the limit of etcd."""


def error_from_status(status: Mapping[str, Any], *, retry_after_seconds: float | None = None) -> StatusError:
    """The matching StatusError for a Status object."""
    code = int(status.get("code") or 0)
    error_type = _BY_REASON.get(str(status.get("reason"))) or _BY_CODE.get(code) or (ServerError if code >= 500 else StatusError)
    if code >= 500 and any(message in str(status.get("message")) for message in _TOO_LARGE_MESSAGES):
        error_type = RequestTooLargeError
    if error_type is InvalidError and _was_replaced(status):
        error_type = ConflictError
    return error_type(status, retry_after_seconds=retry_after_seconds)


def _was_replaced(status: Mapping[str, Any]) -> bool:
    """Whether a patch was rejected because the object has another UID, which is a failed precondition."""
    details = status.get("details")
    causes = details.get("causes") if isinstance(details, dict) else None
    return isinstance(causes, list) and any(isinstance(cause, dict) and cause.get("field") == "metadata.uid" for cause in causes)


def error_from_response(code: int, headers: Mapping[str, str], body: bytes) -> StatusError:
    """The matching StatusError for an HTTP response. A plain text body, as sent by proxies, becomes the message."""
    try:
        status = msgspec.json.decode(body)
    except (ValueError, RecursionError):
        status = None
    if not isinstance(status, dict) or status.get("kind") != "Status":
        text = body[:1024].decode(errors="replace").strip()
        status = {"kind": "Status", "status": "Failure", "message": text or f"the server responded with HTTP {code}"}
    if not isinstance(status.get("code"), int):
        status["code"] = code
    return error_from_status(status, retry_after_seconds=_retry_after(headers, status))


def _retry_after(headers: Mapping[str, str], status: Mapping[str, Any]) -> float | None:
    details = status.get("details")
    value = headers.get("retry-after") or (details.get("retryAfterSeconds") if isinstance(details, dict) else None)
    try:
        return max(0.0, float(value)) if value is not None else None
    except (ValueError, TypeError):
        # An HTTP date. API servers do not send it, but a proxy may. Assume one second.
        return 1.0
