"""Pod templates, which are made from the fields of a spec."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dlop import JsonObject, ManifestField
from dlop.frameworks.paddlepaddle.fields import find_any, read_objects, read_string_map
from dlop.policies import with_current_resource_names


def main_container(
    spec: ManifestField,
    role: str,
    *,
    image: str,
    command: Sequence[str],
    ports: Mapping[str, int],
    resources: JsonObject | None = None,
    **further: Any,
) -> JsonObject:
    """The container of a role. `image` and `resources` are defaults, and `further` are other fields of the container."""
    fields = {
        "name": role,
        "image": spec.get("image").string() or image,
        "imagePullPolicy": "Always",
        "command": list(command),
        "ports": [{"name": name, "containerPort": port} for name, port in ports.items()],
        "resources": _read_resources(spec.get(role).get("resources")) or resources,
        "volumeMounts": [] if role == "pserver" else read_mounts(spec),
    }
    return with_current_resource_names(drop_empty({**fields, **further}))


def job_ports(ports: range) -> dict[str, int]:
    """Ports by name."""
    return {f"jobport-{port}": port for port in ports}


def pod_spec(spec: ManifestField, role: str, *containers: JsonObject, **further: Any) -> JsonObject:
    """The spec of the pods of a role. A role's own pull secrets and node selector take precedence over those of the job."""
    own, uses_host_network = spec.get(role), find_any(spec, "hostNetwork").boolean()
    secrets = [read_objects(find_any(field, "imagePullSecrets")) for field in (own, spec)]
    selectors = [read_string_map(find_any(field, "nodeSelector")) for field in (own, spec)]
    fields = {
        "containers": list(containers),
        "volumes": read_objects(spec.get("volumes")),
        "nodeSelector": selectors[0] or selectors[1],
        "hostNetwork": uses_host_network,
        # Without it, pods in the network of their node could not resolve the names of services.
        "dnsPolicy": "ClusterFirstWithHostNet" if uses_host_network else "",
        "imagePullSecrets": secrets[0] or secrets[1],
    }
    return drop_empty({**fields, **further})


def read_mounts(spec: ManifestField) -> list[JsonObject]:
    """The volume mounts. `mountPath` mounts the only volume if there are no others."""
    mounts, volumes = read_objects(find_any(spec, "volumeMounts")), read_objects(spec.get("volumes"))
    path = find_any(spec, "mountPath").string()
    return mounts if mounts or not path or len(volumes) != 1 else [{"name": volumes[0].get("name"), "mountPath": path}]


def drop_empty(fields: JsonObject) -> JsonObject:
    """The fields that are set. A zero counts as set."""
    return {name: value for name, value in fields.items() if value or (value == 0 and value is not False)}


def _read_resources(field: ManifestField) -> JsonObject:
    for part in ("limits", "requests"):
        field.get(part).object()
    resources = field.object()
    return resources if any(resources.values()) else {}
