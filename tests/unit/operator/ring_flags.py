"""A framework with flags, for tests of settings and of the command line."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, field_validator

from dlop import FlagFile, FrameworkFlags
from tests.unit.job.jobs import PairJob


class RingFlags(FrameworkFlags):
    """Flags of different types."""

    ring_size: int = Field(default=3, ge=1, description="Number of peers.")
    ring_image: str = Field(default="", description="Image of the monitor.")
    ring_order_file: Annotated[str, FlagFile()] = Field(default="", description="Path to a file with the names of the peers.")

    @field_validator("ring_order_file")
    @classmethod
    def _check_order(cls, content: str) -> str:
        if not content.split():
            raise ValueError("names no peer")
        return content


class FlaggedJob(PairJob):
    """A job whose framework has flags."""

    flags = RingFlags
