"""Objects that the operator creates for a job."""

from __future__ import annotations

from dataclasses import dataclass

from dlop.kube.resources import Resource
from dlop.kube.types import JsonObject


@dataclass(frozen=True, slots=True)
class Create:
    """An object to create. Its body is complete."""

    resource: Resource
    body: JsonObject
    is_shareable: bool = False
    """Whether somebody else's object of this name will do as well: it is then used, and left as it is."""

    @property
    def name(self) -> str:
        """The name of the object."""
        name: str = self.body["metadata"]["name"]
        return name
