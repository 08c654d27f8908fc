"""Git repositories that are cloned into the pods of a job before its programs start: `runPolicy.codeSync`, or an annotation of KubeDL.

Addresses, branches and revisions are data: they only ever become values of environment variables of the container that clones.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from dlop.kube.types import JsonObject

if TYPE_CHECKING:
    from dlop.api.fields import ManifestField
    from dlop.api.spec import JobSpec

MAX_REPOSITORIES = 8
DEFAULT_ROOT = "/code"
DEFAULT_MAX_FAILURES = 3

_TRANSPORT = re.compile(r"([A-Za-z0-9+.-]+)::")
_CREDENTIALS = re.compile(r"(?:https?|ftps?)://[^/@]*@|[a-z0-9+.-]+://[^/@:]*:[^/@]*@", re.IGNORECASE)
_SSH = re.compile(r"(?:git\+)?ssh://|(?!.*://)[^/:]+:", re.IGNORECASE)
_REF = re.compile(r"(?!-)[^\s:\x00-\x1f\x7f]*")
_CONTROL_CHARACTER = re.compile(r"[\x00-\x1f\x7f]")
_SECRET_NAME = re.compile(r"(?=.{0,253}$)([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?")
_PASSWORD_VARIABLES = frozenset({"GIT_SYNC_PASSWORD", "GITSYNC_PASSWORD"})
_USE_SECRET = "put `username` and `password` into a Secret, and its name into secretName"  # noqa: S105 - a message
_FIELDS = frozenset(
    {
        *("source", "branch", "revision", "depth", "rootPath", "destPath", "image", "secretName", "envs", "maxFailures"),
        *("ssh", "sshFile", "user", "password"),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeSource:
    """One repository, and how it is cloned."""

    number: int
    path: str
    """The path of the object that sets it in the manifest, for messages."""
    source: str
    """A URL, `host:path` for SSH, or a path."""
    destination: str
    """The directory in which containers find the code, relative to their working directory."""
    branch: str = ""
    revision: str = ""
    depth: int = 0
    """The number of commits that are cloned; 0 means all."""
    root: str = DEFAULT_ROOT
    """Where the container that clones has the volume."""
    image: str = ""
    """The image that clones; empty means the one of the operator."""
    secret: str = ""
    """The Secret with the credentials."""
    user: str = ""
    """The user name; empty means the one in the Secret."""
    ssh: bool = False
    ssh_key_file: str = ""
    environment: tuple[JsonObject, ...] = ()
    """Further variables of the container that clones."""
    max_failures: int = DEFAULT_MAX_FAILURES

    @property
    def container_name(self) -> str:
        """The init container that clones it."""
        return _numbered("git-sync-code", self.number)

    @property
    def volume_name(self) -> str:
        return _numbered("git-sync", self.number)

    @property
    def secret_volume_name(self) -> str:
        return _numbered("git-sync-secret", self.number)

    @property
    def directory(self) -> str:
        """The name of the directory in the volume. Before version 4, git-sync does not accept a path."""
        return PurePosixPath(self.destination).name

    def mount_path(self, working_dir: str) -> str:
        """Where a container with this working directory finds the code. Empty means the root directory."""
        return posixpath.normpath(posixpath.join("/", working_dir, self.destination))

    def __str__(self) -> str:
        details = (("branch", self.branch), ("revision", self.revision))
        return " ".join([self.source, *(f"({name} {value})" for name, value in details if value)])


def _numbered(name: str, number: int) -> str:
    """The names of the first repository are those of KubeDL."""
    return f"{name}-{number}" if number else name


def read_code_sources(manifest: ManifestField) -> tuple[CodeSource, ...]:
    """Reads a list of repositories. Reports problems with all of them."""
    entries = list(manifest.items())
    if len(entries) > MAX_REPOSITORIES:
        manifest.error(f"must have at most {MAX_REPOSITORIES} repositories, got {len(entries)}")
        return ()
    sources: list[CodeSource] = []
    for number, entry in enumerate(entries):
        source = _read_source(entry, number)
        if source is None:
            continue
        other = next((other for other in sources if _overlap(source.destination, other.destination)), None)
        if other is not None:
            text = f"{source.destination!r:.60} overlaps with the directory {other.destination!r:.60} of {other.path}; set another one"
            entry.get("destPath").error(text)
        sources.append(source)
    return tuple(sources)


def _overlap(one: str, other: str) -> bool:
    first, second = PurePosixPath(one), PurePosixPath(other)
    return first.is_relative_to(second) or second.is_relative_to(first)


def with_annotated_code(spec: JobSpec, manifest: ManifestField) -> JobSpec:
    """The spec with the repositories of an annotation: an object, or a list of them. The run policy takes precedence."""
    if spec.run_policy.code_sync:
        manifest.warning("has no effect, because the run policy has codeSync")
        return spec
    if isinstance(manifest.value, list):
        sources = read_code_sources(manifest)
    else:
        source = None if manifest.is_absent else _read_source(manifest, 0)
        sources = () if source is None else (source,)
    return replace(spec, run_policy=replace(spec.run_policy, code_sync=sources))


def check_code_sync(spec: JobSpec, manifest: ManifestField, template_path: Callable[[str], str]) -> None:
    """Report volumes, containers and mounts of the pod templates that use the names or paths of the repositories.

    `template_path` returns the path of the pod template of a role, for messages.
    """
    for role in spec.roles:
        pod_spec = replace(manifest, path=template_path(role.name), value=role.template).get("spec")
        for source in spec.run_policy.code_sync:
            _check_names(pod_spec.get("volumes"), (source.volume_name, source.secret_volume_name), source)
            for name in ("initContainers", "containers"):
                _check_names(pod_spec.get(name), (source.container_name,), source)
            for container in pod_spec.get("containers").items():
                _check_mounts(container, source)


def _check_names(objects: ManifestField, reserved: tuple[str, ...], source: CodeSource) -> None:
    for name in (item.get("name") for item in objects.items()):
        if name.value in reserved:
            name.error(f"{name.value!r} is reserved for {source.path}; choose another name")


def _check_mounts(container: ManifestField, source: CodeSource) -> None:
    path = source.mount_path(container.get("workingDir").string())
    for target in (mount.get("mountPath") for mount in container.get("volumeMounts").items()):
        if isinstance(target.value, str) and posixpath.normpath(posixpath.join("/", target.value)) == path:
            target.error(f"{path!r:.60} is where {source.path} puts the code; set its destPath, or choose another path")


def _read_source(entry: ManifestField, number: int) -> CodeSource | None:
    """One repository; None if it has problems."""
    entry.object()
    for name, unknown in entry.entries():
        if name not in _FIELDS:
            unknown.warning("is not a field of a repository and has no effect")
    problems = len(entry.problems)
    source = _read_address(entry.get("source"))
    code = CodeSource(
        number=number,
        path=entry.path,
        source=source,
        destination=_read_destination(entry.get("destPath"), source),
        branch=_read_ref(entry.get("branch")),
        revision=_read_ref(entry.get("revision")),
        depth=_read_depth(entry.get("depth")),
        root=_read_root(entry.get("rootPath")),
        image=entry.get("image").string(),
        secret=_read_secret_name(entry.get("secretName")),
        user=_read_user(entry),
        ssh=entry.get("ssh").boolean() or _SSH.match(source) is not None,
        ssh_key_file=entry.get("sshFile").string(),
        environment=tuple(_read_environment(entry.get("envs"))),
        max_failures=entry.get("maxFailures").integer(DEFAULT_MAX_FAILURES, maximum=1000),
    )
    return code if len(entry.problems) == problems else None


def _read_address(source: ManifestField) -> str:
    address = source.string()
    if not address:
        if source.is_absent or source.value == "":
            source.error("is missing; set the address of the git repository")
    elif address.startswith("-") or address != address.strip() or _CONTROL_CHARACTER.search(address):
        source.error("must be the address of a git repository, without a leading dash, surrounding spaces and control characters")
    elif transport := _TRANSPORT.match(address):
        source.error(f"must be a URL or a path; the transport {transport[1]!r:.30} runs programs and is not allowed")
    elif _CREDENTIALS.match(address):
        # The message must not repeat the credentials.
        source.error(f"must not contain credentials, because all readers of the job would see them; {_USE_SECRET}")
    return address


def _read_ref(ref: ManifestField) -> str:
    name = ref.string()
    if not _REF.fullmatch(name):
        ref.error(f"must be the name of a branch, tag or commit, got {name!r:.60}")
    return name


def _read_depth(depth: ManifestField) -> int:
    """KubeDL's field is a string."""
    value: Any = depth.value
    if isinstance(value, str) and re.fullmatch("[0-9]{0,9}", value):
        value = int(value or "0")
    return replace(depth, value=value).integer(0, maximum=2**31 - 1)


