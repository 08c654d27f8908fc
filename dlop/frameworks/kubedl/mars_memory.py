"""How the workers of a MarsJob use memory and disks: the policy in the spec, its environment variables and its volumes."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dlop import JsonObject, ManifestField
from dlop.policies import parse_quantities, pod_requests

_DEFAULT_PLASMA_STORE = "/dev/shm"  # noqa: S108 - a path in the container
_CACHE_VOLUME = "mars-shared-cache"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPolicy:
    plasma_store: str
    lock_free_io: bool
    spill_dirs: tuple[str, ...]
    cache_size: int | None
    """In bytes."""
    cache_percentage: int | None

    def cache_bytes(self, memory: int) -> int:
        """The size of the shared memory of a worker with this memory; 0 for none."""
        if self.cache_size is not None:
            return self.cache_size
        return 0 if self.cache_percentage is None else memory * min(self.cache_percentage, 100) // 100


def read_memory_policy(spec: ManifestField) -> MemoryPolicy:
    """`spec.workerMemoryTuningPolicy` with its defaults."""
    policy = spec.get("workerMemoryTuningPolicy")
    policy.object()
    size = policy.get("workerCacheSize")
    quantity = None if size.is_absent else parse_quantities({"size": size.value}).get("size")
    if not size.is_absent and quantity is None:
        size.error("is not a quantity; use a value like 2Gi")
    return MemoryPolicy(
        plasma_store=policy.get("plasmaStore").string() or _DEFAULT_PLASMA_STORE,
        lock_free_io=policy.get("lockFreeFileIO").boolean(default=True),
        spill_dirs=tuple(item.string() for item in policy.get("spillDirs").items()),
        cache_size=None if quantity is None else math.ceil(quantity.value),
        cache_percentage=policy.get("workerCachePercentage").optional_integer(),
    )


def memory_variables(spec: ManifestField, memory: int) -> dict[str, str]:
    """The environment of a worker with this memory in bytes. Mars separates directories with colons."""
    policy = read_memory_policy(spec)
    variables = {"MARS_PLASMA_DIRS": policy.plasma_store, "MARS_LOCK_FREE_FILEIO": str(int(policy.lock_free_io))}
    if policy.spill_dirs:
        variables["MARS_SPILL_DIRS"] = ":".join(policy.spill_dirs)
    if cache := policy.cache_bytes(memory):
        variables["MARS_CACHE_MEM_SIZE"] = str(cache)
    return variables


def with_memory_volumes(spec: ManifestField, pod_spec: JsonObject, *, container: str, memory: int) -> JsonObject:
    """The pod spec of a worker with a volume for each spill directory and one for the shared memory."""
    policy = read_memory_policy(spec)
    main = next((each for each in pod_spec["containers"] if each["name"] == container), pod_spec["containers"][0])
    sources = {path: {"emptyDir": source} for path, source in zip(policy.spill_dirs, _spill_sources(policy, main), strict=True)}
    named = {path: {"name": f"mars-empty-dir-{index}", **source} for index, (path, source) in enumerate(sources.items())}
    if cache := policy.cache_bytes(memory):
        named[policy.plasma_store] = {"name": _CACHE_VOLUME, "emptyDir": {"medium": "Memory", "sizeLimit": str(cache)}}
    if not named:
        return pod_spec
    mounts = [*(main.get("volumeMounts") or []), *({"name": volume["name"], "mountPath": path} for path, volume in named.items())]
    containers = [{**each, "volumeMounts": mounts} if each is main else each for each in pod_spec["containers"]]
    return {**pod_spec, "containers": containers, "volumes": [*(pod_spec.get("volumes") or []), *named.values()]}


def _spill_sources(policy: MemoryPolicy, container: JsonObject) -> list[JsonObject]:
    """The ephemeral storage that the container requests is divided among the directories."""
    storage = pod_requests({"containers": [container]}).get("ephemeral-storage")
    limit = {} if storage is None or not policy.spill_dirs else {"sizeLimit": str(math.floor(storage.value / len(policy.spill_dirs)))}
    return [dict(limit) for _ in policy.spill_dirs]
