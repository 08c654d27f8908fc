"""Loads the cluster configuration.

Sources, in this order: the given kubeconfig, the files in KUBECONFIG, the service account of the pod, ~/.kube/config.
Proxies are read from the environment only once, here.
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
from dlop.kube.config.loaders import import_loaders
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
    """Load the configuration of a cluster.

    Raises:
        ConfigurationError: no usable configuration; the message names the file and how to fix the problem.
    """
    paths = str(kubeconfig or environ.get("KUBECONFIG") or "")
    if not paths and context is None and environ.get("KUBERNETES_SERVICE_HOST"):
        return _in_cluster(service_account, environ=environ, clock=clock)
    # As in kubectl, the default is the file in the home directory.
    return await _from_kubeconfig(paths or _home_kubeconfig(environ), context=context, environ=environ, clock=clock)


def _home_kubeconfig(environ: Mapping[str, str]) -> str:
    return str(Path(environ.get("HOME") or "~").expanduser() / ".kube" / "config")


async def _from_kubeconfig(paths: str, *, context: str | None, environ: Mapping[str, str], clock: Callable[[], float]) -> ClusterConfig:
    config = await read_kubeconfig(paths, context=context)
    return ClusterConfig(
        server=config.server,
        credentials=KubeconfigCredentials(paths, context=context, first=config, clock=clock, environ=environ),
        origin=config.origin,
        proxy=config.proxy or proxy_from_environment(config.server, environ),
        tls_server_name=config.tls_server_name,
        namespace=config.namespace,
    )


def _in_cluster(directory: Path, *, environ: Mapping[str, str], clock: Callable[[], float]) -> ClusterConfig:
    # Without an own Configuration the loader would change the default of the process.
    configuration: Any = import_loaders().Configuration()
    token, ca_bundle = directory / "token", directory / "ca.crt"
    try:
        loader = import_loaders().InClusterConfigLoader(str(token), str(ca_bundle), try_refresh_token=False, environ=dict(environ))
        loader.load_and_set(configuration)
    except (import_loaders().ConfigException, OSError) as error:
        raise ConfigurationError(
            f"this pod has no usable service account in {directory} ({error}): mount one (automountServiceAccountToken), or set KUBECONFIG"
        ) from error
    namespace = directory / "namespace"
    return ClusterConfig(
        server=configuration.host,
        credentials=ServiceAccountCredentials(directory, clock=clock),
        origin=f"the service account in {directory}",
        proxy=proxy_from_environment(configuration.host, environ),
        namespace=namespace.read_text().strip() if namespace.is_file() else "default",
    )
