"""Reads kubeconfig files with kubernetes-asyncio, which knows their merging rules and old kinds of users.

Whatever is wrong with them becomes one sentence that names the file and the way out. The files' secrets are not kept
here any longer than it takes to make a TLS context or a header of them.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import yaml

from dlop.kube.config.exec_plugin import ExecPlugin, ExecSource
from dlop.kube.config.loaders import loaders
from dlop.kube.config.proxies import checked_proxy, is_http_address
from dlop.kube.config.tls import TlsMaterial
from dlop.kube.errors import ConfigurationError
from dlop.kube.types import JsonObject

# A user that acts as someone else would silently have more rights than asked for if this were ignored.
_IMPERSONATION = ("as", "as-uid", "as-groups", "as-user-extra")


@dataclass(frozen=True, slots=True)
class Kubeconfig:
    """One context of a kubeconfig, with the contents of the files that it points to."""

    server: str
    tls: TlsMaterial
    namespace: str
    origin: str
    proxy: str | None = None
    tls_server_name: str | None = None
    authorization: str | None = None
    token_file: Path | None = None
    exec_source: ExecSource | None = None


async def read_kubeconfig(paths: str, *, context: str | None) -> Kubeconfig:
    """Read the files (one path, or several as in KUBECONFIG) and pick a context, the current one where none is given.

    Raises:
        ConfigurationError: when that gives no usable cluster.
    """
    _check_readable(paths)
    loaders()  # here, and not in the thread: imports are for one at a time
    # In a thread, because a large file takes the YAML parser long enough to be felt.
    merged = await asyncio.to_thread(_merge, paths)
    name = context or merged.config.value.get("current-context")
    if not name:
        raise ConfigurationError(f"kubeconfig {paths} has no current-context: name one, or run kubectl config use-context")
    origin = f"kubeconfig {paths}, context {name}"
    try:
        _check_context(merged, paths, name)
        return await _resolve(merged, name, origin)
    except (loaders().ConfigException, AssertionError, AttributeError, TypeError, KeyError, ValueError, OSError) as error:
        raise ConfigurationError(f"{origin} is not usable: {error}; mend the file or get a new one") from error


def _check_readable(paths: str) -> None:
    found = [Path(path).expanduser() for path in paths.split(os.pathsep) if path and Path(path).expanduser().exists()]
    if not found:
        raise ConfigurationError(f"kubeconfig {paths} does not exist: set KUBECONFIG to one that does, or pass its path")
    for path in found:
        if not path.is_file():
            raise ConfigurationError(f"kubeconfig {path} is not a file: set KUBECONFIG to a kubeconfig file")
        if not os.access(path, os.R_OK):
            raise ConfigurationError(f"kubeconfig {path} may not be read by this user: change its permissions or choose another one")


def _merge(paths: str) -> Any:
    try:
        return loaders().KubeConfigMerger(paths)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        problem = " ".join(str(error).split())
        raise ConfigurationError(f"kubeconfig {paths} is not YAML ({problem}): mend it or choose another one") from error
    except OSError as error:
        raise ConfigurationError(f"kubeconfig {paths} cannot be read ({error.strerror}): change that or choose another one") from error
    except (TypeError, AttributeError, KeyError) as error:
        raise ConfigurationError(f"kubeconfig {paths} is YAML but no kubeconfig: choose another one") from error


def _check_context(merged: Any, paths: str, name: str) -> None:
    known = sorted(str(context.value.get("name")) for context in merged.config.value["contexts"])
    if name not in known:
        there = ", ".join(known) or "none at all"
        raise ConfigurationError(f"kubeconfig {paths} has no context {name}; it has: {there}")


async def _resolve(merged: Any, name: str, origin: str) -> Kubeconfig:
    context = merged.config["contexts"].get_with_name(name)["context"]
    cluster = merged.config["clusters"].get_with_name(context["cluster"])["cluster"]
    user = _user(merged, context)
    server = _server(cluster.safe_get("server") or "", origin)
    if user is None and server.startswith("https:"):
        raise ConfigurationError(f"{origin} names no user that the file has: add one, or choose another context")
    exec_source, token_file = _taken_over(user, cluster, origin) if user is not None else (None, None)
    loader = loaders().KubeConfigLoader(
        config_dict=merged.config, active_context=name, config_base_path=None, config_persister=lambda _: merged.save_changes()
    )
    # One of its own: loaders that are given none change the default of the whole process.
    found = loaders().Configuration()
    await loader.load_and_set(found)
    authorization = found.api_key.get("BearerToken")
    return Kubeconfig(
        server=server,
        tls=_material(found),
        namespace=context.safe_get("namespace") or "default",
        origin=origin,
        proxy=checked_proxy(found.proxy, origin=origin) if found.proxy else None,
        tls_server_name=found.tls_server_name,
        authorization=authorization.strip() if authorization else None,
        token_file=token_file,
        exec_source=exec_source,
    )


def _user(merged: Any, context: Any) -> Any:
    name = context.safe_get("user")
    entry = merged.config["users"].get_with_name(name, safe=True) if name else None
    return entry["user"] if entry is not None else None


def _taken_over(user: Any, cluster: Any, origin: str) -> tuple[ExecSource | None, Path | None]:
    """Take from the user's entry what dlop does itself, so that kubernetes-asyncio does not do it too."""
    impersonation = [key for key in _IMPERSONATION if user.safe_get(key)]
    if impersonation:
        raise ConfigurationError(
            f"{origin} asks to act as another user ({', '.join(impersonation)}), which dlop does not do: use a user without"
        )
    folder = Path(user.path or "").absolute().parent
    # The loader would not look at them, and what is taken out here must not be missing in a file that it writes back.
    if user.safe_get("auth-provider"):
        return None, None
    exec_source = None
    if user.safe_get("exec"):
        plugin = msgspec.convert(user.value.pop("exec"), ExecPlugin, strict=False)
        exec_source = ExecSource(plugin, folder=folder, cluster=_cluster_information(cluster))
    token_file = None
    if user.safe_get("tokenFile"):
        token_file = folder / user.value.pop("tokenFile")
        user.value.pop("token", None)
    return exec_source, token_file


def _cluster_information(cluster: Any) -> JsonObject:
    extensions = {entry.get("name"): entry.get("extension") for entry in cluster.value.get("extensions") or ()}
    information = {
        key: cluster.value[key]
        for key in ("server", "tls-server-name", "insecure-skip-tls-verify", "certificate-authority-data", "proxy-url")
        if key in cluster.value
    }
    return {**information, "config": extensions.get("client.authentication.k8s.io/exec")}


def _server(address: Any, origin: str) -> str:
    if not isinstance(address, str) or not is_http_address(address):
        raise ConfigurationError(f"{origin} has the server {address!r}, which is no http or https address: set cluster.server")
    return address.rstrip("/")


def _material(found: Any) -> TlsMaterial:
    def contents(path: str | None) -> bytes | None:
        return Path(path).read_bytes() if path else None

    return TlsMaterial(
        authorities=contents(found.ssl_ca_cert),
        certificate=contents(found.cert_file),
        key=contents(found.key_file),
        verify=bool(found.verify_ssl),
    )
