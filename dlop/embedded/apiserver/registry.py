"""Registry of the resource types that the server serves.

Built-in types are added at start; types of CRDs are added and removed at run time. Documents that are derived from all
types (discovery, OpenAPI) can be cached per `revision`.
"""

from __future__ import annotations

from dlop.embedded.apiserver.resource_type import ResourceType


class ResourceRegistry:
    def __init__(self) -> None:
        self.revision = 0
        """Incremented on every change."""
        self._by_path: dict[tuple[str, str, str], ResourceType] = {}
        self._by_kind: dict[tuple[str, str], ResourceType] = {}

    def add(self, type: ResourceType) -> None:
        """Add a type. It replaces one with the same group, version and plural."""
        resource = type.resource
        self.remove(resource.group, resource.version, resource.plural)
        self._by_path[resource.group, resource.version, resource.plural] = type
        self._by_kind[resource.api_version, resource.kind] = type
        self.revision += 1

    def remove(self, group: str, version: str, plural: str) -> None:
        """Remove a type. Its objects stay in the store."""
        removed = self._by_path.pop((group, version, plural), None)
        if removed is None:
            return
        self._by_kind.pop((removed.resource.api_version, removed.resource.kind), None)
        self.revision += 1

    def find(self, group: str, version: str, plural: str) -> ResourceType | None:
        return self._by_path.get((group, version, plural))

    def by_kind(self, api_version: str, kind: str) -> ResourceType | None:
        return self._by_kind.get((api_version, kind))

    def by_storage(self, storage: str) -> list[ResourceType]:
        """All versions of the resource with this storage."""
        return [type for type in self._by_path.values() if type.storage == storage]

    def has_builtin_group(self, group: str) -> bool:
        """Whether the group has built-in types. Errors for unknown resources differ for such groups."""
        return any(type.resource.group == group and not type.is_custom for type in self._by_path.values())

    def all(self) -> list[ResourceType]:
        """All types in the order of their addition."""
        return list(self._by_path.values())
