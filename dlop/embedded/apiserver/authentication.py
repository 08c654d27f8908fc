"""Who a request is from: tokens of service accounts, made and recognised.

A token says who bears it and is signed, so that nobody can make one. It is good for as long as it says, and no longer than the
account and the pod that it was made for.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from dataclasses import dataclass
from typing import Any

import msgspec

from dlop.embedded.apiserver.rest.storage import ResourceStorage
from dlop.embedded.apiserver.store import Key
from dlop.kube.resources import PODS, SERVICE_ACCOUNTS
from dlop.kube.types import JsonObject

ISSUER = "https://kubernetes.default.svc.cluster.local"
"""Of the tokens, and for whom they are good when nobody else is named."""
_HEADER = {"alg": "HS256", "typ": "JWT"}


@dataclass(frozen=True, slots=True)
class Account:
    """A service account that asks for something."""

    namespace: str
    name: str

    @property
    def user(self) -> str:
        """What it is called as a user."""
        return f"system:serviceaccount:{self.namespace}:{self.name}"

    @property
    def groups(self) -> frozenset[str]:
        """What it belongs to."""
        return frozenset({"system:serviceaccounts", f"system:serviceaccounts:{self.namespace}", "system:authenticated"})


class Tokens:
    """Makes tokens, and tells whose a token is."""

    def __init__(self, verbs: ResourceStorage, *, secret: str) -> None:
        """Servers of one cluster have the same `secret`, and take each other's tokens."""
        self._verbs = verbs
        self._key = hashlib.sha256(f"service accounts of {secret}".encode()).digest()

    def make(self, claims: JsonObject) -> str:
        """A token that says so."""
        text = f"{_part(_HEADER)}.{_part(claims)}"
        return f"{text}.{self._signature(text)}"

    def bearer(self, token: str) -> Account | None:
        """Whose token it is; None when it is none of ours, too old, or for somebody or something that is gone."""
        text, _, signature = token.rpartition(".")
        if not hmac.compare_digest(signature.encode(), self._signature(text).encode()):
            return None
        claims = _content(text.partition(".")[2])
        about = claims["kubernetes.io"]
        account = Account(about["namespace"], about["serviceaccount"]["name"])
        is_good = claims["exp"] > self._verbs.moment().seconds and ISSUER in claims["aud"] and self._is_there(about)
        return account if is_good else None

    def _is_there(self, about: JsonObject) -> bool:
        owners = ((SERVICE_ACCOUNTS.plural, about["serviceaccount"]), (PODS.plural, about.get("pod")))
        return all(owner is None or self._uid(storage, about["namespace"], owner["name"]) == owner["uid"] for storage, owner in owners)

    def _uid(self, storage: str, namespace: str, name: str) -> str | None:
        found = self._verbs.store.get(Key(storage, namespace, name))
        return None if found is None else found.body["metadata"]["uid"]

    def _signature(self, text: str) -> str:
        return _base64(hmac.digest(self._key, text.encode(), "sha256"))


def _part(value: Any) -> str:
    return _base64(msgspec.json.encode(value))


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _content(part: str) -> JsonObject:
    decoded: JsonObject = msgspec.json.decode(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    return decoded
