"""What waits in the workers of a PyTorchJob until the name of its master is known, where the operator was told of it.

Nothing needs to: services are there before pods, and `torchrun` tries again by itself. It is there for those who had it.
"""

from __future__ import annotations

from dlop import Options
from dlop.frameworks.kubeflow.go_template import fill_in
from dlop.kube.errors import JsonObject

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
