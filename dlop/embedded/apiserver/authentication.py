"""Service account tokens: issuing and verification.

Tokens are signed JWTs. A token is valid until it expires, or until its service account or the pod that it is bound to is deleted.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from dataclasses import dataclass
from typing import Any

import msgspec

from dlop.embedded.apiserver.rest.storage import ResourceStorage
from dlop.embedded.apiserver.store import ObjectKey
from dlop.kube.resources import PODS, SERVICE_ACCOUNTS
from dlop.kube.types import JsonObject

ISSUER = "https://kubernetes.default.svc.cluster.local"
"""Issuer of the tokens, and their audience if a token request names none."""
_HEADER = {"alg": "HS256", "typ": "JWT"}


@dataclass(frozen=True, slots=True)
class ServiceAccountUser:
    """The service account that sent a request."""

    namespace: str
    name: str

    @property
    def user(self) -> str:
        return f"system:serviceaccount:{self.namespace}:{self.name}"

    @property
    def groups(self) -> frozenset[str]:
        return frozenset({"system:serviceaccounts", f"system:serviceaccounts:{self.namespace}", "system:authenticated"})


class TokenAuthenticator:
    def __init__(self, storage: ResourceStorage, *, secret: str) -> None:
        """API servers with the same `secret` accept each other's tokens."""
        self._storage = storage
        self._key = hashlib.sha256(f"service accounts of {secret}".encode()).digest()

    def issue(self, claims: JsonObject) -> str:
        text = f"{_encode_part(_HEADER)}.{_encode_part(claims)}"
        return f"{text}.{self._signature(text)}"

    def authenticate(self, token: str) -> ServiceAccountUser | None:
        """The service account of a token; None if the signature is wrong, the token has expired, or its account or pod no longer exists."""
        text, _, signature = token.rpartition(".")
        if not hmac.compare_digest(signature.encode(), self._signature(text).encode()):
            return None
        claims = _decode_part(text.partition(".")[2])
        subject = claims["kubernetes.io"]
        account = ServiceAccountUser(subject["namespace"], subject["serviceaccount"]["name"])
        is_valid = claims["exp"] > self._storage.now().seconds and ISSUER in claims["aud"] and self._owners_exist(subject)
        return account if is_valid else None

    def _owners_exist(self, subject: JsonObject) -> bool:
        owners = ((SERVICE_ACCOUNTS.plural, subject["serviceaccount"]), (PODS.plural, subject.get("pod")))
        return all(owner is None or self._uid(storage, subject["namespace"], owner["name"]) == owner["uid"] for storage, owner in owners)

    def _uid(self, storage: str, namespace: str, name: str) -> str | None:
        stored = self._storage.store.get(ObjectKey(storage, namespace, name))
        return None if stored is None else stored.body["metadata"]["uid"]

    def _signature(self, text: str) -> str:
        return _base64(hmac.digest(self._key, text.encode(), "sha256"))


def _encode_part(value: Any) -> str:
    return _base64(msgspec.json.encode(value))


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _decode_part(part: str) -> JsonObject:
    decoded: JsonObject = msgspec.json.decode(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    return decoded