def _read_root(root: ManifestField) -> str:
    path = PurePosixPath(root.string() or DEFAULT_ROOT)
    if not path.is_absolute() or len(path.parts) < 2 or ".." in path.parts or _is_invalid_path(str(path)):
        root.error(f"must be an absolute path below the root directory and without '..', got {root.value!r:.60}")
    return str(path)


def _read_destination(destination: ManifestField, source: str) -> str:
    text = destination.string()
    if not text:
        # As git does: `https://example.org/team/train.git` and `host:train.git` are cloned into `train`.
        name = re.split(r"[/:]", source.rstrip("/"))[-1].removesuffix(".git").removesuffix(".bundle")
        if source and (name in ("", ".", "..") or _is_invalid_path(name)):
            destination.error("is missing, and the source has no name for the directory; set destPath")
        return name
    path = PurePosixPath(text)
    if path.is_absolute() or ".." in path.parts or not path.parts or _is_invalid_path(text):
        destination.error(f"must be a relative path without '..', got {text!r:.60}")
    return str(path)


def _is_invalid_path(path: str) -> bool:
    """Whether Kubernetes rejects it as the path of a mount."""
    return ":" in path or _CONTROL_CHARACTER.search(path) is not None


def _read_secret_name(secret: ManifestField) -> str:
    name = secret.string()
    if not _SECRET_NAME.fullmatch(name):
        secret.error(f"must be the name of a Secret in the namespace of the job, got {name!r:.60}")
    return name


def _read_user(entry: ManifestField) -> str:
    """A user name is not secret, but it is of no use without the password, which must not be in a manifest."""
    if entry.get("password").value not in (None, ""):
        entry.get("password").error(f"must not be in a manifest, because all readers of the job would see it; {_USE_SECRET}")
    user = entry.get("user")
    if user.string() and not entry.get("secretName").string():
        user.error("needs secretName, the name of a Secret with `password`")
    return user.string()


def _read_environment(variables: ManifestField) -> Iterator[JsonObject]:
    for variable in variables.items():
        variable.object()
        name, value = variable.get("name").string(), variable.get("value")
        if not name:
            variable.error("must have a name")
        elif name in _PASSWORD_VARIABLES and not value.is_absent:
            value.error(f"must not be in a manifest, because all readers of the job would see it; {_USE_SECRET}")
        else:
            value.string()
            fields = variable.object()
            yield {field: fields[field] for field in ("name", "value", "valueFrom") if fields.get(field) is not None}
