"""Authentication by bearer tokens: that of the administrator, and those of service accounts.

Tokens of service accounts are signed JWTs. Such a token is valid until it expires, or until its service account or the pod that it is
bound to is deleted.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import Any

import msgspec

from dlop.embedded.apiserver.api_errors import status_error
from dlop.embedded.apiserver.rest.storage import ResourceStorage
from dlop.embedded.apiserver.store import ObjectKey
from dlop.embedded.apiserver.users import ADMINISTRATOR, ANONYMOUS, User, service_account_user
from dlop.kube.errors import UnauthorizedError
from dlop.kube.resources import PODS, SERVICE_ACCOUNTS
from dlop.kube.types import JsonObject

ISSUER = "https://kubernetes.default.svc.cluster.local"
"""Issuer of the tokens, and their audience if a token request names none."""
_HEADER = {"alg": "HS256", "typ": "JWT"}


class Authenticator:
    def __init__(self, storage: ResourceStorage, *, admin_token: str) -> None:
        """API servers with the same `admin_token` accept each other's tokens.

        Raises:
            ValueError: the token is empty.
        """
        if not admin_token:
            raise ValueError("the token of the administrator must not be empty")
        self._storage = storage
        self._admin_token = admin_token
        self._key = hashlib.sha256(f"service accounts of {admin_token}".encode()).digest()

    def authenticate(self, authorization: str) -> User:
        """The user of an Authorization header. Without a bearer token, this is `ANONYMOUS`.

        Raises:
            UnauthorizedError: the token is wrong, has expired, or its account or pod no longer exists.
        """
        scheme, _, token = authorization.strip().partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token:
            return ANONYMOUS
        user = ADMINISTRATOR if _is_equal(token, self._admin_token) else self._service_account(token)
        if user is None:
            raise status_error(UnauthorizedError, "Unauthorized")
        return user

    def issue(self, claims: JsonObject) -> str:
        """A token of a service account."""
        text = f"{_encode_part(_HEADER)}.{_encode_part(claims)}"
        return f"{text}.{self._signature(text)}"

    def _service_account(self, token: str) -> User | None:
        text, _, signature = token.rpartition(".")
        if not _is_equal(signature, self._signature(text)):
            return None
        claims = _decode_part(text.partition(".")[2])
        subject = claims["kubernetes.io"]
        is_valid = claims["exp"] > self._storage.now().seconds and ISSUER in claims["aud"] and self._owners_exist(subject)
        return service_account_user(subject["namespace"], subject["serviceaccount"]["name"]) if is_valid else None

    def _owners_exist(self, subject: JsonObject) -> bool:
        owners = ((SERVICE_ACCOUNTS.plural, subject["serviceaccount"]), (PODS.plural, subject.get("pod")))
        return all(owner is None or self._uid(storage, subject["namespace"], owner["name"]) == owner["uid"] for storage, owner in owners)

    def _uid(self, storage: str, namespace: str, name: str) -> str | None:
        stored = self._storage.store.get(ObjectKey(storage, namespace, name))
        return None if stored is None else stored.body["metadata"]["uid"]

    def _signature(self, text: str) -> str:
        return _base64(hmac.digest(self._key, _encode(text), "sha256"))


def _is_equal(left: str, right: str) -> bool:
    """Compare secrets. The duration does not depend on where they differ."""
    return hmac.compare_digest(_encode(left), _encode(right))


def _encode(text: str) -> bytes:
    # A header that is not UTF-8 contains surrogates.
    return text.encode(errors="surrogatepass")


def _encode_part(value: Any) -> str:
    return _base64(msgspec.json.encode(value))


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _decode_part(part: str) -> JsonObject:
    decoded: JsonObject = msgspec.json.decode(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    return decoded
