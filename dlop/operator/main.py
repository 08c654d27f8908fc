"""Process entry point of the operator: connection, signals, health endpoints, logging, event loop and garbage collector."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from random import SystemRandom

import structlog
import yaml

from dlop.api.spec import SpecError
from dlop.api.types import KUBECTL_DELIVERY_IMAGE, Accelerator, Options
from dlop.frameworks.fioravanzo.accelerators import read_accelerators
from dlop.frameworks.kubeflow.pytorch_init import render_template
from dlop.frameworks.registry import Registry, RegistryError, load_registry
from dlop.kube.errors import ConfigurationError
from dlop.kube.http.transport import HttpTransport, connect
from dlop.kube.leader_election import LeadershipLostError
from dlop.operator.flags import LegacyNotice
from dlop.operator.gc import tune_garbage_collection
from dlop.operator.health import Endpoint, list_endpoints, serve_endpoint
from dlop.operator.logging import set_up_logging
from dlop.operator.operator import Operator
from dlop.operator.settings import Settings, SettingsError

log = structlog.get_logger(__name__)

_CONFIGURATION_ERRORS = (ConfigurationError, RegistryError, SettingsError)


def run(settings: Settings, *, notices: Iterable[LegacyNotice] = (), environ: Mapping[str, str] = os.environ) -> int:
    """Run the operator until it is stopped by a signal. Returns the exit code of the process."""
    set_up_logging(settings.log_format, settings.log_level)
    for notice in notices:
        log.info("using flag or variable of the Kubeflow training operator", name=notice.name, description=notice.description)
    try:
        with asyncio.Runner(loop_factory=_new_event_loop) as runner:
            runner.run(_serve(settings, environ=environ))
    except _CONFIGURATION_ERRORS as error:
        log.error("failed to start operator", error=str(error))
        return 1
    except LeadershipLostError as error:
        log.error("lost leadership; exiting so that the pod restarts", error=str(error))
        return 1
    return 0


def _new_event_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop  # noqa: PLC0415 - not available on every platform
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


async def _serve(settings: Settings, *, environ: Mapping[str, str]) -> None:
    in_cluster = "KUBERNETES_SERVICE_HOST" in environ
    registry = load_registry(settings.frameworks)
    options = _make_options(settings)
    transport = await connect(settings.kubeconfig or None, context=settings.context or None)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(transport.close)
        operator = _make_operator(settings, registry, transport, options=options, in_cluster=in_cluster)
        for endpoint in list_endpoints(settings, in_cluster=in_cluster):
            await _start_endpoint(operator, stack, endpoint, watch_age_limit_seconds=settings.watch_age_limit_seconds)
        stack.enter_context(_stop_on_signals(operator))
        tune_garbage_collection()
        await operator.run()


async def _start_endpoint(operator: Operator, stack: AsyncExitStack, endpoint: Endpoint, *, watch_age_limit_seconds: float) -> None:
    try:
        serving = serve_endpoint(operator, endpoint, watch_age_limit_seconds=watch_age_limit_seconds)
        host, port = await stack.enter_async_context(serving)
    except OSError as error:
        raise SettingsError(
            f"{endpoint.flag}: failed to listen on {endpoint.host}:{endpoint.port} ({error}); choose another port, or off"
        ) from error
    log.info("serving health probes and metrics", host=host, port=port, paths=sorted(endpoint.paths))


def _make_operator(settings: Settings, registry: Registry, transport: HttpTransport, *, options: Options, in_cluster: bool) -> Operator:
    connection = transport.config
    return Operator(
        settings.model_copy(update={"leader_election": settings.elects_leader(in_cluster=in_cluster)}),
        registry,
        transport=transport,
        options=options,
        rng=SystemRandom(),
        identity=f"{socket.gethostname()}_{uuid.uuid4()}",
        namespace=connection.namespace,
        host=connection.server.partition("://")[2],
        exit_process=os._exit,
    )


def _make_options(settings: Settings) -> Options:
    path = settings.controller_config_file
    accelerators = _read_accelerators(Path(path)) if path else {}
    return Options(
        accelerators=accelerators,
        cluster_domain=settings.cluster_domain,
        node_lost_seconds=settings.node_lost_seconds,
        kubectl_delivery_image=settings.mpi_kubectl_delivery_image or KUBECTL_DELIVERY_IMAGE,
        gang_scheduler_name=settings.gang_scheduler_name,
        pytorch_init_container_image=settings.pytorch_init_container_image,
        pytorch_init_container_max_tries=settings.pytorch_init_container_max_tries,
        pytorch_init_container_template=_read_template(settings.pytorch_init_container_template_file),
    )


def _read_accelerators(path: Path) -> Mapping[str, Accelerator]:
    try:
        return read_accelerators(yaml.safe_load(path.read_text()))
    except OSError as error:
        raise SettingsError(f"--controller-config-file: {path} cannot be read: {error.strerror or error}") from error
    except (UnicodeDecodeError, yaml.YAMLError, SpecError) as error:
        raise SettingsError(f"--controller-config-file: {path} is invalid: {error}") from error


def _read_template(path: str) -> str:
    """The content of the file. It is rendered once here, so that a mistake fails the start and not every job."""
    if not path:
        return ""
    flag = "--pytorch-init-container-template-file"
    try:
        template = Path(path).read_text()
        containers = render_template(template, MasterAddr="master", InitContainerImage="image", MaxTries="1")
    except OSError as error:
        raise SettingsError(f"{flag}: {path} cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise SettingsError(f"{flag}: {path} is invalid: {error}") from error
    if not isinstance(containers, list) or not all(isinstance(container, dict) and container.get("name") for container in containers):
        raise SettingsError(f"{flag}: {path} is invalid: must be a list of containers with names")
    return template


@contextlib.contextmanager
def _stop_on_signals(operator: Operator) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    signals = (signal.SIGTERM, signal.SIGINT)
    for number in signals:
        loop.add_signal_handler(number, operator.stop)
    try:
        yield
    finally:
        for number in signals:
            loop.remove_signal_handler(number)
