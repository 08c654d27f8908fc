"""The init containers that clone the git repositories of a job, and the volumes in which its containers find the code.

The containers run git-sync. The name of an image does not show its version, so they have the variables of all versions: `GIT_SYNC_*` of
versions 2 and 3, as for KubeDL, and `GITSYNC_*` of version 4. Not every release of version 4 reads all old names; without ONE_TIME, for
example, the container never ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dlop.api.code_sync import CodeSource
from dlop.api.types import Options
from dlop.kube.types import JsonObject

if TYPE_CHECKING:
    from dlop.job import DLJob

_SECRET_DIR = "/etc/git-secret"  # noqa: S105 - where git-sync looks for `ssh` and `known_hosts`
_SECURITY_CONTEXT: JsonObject = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
"""Git needs no privileges. The user is that of the image or of the pod; files of git-sync are readable by all users."""


def find_source_without_image(job: DLJob) -> CodeSource | None:
    """The first repository that no image can clone; None if the pods can be created."""
    if job.options.git_sync_image:
        return None
    return next((source for source in job.spec.run_policy.code_sync if not source.image), None)


def describe_missing_image(source: CodeSource) -> str:
    return f"{source.path}: there is no image to clone {source.source}; set `image`, or start the operator with --git-sync-image"


def with_code(pod_spec: JsonObject, sources: tuple[CodeSource, ...], *, resources: JsonObject | None, options: Options) -> JsonObject:
    """A copy of a pod spec that clones these repositories after the user's init containers, and mounts them in all containers.

    `resources` are those of the training container. With the same ones, the clones change neither the requests of the pod nor its QoS
    class, and they satisfy quotas that require limits.
    """
    clones = [_init_container(source, resources, options) for source in sources]
    volumes = [volume for source in sources for volume in _volumes(source, options)]
    return {
        **pod_spec,
        "volumes": [*(pod_spec.get("volumes") or ()), *volumes],
        "initContainers": [*(pod_spec.get("initContainers") or ()), *clones],
        "containers": [_with_mounts(container, sources) for container in pod_spec["containers"]],
    }


def _with_mounts(container: JsonObject, sources: tuple[CodeSource, ...]) -> JsonObject:
    working_dir = container.get("workingDir") or ""
    mounts = [{"name": source.volume_name, "mountPath": source.mount_path(working_dir), "subPath": source.directory} for source in sources]
    return {**container, "volumeMounts": [*(container.get("volumeMounts") or ()), *mounts]}


def _volumes(source: CodeSource, options: Options) -> Iterator[JsonObject]:
    yield {"name": source.volume_name, "emptyDir": {}}
    if _uses_key(source, options):
        # The user of the image is not root and must be able to read the key. OpenSSH accepts this mode if the file is of another user.
        yield {"name": source.secret_volume_name, "secret": {"secretName": source.secret, "defaultMode": 0o444}}


def _uses_key(source: CodeSource, options: Options) -> bool:
    return source.ssh and bool(source.secret) and options.git_sync_credentials


def _init_container(source: CodeSource, resources: JsonObject | None, options: Options) -> JsonObject:
    mounts: list[JsonObject] = [{"name": source.volume_name, "mountPath": source.root}]
    if _uses_key(source, options):
        mounts.append({"name": source.secret_volume_name, "mountPath": _SECRET_DIR, "readOnly": True})
    container = {
        "name": source.container_name,
        "image": source.image or options.git_sync_image,
        "imagePullPolicy": "IfNotPresent",
        "env": list(_environment(source, options).values()),
        "volumeMounts": mounts,
        "securityContext": _SECURITY_CONTEXT,
        # The end of the log says why a clone has failed.
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    return {**container, "resources": resources} if resources else container


def _environment(source: CodeSource, options: Options) -> dict[str, JsonObject]:
    """The variables by name. Those of the user come first, but cannot replace what the fields of the repository set."""
    variables: dict[str, JsonObject] = {variable["name"]: variable for variable in source.environment}
    # The default of version 4 is 1.
    variables.setdefault("GITSYNC_DEPTH", {"name": "GITSYNC_DEPTH", "value": "0"})
    for names, value in _settings(source):
        if value:
            # `$(NAME)` would be expanded.
            variables |= {name: {"name": name, "value": value.replace("$", "$$")} for name in names}
    if source.secret and not source.ssh and options.git_sync_credentials:
        keys = ("password",) if source.user else ("username", "password")
        for name, key in ((f"{prefix}_{key.upper()}", key) for key in keys for prefix in ("GIT_SYNC", "GITSYNC")):
            variables[name] = {"name": name, "valueFrom": {"secretKeyRef": {"name": source.secret, "key": key}}}
    return variables


def _settings(source: CodeSource) -> Iterator[tuple[tuple[str, ...], str]]:
    """Variables with their values; empty values are left out."""
    yield ("GIT_SYNC_REPO", "GITSYNC_REPO"), source.source
    yield ("GIT_SYNC_ONE_TIME", "GITSYNC_ONE_TIME"), "true"
    yield ("GIT_SYNC_MAX_SYNC_FAILURES", "GITSYNC_MAX_FAILURES"), str(source.max_failures)
    yield ("GIT_SYNC_BRANCH",), source.branch
    yield ("GIT_SYNC_REV",), source.revision
    yield ("GITSYNC_REF",), source.revision or source.branch
    yield ("GIT_SYNC_DEPTH", "GITSYNC_DEPTH"), str(source.depth or "")
    yield ("GIT_SYNC_ROOT", "GITSYNC_ROOT"), source.root
    yield ("GIT_SYNC_DEST", "GITSYNC_LINK"), source.directory
    yield ("GIT_SYNC_SSH", "GITSYNC_SSH"), "true" if source.ssh else ""
    yield ("GIT_SSH_KEY_FILE", "GITSYNC_SSH_KEY_FILE"), source.ssh_key_file if source.ssh else ""
    yield ("GIT_SYNC_USERNAME", "GITSYNC_USERNAME"), "" if source.ssh else source.user
