"""YAML with gaps in it, as Go's templates write them: `{{.Name}}`. Gaps are all that is understood of that language."""

from __future__ import annotations

import functools
import re
from typing import Any

# A dash takes the white space beside the gap away.
_GAP = re.compile(r"(?:\{\{|\s*\{\{-\s)\s*\.(\w+)\s*(?:\}\}|\s-\}\}\s*)")


class TemplateError(ValueError):
    """A template makes no sense. The message says what is wrong with it."""


def fill_in(template: str, **values: str) -> Any:
    """The data that a template tells of when its gaps are filled in. It is shared, and must not be changed.

    Raises:
        TemplateError: it has other gaps than these, or is not YAML.
    """
    return _filled(template, tuple(values.items()))


@functools.lru_cache(maxsize=256)
def _filled(template: str, values: tuple[tuple[str, str], ...]) -> Any:
    import yaml  # noqa: PLC0415 - most who import this module have no template

    known = dict(values)
    text = _GAP.sub(lambda gap: known.get(gap[1], gap[0]), template)
    if "{{" in text:
        wrong = text[text.index("{{") :].partition("}}")[0]
        raise TemplateError(f"{wrong}}}}} is not understood; there are {', '.join(f'{{{{.{name}}}}}' for name in known)}")
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise TemplateError(f"it is not YAML: {error}") from error
