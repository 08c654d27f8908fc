"""Objects that the operator creates for a job."""

from __future__ import annotations

from dataclasses import dataclass

from dlop.kube.resources import Resource
from dlop.kube.types import JsonObject


@dataclass(frozen=True, slots=True)
class Create:
    """An object to create, with its complete body."""

    resource: Resource
    body: JsonObject
    allow_existing: bool = False
    """Whether an existing object of this name that another owner created is used as it is. Otherwise it is a name conflict."""

    @property
    def name(self) -> str:
        """`metadata.name` of the body."""
        name: str = self.body["metadata"]["name"]
        return name
