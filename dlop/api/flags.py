"""Flags of `dlop run` that frameworks declare.

    class RingFlags(FrameworkFlags):
        ring_image: str = Field(default="", description="Image of the ring monitor.")

    class RingJob(DLJob):
        flags = RingFlags

The operator then has the flag `--ring-image` and the variable `DLOP_RING_IMAGE`, and a job reads the value from
`self.options.flags(RingFlags).ring_image`.
"""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict
from pydantic.fields import FieldInfo


class FrameworkFlags(BaseModel):
    """Flags of a framework. Each field needs a default and a description."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @classmethod
    def flag_names(cls) -> tuple[str, ...]:
        """The flags, such as `--ring-image`."""
        return tuple(flag_name(field) for field in cls.model_fields)


@dataclass(frozen=True, slots=True)
class FlagFile:
    """Marks a flag whose value is the path of a file: `Annotated[str, FlagFile()]`.

    The operator reads the file once, when it starts. The field has its content, or what a validator makes of it.
    """


def flag_name(field: str) -> str:
    """The flag of a field: `--ring-image` for `ring_image`."""
    return f"--{field.replace('_', '-')}"


def is_file_flag(field: FieldInfo) -> bool:
    """Whether a field is marked with `FlagFile`."""
    return any(isinstance(mark, FlagFile) for mark in field.metadata)
