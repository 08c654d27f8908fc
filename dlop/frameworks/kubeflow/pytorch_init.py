"""What waits in the workers of a PyTorchJob until the name of its master is known, where the operator was told of it.

Nothing needs to: services are there before pods, and `torchrun` tries again by itself. It is there for those who had it.

YAML with gaps in it, as Go's templates write them: `{{.Name}}`. Gaps are all that is understood of that language.
"""

from __future__ import annotations

import functools
import re
from typing import Any

from dlop import Options
from dlop.kube.types import JsonObject

_IMAGE = "alpine:3.10"
"""The one that a template gets which leaves the image open, where the operator was told of none. So it ever was."""


def init_containers(options: Options, *, master: str) -> list[JsonObject]:
    """The init containers of a worker; none where the operator was told of none."""
    image, tries = options.pytorch_init_container_image, str(options.pytorch_init_container_max_tries)
    if options.pytorch_init_container_template:
        filled = fill_in(options.pytorch_init_container_template, MasterAddr=master, InitContainerImage=image or _IMAGE, MaxTries=tries)
        return list(filled)
    return [_waiter(image, tries=tries, master=master)] if image else []


def _waiter(image: str, *, tries: str, master: str) -> JsonObject:
    """The name of a service is nothing but letters, digits and dashes, so it is safe in a script."""
    script = (
        f"err=1;for i in $(seq {tries}); do if nslookup {master}; then err=0 && break; fi;echo waiting for master; sleep 2; done; exit $err"
    )
    return {
        "name": "init-pytorch",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", script],
        "resources": {"limits": {"cpu": "100m", "memory": "20Mi"}, "requests": {"cpu": "50m", "memory": "10Mi"}},
    }


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
