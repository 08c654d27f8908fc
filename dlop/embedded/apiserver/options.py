"""What a caller may ask of a verb beside the object itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from dlop.embedded.apiserver.selectors import EVERYTHING, Selector


class FieldValidation(StrEnum):
    """What happens to fields that the type does not have. They are dropped in any case, unless the request is refused."""

    IGNORE = "Ignore"
    WARN = "Warn"
    STRICT = "Strict"


class Propagation(StrEnum):
    """What a delete does to the objects that the deleted one owns."""

    BACKGROUND = "Background"
    FOREGROUND = "Foreground"
    ORPHAN = "Orphan"


def _unheard(_: str) -> None:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """For create, update and patch."""

    dry_run: bool = False
    field_validation: FieldValidation = FieldValidation.IGNORE
    duplicate_fields: tuple[str, ...] = ()
    """The fields that the body names twice: the last one counts, and the others are reported like unknown ones."""
    warn: Callable[[str], None] = _unheard
    """Told of everything that goes into the answer's `Warning` headers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOptions:
    """For delete and deletecollection."""

    dry_run: bool = False
    uid: str | None = None
    resource_version: str | None = None
    grace_seconds: int | None = None
    propagation: Propagation | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOptions:
    """For list, and for what deletecollection and watch begin with."""

    selector: Selector = field(default=EVERYTHING)
    limit: int = 0
    """How many objects at most; 0 means all of them."""
    continue_token: str = ""
    resource_version: str = ""
    resource_version_match: str = ""
