"""Service accounts and their token requests."""

from __future__ import annotations

from collections.abc import Callable

from dlop.embedded.apiserver.age import format_time
from dlop.embedded.apiserver.api_errors import FieldError, FieldErrorType, invalid
from dlop.embedded.apiserver.core.base import builtin_type, columns
from dlop.embedded.apiserver.resource_type import ResourceType, Timestamp
from dlop.kube.resources import SERVICE_ACCOUNTS, Resource
from dlop.kube.types import JsonObject

TOKEN = "token"  # noqa: S105 - the name of a subresource

_REQUEST = Resource("authentication.k8s.io", "v1", "tokenrequests", "TokenRequest")
_DEFAULT_SECONDS = 3600
_MIN_SECONDS = 600


def service_account_types() -> list[ResourceType]:
    return [builtin_type(SERVICE_ACCOUNTS, "core.v1.ServiceAccount", short_names=("sa",), columns=columns(), returns_deleted=True)]


def token_request(
    account: JsonObject, request: JsonObject, *, now: Timestamp, issuer: str, issue_token: Callable[[JsonObject], str]
) -> JsonObject:
    """The response to a TokenRequest. `issue_token` signs the claims.

    Raises:
        InvalidError: expirationSeconds is too small.
    """
    metadata, requested = account["metadata"], request.get("spec") or {}
    seconds = _DEFAULT_SECONDS if requested.get("expirationSeconds") is None else requested["expirationSeconds"]
    if seconds < _MIN_SECONDS:
        error = FieldError(FieldErrorType.INVALID, "spec.expirationSeconds", "may not specify a duration less than 10 minutes", seconds)
        raise invalid(_REQUEST, "", [error])
    spec = {**requested, "audiences": requested.get("audiences") or [issuer], "expirationSeconds": seconds}
    expiry = Timestamp(now.seconds + seconds)
    return {
        "kind": "TokenRequest",
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": {"name": metadata["name"], "namespace": metadata["namespace"], "creationTimestamp": format_time(now)},
        "spec": spec,
        "status": {
            "token": issue_token({"iss": issuer, **_claims(metadata, spec, now, expiry)}),
            "expirationTimestamp": format_time(expiry),
        },
    }


def _claims(account: JsonObject, spec: JsonObject, now: Timestamp, expiry: Timestamp) -> JsonObject:
    private_claims: JsonObject = {"namespace": account["namespace"], "serviceaccount": {"name": account["name"], "uid": account["uid"]}}
    if bound := spec.get("boundObjectRef"):
        private_claims[bound["kind"].lower()] = {"name": bound["name"], "uid": bound.get("uid", "")}
    return {
        "aud": spec["audiences"],
        "exp": int(expiry.seconds),
        "iat": int(now.seconds),
        "kubernetes.io": private_claims,
        "nbf": int(now.seconds),
        "sub": f"system:serviceaccount:{account['namespace']}:{account['name']}",
    }
