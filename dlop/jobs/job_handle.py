"""One job as the server has it, with the class of its kind."""

from __future__ import annotations

from dataclasses import dataclass

from dlop.api.phase import Phase
from dlop.api.record import Record, record_in
from dlop.job import DLJob
from dlop.kube.objects import Buffer, CustomObject, ObjectMeta, reader
from dlop.kube.resources import Resource

_read = reader(CustomObject)


@dataclass(frozen=True, slots=True)
class FoundJob:
    """A job, and what its kind knows of it."""

    kind: type[DLJob]
    stored: CustomObject

    @classmethod
    def read(cls, kind: type[DLJob], data: Buffer) -> FoundJob:
        """The job that the server has sent."""
        return cls(kind, _read(data))

    @property
    def metadata(self) -> ObjectMeta:
        """The metadata of the custom resource."""
        return self.stored.metadata

    @property
    def name(self) -> str:
        """Its name."""
        return self.stored.metadata.name

    @property
    def namespace(self) -> str:
        """Its namespace."""
        return self.stored.metadata.namespace

    @property
    def uid(self) -> str:
        """What tells it from other jobs that had its name."""
        return self.stored.metadata.uid

    @property
    def resource(self) -> Resource:
        """Where it lives in the API."""
        return self.kind.job_type.resource

    @property
    def reference(self) -> str:
        """`plural.group/name`: what fits this job and no other one of its namespace."""
        return f"{self.resource.qualified_name}/{self.name}"

    def job(self) -> DLJob:
        """The job, as its kind reads it."""
        return self.kind(self.stored)

    def record(self) -> Record:
        """What the operator has noted about it; empty before it has."""
        return record_in(self.job().stored_status) or Record()

    def phase(self) -> Phase | None:
        """Where it stands; None when no operator has looked at it."""
        record = self.record()
        return Phase(record.phase) if record.phase in list(Phase) else self.job().phase_in(self.job().stored_status)

    def __str__(self) -> str:
        return f"{self.kind.job_type.kind} {self.name}"
