"""Finds the cluster to talk to.

In this order: the kubeconfig that was passed, the files in KUBECONFIG, the service account of the pod that this process
runs in, ~/.kube/config. Proxies are read from the environment here, once, and never again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from dlop.kube.config.cluster import ClusterConfig
from dlop.kube.config.credentials import KubeconfigCredentials, ServiceAccountCredentials
from dlop.kube.config.kubeconfig import read_kubeconfig
from dlop.kube.config.loaders import loaders
from dlop.kube.config.proxies import proxy_from_environment
from dlop.kube.errors import ConfigurationError

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


async def load(
    kubeconfig: Path | str | None = None,
    *,
    context: str | None = None,
    environ: Mapping[str, str] = os.environ,
    service_account: Path = SERVICE_ACCOUNT,
    clock: Callable[[], float] = time.time,
) -> ClusterConfig:
    """The cluster to talk to, and the credentials for it.

    Raises:
        ConfigurationError: when there is none; the message names the file and the way out.
    """
    paths = str(kubeconfig or environ.get("KUBECONFIG") or "")
    if not paths and context is None and environ.get("KUBERNETES_SERVICE_HOST"):
        return _in_cluster(service_account, environ=environ, clock=clock)
    # As kubectl does it, an unset KUBECONFIG means the file in the home folder.
    return await _from_kubeconfig(paths or _home_kubeconfig(environ), context=context, environ=environ, clock=clock)


def _home_kubeconfig(environ: Mapping[str, str]) -> str:
    return str(Path(environ.get("HOME") or "~").expanduser() / ".kube" / "config")


async def _from_kubeconfig(paths: str, *, context: str | None, environ: Mapping[str, str], clock: Callable[[], float]) -> ClusterConfig:
    found = await read_kubeconfig(paths, context=context)
    return ClusterConfig(
        server=found.server,
        credentials=KubeconfigCredentials(paths, context=context, first=found, clock=clock, environ=environ),
        origin=found.origin,
        proxy=found.proxy or proxy_from_environment(found.server, environ),
        tls_server_name=found.tls_server_name,
        namespace=found.namespace,
    )


def _in_cluster(folder: Path, *, environ: Mapping[str, str], clock: Callable[[], float]) -> ClusterConfig:
    # One of its own: loaders that are given none change the default of the whole process.
    found: Any = loaders().Configuration()
    token, authorities = folder / "token", folder / "ca.crt"
    try:
        loader = loaders().InClusterConfigLoader(str(token), str(authorities), try_refresh_token=False, environ=dict(environ))
        loader.load_and_set(found)
    except (loaders().ConfigException, OSError) as error:
        raise ConfigurationError(
            f"this pod has no usable service account in {folder} ({error}): mount one (automountServiceAccountToken), or set KUBECONFIG"
        ) from error
    namespace = folder / "namespace"
    return ClusterConfig(
        server=found.host,
        credentials=ServiceAccountCredentials(folder, clock=clock),
        origin=f"the service account in {folder}",
        proxy=proxy_from_environment(found.host, environ),
        namespace=namespace.read_text().strip() if namespace.is_file() else "default",
    )
