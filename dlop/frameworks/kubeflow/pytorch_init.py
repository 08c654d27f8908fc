"""Init containers that wait until the master's name resolves, for the workers of a PyTorchJob.

Off by default, because services exist before pods and `torchrun` retries. Two flags of Kubeflow's operator turn them on.

`--pytorch-init-container-template-file` replaces them with a YAML template. It may contain `{{.MasterAddr}}`,
`{{.InitContainerImage}}` and `{{.MaxTries}}`, and no other Go template syntax.
"""

from __future__ import annotations

import functools
import re
from typing import Annotated, Any

from pydantic import Field, field_validator

from dlop import FlagFile, FrameworkFlags, JsonObject

_DEFAULT_IMAGE = "alpine:3.10"
"""Image for a template with an image placeholder if no image is configured, as in Kubeflow's operator."""


class PyTorchFlags(FrameworkFlags):
    """Flags of the operator for PyTorchJobs."""

    pytorch_init_container_image: str = Field(
        default="",
        description="Image with nslookup for an init container that waits for the master of a PyTorchJob; no init container if empty.",
    )
    pytorch_init_container_max_tries: int = Field(
        default=100, ge=1, description="Number of attempts of the PyTorchJob init container, one every two seconds."
    )
    pytorch_init_container_template_file: Annotated[str, FlagFile()] = Field(
        default="",
        description="Path to a YAML file of other init containers, with {{.MasterAddr}}, {{.InitContainerImage}} and {{.MaxTries}}.",
    )

    @field_validator("pytorch_init_container_template_file")
    @classmethod
    def _check_template(cls, template: str) -> str:
        """Render the template once, so that a mistake fails the start and not every job."""
        containers = render_template(template, MasterAddr="master", InitContainerImage="image", MaxTries="1")
        if not isinstance(containers, list) or not all(isinstance(container, dict) and container.get("name") for container in containers):
            raise ValueError("must be a list of containers with names")
        return template


def init_containers(flags: PyTorchFlags, *, master: str) -> list[JsonObject]:
    """The init containers of a worker; empty if neither an image nor a template is configured."""
    image, tries = flags.pytorch_init_container_image, str(flags.pytorch_init_container_max_tries)
    if template := flags.pytorch_init_container_template_file:
        return list(render_template(template, MasterAddr=master, InitContainerImage=image or _DEFAULT_IMAGE, MaxTries=tries))
    return [_wait_container(image, tries=tries, master=master)] if image else []


def _wait_container(image: str, *, tries: str, master: str) -> JsonObject:
    # A service name has only letters, digits and dashes, so it is safe in a script.
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


# A dash inside the braces removes the adjacent white space.
_PLACEHOLDER = re.compile(r"(?:\{\{|\s*\{\{-\s)\s*\.(\w+)\s*(?:\}\}|\s-\}\}\s*)")


class TemplateError(ValueError):
    """A template is invalid. The message names the cause."""


def render_template(template: str, **values: str) -> Any:
    """The parsed YAML of a template with its placeholders replaced. The result is cached and must not be modified.

    Raises:
        TemplateError: the template has unknown placeholders or is not valid YAML.
    """
    return _render(template, tuple(values.items()))


@functools.lru_cache(maxsize=256)
def _render(template: str, values: tuple[tuple[str, str], ...]) -> Any:
    import yaml  # noqa: PLC0415 - rarely needed

    known = dict(values)
    text = _PLACEHOLDER.sub(lambda match: known.get(match[1], match[0]), template)
    if "{{" in text:
        unknown = text[text.index("{{") :].partition("}}")[0]
        raise TemplateError(f"{unknown}}}}} is not supported; available: {', '.join(f'{{{{.{name}}}}}' for name in known)}")
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise TemplateError(f"invalid YAML: {error}") from error
