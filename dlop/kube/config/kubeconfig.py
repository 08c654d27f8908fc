"""Reading of kubeconfig files with kubernetes-asyncio, which implements the merge rules and legacy kinds of users.

Every problem becomes a ConfigurationError that names the file and how to fix the problem.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import yaml

from dlop.kube.config.exec_plugin import ExecAuthenticator, ExecConfig
from dlop.kube.config.loaders import import_loaders
from dlop.kube.config.proxies import is_http_url, validate_proxy
from dlop.kube.config.tls import TlsConfig
from dlop.kube.errors import ConfigurationError
from dlop.kube.types import JsonObject

# Ignoring impersonation would silently give the user more permissions than intended.
_IMPERSONATION = ("as", "as-uid", "as-groups", "as-user-extra")


@dataclass(frozen=True, slots=True)
class Kubeconfig:
    """One context of a kubeconfig, with the contents of the files that it references."""

    server: str
    tls: TlsConfig
    namespace: str
    origin: str
    proxy: str | None = None
    tls_server_name: str | None = None
    authorization: str | None = None
    token_file: Path | None = None
    authenticator: ExecAuthenticator | None = None


async def read_kubeconfig(paths: str, *, context: str | None) -> Kubeconfig:
    """Read one file, or several as in KUBECONFIG, and resolve a context. None means the current context.

    Raises:
        ConfigurationError: the files do not describe a usable cluster.
    """
    _check_readable(paths)
    import_loaders()  # not in the thread, because the import patches sys.modules
    # In a thread, because parsing a large YAML file would block the loop.
    merged = await asyncio.to_thread(_merge, paths)
    name = context or merged.config.value.get("current-context")
    if not name:
        raise ConfigurationError(f"kubeconfig {paths} has no current-context: specify a context, or run kubectl config use-context")
    origin = f"kubeconfig {paths}, context {name}"
    try:
        _check_context(merged, paths, name)
        return await _resolve(merged, name, origin)
    except (import_loaders().ConfigException, AssertionError, AttributeError, TypeError, KeyError, ValueError, OSError) as error:
        raise ConfigurationError(f"{origin} is not usable: {error}; fix the file or get a new one") from error


def _check_readable(paths: str) -> None:
    files = [Path(path).expanduser() for path in paths.split(os.pathsep) if path and Path(path).expanduser().exists()]
    if not files:
        raise ConfigurationError(f"kubeconfig {paths} does not exist: set KUBECONFIG to an existing file, or pass its path")
    for path in files:
        if not path.is_file():
            raise ConfigurationError(f"kubeconfig {path} is not a file: set KUBECONFIG to a kubeconfig file")
        if not os.access(path, os.R_OK):
            raise ConfigurationError(f"kubeconfig {path} is not readable by this user: change its permissions or use another file")


def _merge(paths: str) -> Any:
    try:
        return import_loaders().KubeConfigMerger(paths)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        problem = " ".join(str(error).split())
        raise ConfigurationError(f"kubeconfig {paths} is not valid YAML ({problem}): fix it or use another file") from error
    except OSError as error:
        raise ConfigurationError(f"cannot read kubeconfig {paths} ({error.strerror}): fix this or use another file") from error
    except (TypeError, AttributeError, KeyError) as error:
        raise ConfigurationError(f"kubeconfig {paths} is valid YAML but not a kubeconfig: use another file") from error


def _check_context(merged: Any, paths: str, name: str) -> None:
    known = sorted(str(context.value.get("name")) for context in merged.config.value["contexts"])
    if name not in known:
        raise ConfigurationError(f"kubeconfig {paths} has no context {name}; existing contexts: {', '.join(known) or 'none'}")


async def _resolve(merged: Any, name: str, origin: str) -> Kubeconfig:
    context = merged.config["contexts"].get_with_name(name)["context"]
    cluster = merged.config["clusters"].get_with_name(context["cluster"])["cluster"]
    user = _user(merged, context)
    server = _server(cluster.safe_get("server") or "", origin)
    if user is None and server.startswith("https:"):
        raise ConfigurationError(f"{origin} does not name an existing user: add the user, or use another context")
    authenticator, token_file = _extract_own_sources(user, cluster, origin) if user is not None else (None, None)
    loader = import_loaders().KubeConfigLoader(
        config_dict=merged.config, active_context=name, config_base_path=None, config_persister=lambda _: merged.save_changes()
    )
    # Without an own Configuration the loader would change the default of the process.
    configuration = import_loaders().Configuration()
    await loader.load_and_set(configuration)
    authorization = configuration.api_key.get("BearerToken")
    return Kubeconfig(
        server=server,
        tls=_tls_config(configuration),
        namespace=context.safe_get("namespace") or "default",
        origin=origin,
        proxy=validate_proxy(configuration.proxy, origin=origin) if configuration.proxy else None,
        tls_server_name=configuration.tls_server_name,
        authorization=authorization.strip() if authorization else None,
        token_file=token_file,
        authenticator=authenticator,
    )


def _user(merged: Any, context: Any) -> Any:
    name = context.safe_get("user")
    entry = merged.config["users"].get_with_name(name, safe=True) if name else None
    return entry["user"] if entry is not None else None


def _extract_own_sources(user: Any, cluster: Any, origin: str) -> tuple[ExecAuthenticator | None, Path | None]:
    """Remove exec plugin and token file from the user entry. dlop handles them itself, instead of kubernetes-asyncio."""
    impersonation = [key for key in _IMPERSONATION if user.safe_get(key)]
    if impersonation:
        raise ConfigurationError(
            f"{origin} uses impersonation ({', '.join(impersonation)}), which dlop does not support: use a user without it"
        )
    directory = Path(user.path or "").absolute().parent
    # The loader prefers the auth-provider and may write the file back, so nothing must be removed from it.
    if user.safe_get("auth-provider"):
        return None, None
    authenticator = None
    if user.safe_get("exec"):
        exec_config = msgspec.convert(user.value.pop("exec"), ExecConfig, strict=False)
        authenticator = ExecAuthenticator(exec_config, directory=directory, cluster=_exec_cluster_info(cluster))
    token_file = None
    if user.safe_get("tokenFile"):
        token_file = directory / user.value.pop("tokenFile")
        user.value.pop("token", None)
    return authenticator, token_file


def _exec_cluster_info(cluster: Any) -> JsonObject:
    extensions = {entry.get("name"): entry.get("extension") for entry in cluster.value.get("extensions") or ()}
    info = {
        key: cluster.value[key]
        for key in ("server", "tls-server-name", "insecure-skip-tls-verify", "certificate-authority-data", "proxy-url")
        if key in cluster.value
    }
    return {**info, "config": extensions.get("client.authentication.k8s.io/exec")}


def _server(address: Any, origin: str) -> str:
    if not isinstance(address, str) or not is_http_url(address):
        raise ConfigurationError(f"{origin} has the server {address!r}, which is not an http or https URL: set cluster.server")
    return address.rstrip("/")


def _tls_config(configuration: Any) -> TlsConfig:
    def contents(path: str | None) -> bytes | None:
        return Path(path).read_bytes() if path else None

    return TlsConfig(
        ca_data=contents(configuration.ssl_ca_cert),
        cert_data=contents(configuration.cert_file),
        key_data=contents(configuration.key_file),
        verify=bool(configuration.verify_ssl),
    )
