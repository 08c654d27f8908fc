"""Service accounts: names for pods to run under, and tokens that say so."""

from __future__ import annotations

from collections.abc import Callable

from dlop.embedded.apiserver.age import format_time
from dlop.embedded.apiserver.api_errors import FieldError, FieldErrorType, invalid
from dlop.embedded.apiserver.core.base import builtin_type, columns
from dlop.embedded.apiserver.resource_type import Moment, ResourceType
from dlop.kube.resources import SERVICE_ACCOUNTS, Resource
from dlop.kube.types import JsonObject

TOKEN = "token"  # noqa: S105 - the name of a subresource

_REQUEST = Resource("authentication.k8s.io", "v1", "tokenrequests", "TokenRequest")
_USUAL_SECONDS = 3600
_FEWEST_SECONDS = 600


def service_account_types() -> list[ResourceType]:
    """The type of service accounts."""
    return [builtin_type(SERVICE_ACCOUNTS, "core.v1.ServiceAccount", short_names=("sa",), columns=columns(), returns_deleted=True)]


def token_request(
    account: JsonObject, request: JsonObject, *, moment: Moment, issuer: str, make: Callable[[JsonObject], str]
) -> JsonObject:
    """The answer to a TokenRequest. `make` turns what the token is to say into the token.

    Raises:
        InvalidError: it is to last for too short a time.
    """
    metadata, asked = account["metadata"], request.get("spec") or {}
    seconds = _USUAL_SECONDS if asked.get("expirationSeconds") is None else asked["expirationSeconds"]
    if seconds < _FEWEST_SECONDS:
        short = FieldError(FieldErrorType.INVALID, "spec.expirationSeconds", "may not specify a duration less than 10 minutes", seconds)
        raise invalid(_REQUEST, "", [short])
    spec = {**asked, "audiences": asked.get("audiences") or [issuer], "expirationSeconds": seconds}
    until = Moment(moment.seconds + seconds)
    return {
        "kind": "TokenRequest",
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": {"name": metadata["name"], "namespace": metadata["namespace"], "creationTimestamp": format_time(moment)},
        "spec": spec,
        "status": {"token": make({"iss": issuer, **_claims(metadata, spec, moment, until)}), "expirationTimestamp": format_time(until)},
    }


def _claims(account: JsonObject, spec: JsonObject, moment: Moment, until: Moment) -> JsonObject:
    about: JsonObject = {"namespace": account["namespace"], "serviceaccount": {"name": account["name"], "uid": account["uid"]}}
    if bound := spec.get("boundObjectRef"):
        about[bound["kind"].lower()] = {"name": bound["name"], "uid": bound.get("uid", "")}
    return {
        "aud": spec["audiences"],
        "exp": int(until.seconds),
        "iat": int(moment.seconds),
        "kubernetes.io": about,
        "nbf": int(moment.seconds),
        "sub": f"system:serviceaccount:{account['namespace']}:{account['name']}",
    }
