"""Content negotiation: JSON or YAML; full objects, metadata only, or a Table."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from dlop.embedded.apiserver.api_errors import bad_request, status_error
from dlop.kube.errors import NotAcceptableError
from dlop.kube.transport import JSON

YAML = "application/yaml"
_ANYTHING = ("*/*", "application/*")


class ObjectFormat(StrEnum):
    """The `as` parameter of a media type."""

    FULL = ""
    TABLE = "Table"
    METADATA = "PartialObjectMetadata"
    METADATA_LIST = "PartialObjectMetadataList"


@dataclass(frozen=True, slots=True)
class ResponseFormat:
    media_type: str = JSON
    object_format: ObjectFormat = ObjectFormat.FULL


@lru_cache(maxsize=256)
def negotiate(accept: str, *, is_custom: bool) -> ResponseFormat:
    """The most preferred format of the Accept header that the server supports.

    Raises:
        NotAcceptableError: the server supports none of them.
    """
    clauses = [_parse_clause(text) for text in accept.split(",") if text.strip()]
    if not clauses:
        return ResponseFormat()
    known_type = is_custom  # built-in types have a different message for unknown media types
    for media, parameters in sorted(clauses, key=_preference):
        media_type = JSON if media in _ANYTHING else media
        if media_type not in (JSON, YAML):
            continue
        known_type = True
        object_format = _parse_object_format(parameters)
        if object_format is not None:
            return ResponseFormat(media_type, object_format)
    raise _not_acceptable(known_type=known_type)


def check_format(response_format: ResponseFormat, *, is_list: bool, kind: str, include_object: str) -> None:
    """Check that the format is available for the response.

    Raises:
        NotAcceptableError: a list is requested as an object, or an object as a list.
        BadRequestError: `include_object` of a Table is invalid.
    """
    if response_format.object_format is ObjectFormat.METADATA and is_list:
        raise status_error(
            NotAcceptableError, f"you requested {response_format.object_format}, but the requested object is a list (*core.{kind}List)"
        )
    if response_format.object_format is ObjectFormat.METADATA_LIST and not is_list:
        raise status_error(
            NotAcceptableError, f"you requested {response_format.object_format}, but the requested object is not a list (*core.{kind})"
        )
    if response_format.object_format is ObjectFormat.TABLE and include_object not in ("", "None", "Metadata", "Object"):
        detail = f"Invalid value: \"{include_object}\": must be 'Metadata', 'Object', 'None', or empty"
        raise bad_request(f"Unable to convert to Table as requested: includeObject: {detail}")


def _parse_clause(text: str) -> tuple[str, dict[str, str]]:
    media, *rest = (part.strip() for part in text.split(";"))
    parameters = dict(part.partition("=")[::2] for part in rest)
    return media.lower(), parameters


def _preference(clause: tuple[str, dict[str, str]]) -> float:
    try:
        return -float(clause[1].get("q", "1"))
    except ValueError:
        return 0.0


def _parse_object_format(parameters: dict[str, str]) -> ObjectFormat | None:
    name = parameters.get("as")
    if name is None:
        return ObjectFormat.FULL
    if parameters.get("g") != "meta.k8s.io" or parameters.get("v") != "v1" or name not in list(ObjectFormat):
        return None
    return ObjectFormat(name)


def _not_acceptable(*, known_type: bool) -> NotAcceptableError:
    if known_type:
        error = status_error(NotAcceptableError, f"only the following media types are accepted: {JSON}, {YAML}")
    else:
        error = status_error(NotAcceptableError, f"406: Not Acceptable\n\nAvailable representations: {JSON}, {YAML}", {})
    return NotAcceptableError(error.status)
