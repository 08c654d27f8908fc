"""Who sends a request. There is always a user: a request without credentials is sent by `ANONYMOUS`, which is not the administrator."""

from __future__ import annotations

from dataclasses import dataclass

AUTHENTICATED_GROUP = "system:authenticated"
PRIVILEGED_GROUP = "system:masters"
"""Its members may do everything, without RBAC rules."""


@dataclass(frozen=True, slots=True)
class User:
    name: str
    groups: tuple[str, ...]

    @property
    def is_privileged(self) -> bool:
        return PRIVILEGED_GROUP in self.groups

    @property
    def is_authenticated(self) -> bool:
        return AUTHENTICATED_GROUP in self.groups


ADMINISTRATOR = User("kubernetes-admin", (PRIVILEGED_GROUP, AUTHENTICATED_GROUP))
ANONYMOUS = User("system:anonymous", ("system:unauthenticated",))


def service_account_name(namespace: str, name: str) -> str:
    """The user name of a service account."""
    return f"system:serviceaccount:{namespace}:{name}"


def service_account_user(namespace: str, name: str) -> User:
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", AUTHENTICATED_GROUP)
    return User(service_account_name(namespace, name), groups)
