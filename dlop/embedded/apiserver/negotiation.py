"""In which form an answer is wanted: JSON or YAML, whole objects, their metadata, or a table for people."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from dlop.embedded.apiserver.api_errors import bad_request, failure
from dlop.kube.errors import NotAcceptableError
from dlop.kube.transport import JSON

YAML = "application/yaml"
_ANYTHING = ("*/*", "application/*")


class Form(StrEnum):
    """What of the objects is shown."""

    WHOLE = ""
    TABLE = "Table"
    METADATA = "PartialObjectMetadata"
    METADATA_LIST = "PartialObjectMetadataList"


@dataclass(frozen=True, slots=True)
class Wanted:
    """How to answer."""

    media_type: str = JSON
    form: Form = Form.WHOLE


@lru_cache(maxsize=256)
def negotiate(accept: str, *, is_custom: bool) -> Wanted:
    """The best form that the caller takes and the server has.

    Raises:
        NotAcceptableError: when there is none.
    """
    clauses = [_clause(text) for text in accept.split(",") if text.strip()]
    if not clauses:
        return Wanted()
    known_type = is_custom  # built-in types have a sentence of their own for unknown media types
    for media, parameters in sorted(clauses, key=_preference):
        media_type = JSON if media in _ANYTHING else media
        if media_type not in (JSON, YAML):
            continue
        known_type = True
        form = _form(parameters)
        if form is not None:
            return Wanted(media_type, form)
    raise _nothing_fits(known_type=known_type)


def check_form(wanted: Wanted, *, is_list: bool, kind: str, include_object: str) -> None:
    """Refuse a form that the answer cannot have.

    Raises:
        NotAcceptableError: when a list is wanted as an object, or the other way round.
        BadRequestError: when a table is to carry something that there is not.
    """
    if wanted.form is Form.METADATA and is_list:
        raise failure(NotAcceptableError, f"you requested {wanted.form}, but the requested object is a list (*core.{kind}List)")
    if wanted.form is Form.METADATA_LIST and not is_list:
        raise failure(NotAcceptableError, f"you requested {wanted.form}, but the requested object is not a list (*core.{kind})")
    if wanted.form is Form.TABLE and include_object not in ("", "None", "Metadata", "Object"):
        detail = f"Invalid value: \"{include_object}\": must be 'Metadata', 'Object', 'None', or empty"
        raise bad_request(f"Unable to convert to Table as requested: includeObject: {detail}")


def _clause(text: str) -> tuple[str, dict[str, str]]:
    media, *rest = (part.strip() for part in text.split(";"))
    parameters = dict(part.partition("=")[::2] for part in rest)
    return media.lower(), parameters


def _preference(clause: tuple[str, dict[str, str]]) -> float:
    try:
        return -float(clause[1].get("q", "1"))
    except ValueError:
        return 0.0


def _form(parameters: dict[str, str]) -> Form | None:
    name = parameters.get("as")
    if name is None:
        return Form.WHOLE
    if parameters.get("g") != "meta.k8s.io" or parameters.get("v") != "v1" or name not in list(Form):
        return None
    return Form(name)


def _nothing_fits(*, known_type: bool) -> NotAcceptableError:
    if known_type:
        refusal = failure(NotAcceptableError, f"only the following media types are accepted: {JSON}, {YAML}")
    else:
        refusal = failure(NotAcceptableError, f"406: Not Acceptable\n\nAvailable representations: {JSON}, {YAML}", {})
    return NotAcceptableError(refusal.status)
