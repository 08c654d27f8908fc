"""Which resources the server serves right now.

Built-in types are added at the start; CRDs come and go while the server runs. Whatever is derived from the whole set
(discovery pages, OpenAPI) can be kept until `revision` moves.
"""

from __future__ import annotations

from dlop.embedded.apiserver.resource_type import ResourceType


class Registry:
    """Every served version of every resource, found by path, by kind or by where its objects are stored."""

    def __init__(self) -> None:
        self.revision = 0
        """Moves with every change of the set."""
        self._by_path: dict[tuple[str, str, str], ResourceType] = {}
        self._by_kind: dict[tuple[str, str], ResourceType] = {}

    def add(self, type: ResourceType) -> None:
        """Serve a type; one with the same group, version and plural is replaced."""
        resource = type.resource
        self.remove(resource.group, resource.version, resource.plural)
        self._by_path[resource.group, resource.version, resource.plural] = type
        self._by_kind[resource.api_version, resource.kind] = type
        self.revision += 1

    def remove(self, group: str, version: str, plural: str) -> None:
        """Serve a type no longer. Its objects stay in the store."""
        gone = self._by_path.pop((group, version, plural), None)
        if gone is None:
            return
        self._by_kind.pop((gone.resource.api_version, gone.resource.kind), None)
        self.revision += 1

    def find(self, group: str, version: str, plural: str) -> ResourceType | None:
        """The type served under a path, or None."""
        return self._by_path.get((group, version, plural))

    def by_kind(self, api_version: str, kind: str) -> ResourceType | None:
        """The type whose objects say this about themselves, or None."""
        return self._by_kind.get((api_version, kind))

    def by_storage(self, storage: str) -> list[ResourceType]:
        """Every version under which the objects of one storage are served."""
        return [served for served in self._by_path.values() if served.storage == storage]

    def has_builtin_group(self, group: str) -> bool:
        """Whether the server has built-in types of this group: it speaks differently of what such a group lacks."""
        return any(served.resource.group == group and not served.is_custom for served in self._by_path.values())

    def all(self) -> list[ResourceType]:
        """Every type, in the order in which they were added."""
        return list(self._by_path.values())
