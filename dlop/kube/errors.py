"""What can go wrong with a call to the API server, as a small tree.

KubeError
├── ConfigurationError        no usable kubeconfig or service account: the message names the file and the way out
├── NotLeaderError            a write was held back because leadership is gone; nothing was sent
├── TransportError            no answer arrived, and it does not matter (a read) or nothing was sent
├── AmbiguousWriteError       a write was sent and no answer arrived: it may or may not have happened
└── StatusError               the server answered with a Status
    ├── BadRequestError UnauthorizedError ForbiddenError NotFoundError MethodNotAllowedError NotAcceptableError
    ├── ConflictError         the object has changed, or another precondition failed
    │   └── AlreadyExistsError
    ├── GoneError             the asked-for version is no longer there; also reason Expired
    ├── RequestTooLargeError UnsupportedMediaTypeError InvalidError TooManyRequestsError
    └── ServerError           5xx
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec


class KubeError(Exception):
    """Anything that went wrong between this process and the API server."""


class ConfigurationError(KubeError):
    """There is no usable cluster configuration."""


class NotLeaderError(KubeError):
    """A write was held back because this process no longer holds the lease. Nothing was sent."""


class OutdatedError(KubeError):
    """A write that had let others go first was not wanted any more when its turn came. Nothing has changed."""


class TransportError(KubeError):
    """The server could not be reached, or a read was cut off. Nothing has changed; trying again is safe."""


class AmbiguousWriteError(KubeError):
    """A write was sent and its answer was lost. Only a look at the object tells whether it happened."""


class StatusError(KubeError):
    """The server refused the call; `status` is its own Status object."""

    # What a server says when it gives only a code, and what the embedded server says for each class.
    code: ClassVar[int] = 0
    reason: ClassVar[str] = ""

    def __init__(self, status: Mapping[str, Any], *, retry_after_seconds: float | None = None) -> None:
        self.status = dict(status)
        self.retry_after_seconds = retry_after_seconds
        super().__init__(str(status.get("message") or status.get("reason") or f"HTTP {status.get('code')}"))

    @property
    def status_code(self) -> int:
        """The HTTP status code."""
        return int(self.status.get("code") or self.code)

    @property
    def status_reason(self) -> str:
        """The machine-readable reason, e.g. `AlreadyExists`; empty when the server gave none."""
        return str(self.status.get("reason") or "")

    @property
    def details(self) -> Mapping[str, Any]:
        """What the error is about: name, kind, group, uid, causes, retryAfterSeconds."""
        return self.status.get("details") or {}

    @property
    def causes(self) -> list[Mapping[str, str]]:
        """One entry a wrong field: `reason`, `message`, `field`."""
        return list(self.details.get("causes") or [])

    def has_cause(self, reason: str) -> bool:
        """Whether the server names this reason among the causes."""
        return any(cause.get("reason") == reason for cause in self.causes)


class BadRequestError(StatusError):
    """400: the request itself makes no sense."""

    code, reason = 400, "BadRequest"


class UnauthorizedError(StatusError):
    """401: no credentials, or expired ones."""

    code, reason = 401, "Unauthorized"


class ForbiddenError(StatusError):
    """403: not allowed by RBAC, a quota or a webhook, or the namespace is going away."""

    code, reason = 403, "Forbidden"


class NotFoundError(StatusError):
    """404: no such object, or no such resource."""

    code, reason = 404, "NotFound"


class MethodNotAllowedError(StatusError):
    """405: the resource has no such verb."""

    code, reason = 405, "MethodNotAllowed"


class NotAcceptableError(StatusError):
    """406: the server cannot answer in the asked-for form."""

    code, reason = 406, "NotAcceptable"


class ConflictError(StatusError):
    """409: the object changed since it was read, or a precondition does not hold."""

    code, reason = 409, "Conflict"


class AlreadyExistsError(ConflictError):
    """409: an object of that name is already there."""

    code, reason = 409, "AlreadyExists"


class GoneError(StatusError):
    """410: the asked-for resourceVersion has been compacted away."""

    code, reason = 410, "Expired"


class RequestTooLargeError(StatusError):
    """413: the body is larger than the server takes."""

    code, reason = 413, "RequestEntityTooLarge"


class UnsupportedMediaTypeError(StatusError):
    """415: the body has a content type that the server does not take here."""

    code, reason = 415, "UnsupportedMediaType"


class InvalidError(StatusError):
    """422: the object was understood and is wrong; `causes` names the fields."""

    code, reason = 422, "Invalid"


class TooManyRequestsError(StatusError):
    """429: the server asks for patience."""

    code, reason = 429, "TooManyRequests"


class ServerError(StatusError):
    """5xx: the server has a problem."""

    code, reason = 500, "InternalError"


_BY_REASON: Mapping[str, type[StatusError]] = {"AlreadyExists": AlreadyExistsError, "Gone": GoneError, "Expired": GoneError}
_BY_CODE: Mapping[int, type[StatusError]] = {
    kind.code: kind
    for kind in (
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


def error_from_status(status: Mapping[str, Any], *, retry_after_seconds: float | None = None) -> StatusError:
    """The error of the tree that fits a Status object."""
    code = int(status.get("code") or 0)
    kind = _BY_REASON.get(str(status.get("reason"))) or _BY_CODE.get(code) or (ServerError if code >= 500 else StatusError)
    return kind(status, retry_after_seconds=retry_after_seconds)


def error_from_response(code: int, headers: Mapping[str, str], body: bytes) -> StatusError:
    """The error of the tree that fits an HTTP answer; proxies answer in plain text, which becomes the message."""
    try:
        status = msgspec.json.decode(body)
    except (ValueError, RecursionError):
        status = None
    if not isinstance(status, dict) or status.get("kind") != "Status":
        text = body[:1024].decode(errors="replace").strip()
        status = {"kind": "Status", "status": "Failure", "message": text or f"the server answered HTTP {code}"}
    if not isinstance(status.get("code"), int):
        status["code"] = code
    return error_from_status(status, retry_after_seconds=_retry_after(headers, status))


def _retry_after(headers: Mapping[str, str], status: Mapping[str, Any]) -> float | None:
    details = status.get("details")
    value = headers.get("retry-after") or (details.get("retryAfterSeconds") if isinstance(details, dict) else None)
    try:
        return max(0.0, float(value)) if value is not None else None
    except (ValueError, TypeError):
        # The HTTP-date form: no API server sends it, a proxy might; a second is a fair reading.
        return 1.0
