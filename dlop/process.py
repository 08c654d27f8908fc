"""The operator as a process: connection, signals, probes, logs, a fast event loop and a quiet garbage collector."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import uuid
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from random import SystemRandom

import structlog
import yaml

from dlop.accelerators import read_accelerators
from dlop.declaration import KUBECTL_DELIVERY_IMAGE, Accelerator, Options
from dlop.engine.spec import SpecError
from dlop.kube.errors import ConfigurationError
from dlop.kube.garbage import tune_garbage_collection
from dlop.kube.http import HttpTransport, connect
from dlop.kube.lease import LeadershipLostError
from dlop.log_lines import set_up_logging
from dlop.operator import Operator
from dlop.probes import serving_probes
from dlop.registry import Registry, RegistryError, load_registry
from dlop.settings import Settings, SettingsError

log = structlog.get_logger(__name__)

_MISTAKES = (ConfigurationError, RegistryError, SettingsError)


def run(settings: Settings, *, environ: Mapping[str, str] = os.environ) -> int:
    """Run the operator until it is told to stop. Returns the exit code of the process."""
    set_up_logging(settings.log_format, settings.log_level)
    try:
        with asyncio.Runner(loop_factory=_loop) as runner:
            runner.run(_serve(settings, environ=environ))
    except _MISTAKES as error:
        log.error("the operator cannot start", error=str(error))
        return 1
    except LeadershipLostError as error:
        log.error("the operator ends, to begin anew", error=str(error))
        return 1
    return 0


def _loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop  # noqa: PLC0415 - not there on every platform
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


async def _serve(settings: Settings, *, environ: Mapping[str, str]) -> None:
    in_cluster = "KUBERNETES_SERVICE_HOST" in environ
    registry = load_registry(settings.frameworks)
    options = _options(settings)
    transport = await connect(settings.kubeconfig or None, context=settings.context or None)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(transport.close)
        operator = _operator(settings, registry, transport, options=options, in_cluster=in_cluster)
        address = settings.address(in_cluster=in_cluster)
        if address is not None:
            await _serve_probes(operator, stack, address=address, watch_age_limit_seconds=settings.watch_age_limit_seconds)
        stack.enter_context(_stopping_on_signals(operator))
        tune_garbage_collection()
        await operator.run()


async def _serve_probes(operator: Operator, stack: AsyncExitStack, *, address: tuple[str, int], watch_age_limit_seconds: float) -> None:
    host, port = address
    try:
        probes = serving_probes(operator, host=host, port=port, watch_age_limit_seconds=watch_age_limit_seconds)
        bound = await stack.enter_async_context(probes)
    except OSError as error:
        raise SettingsError(f"--bind-address: {host}:{port} cannot be served ({error}); choose another port, or off") from error
    log.info("probes and metrics are served", host=bound[0], port=bound[1])


def _operator(settings: Settings, registry: Registry, transport: HttpTransport, *, options: Options, in_cluster: bool) -> Operator:
    elects = in_cluster if settings.leader_election is None else settings.leader_election
    connection = transport.connection
    return Operator(
        settings.model_copy(update={"leader_election": elects}),
        registry,
        transport=transport,
        options=options,
        rng=SystemRandom(),
        identity=f"{socket.gethostname()}_{uuid.uuid4()}",
        namespace=connection.namespace,
        host=connection.server.partition("://")[2],
        exit_process=os._exit,
    )


def _options(settings: Settings) -> Options:
    path = settings.controller_config_file
    accelerators = _accelerators(Path(path)) if path else {}
    return Options(
        accelerators=accelerators,
        cluster_domain=settings.cluster_domain,
        node_lost_seconds=settings.node_lost_seconds,
        kubectl_delivery_image=settings.mpi_kubectl_delivery_image or KUBECTL_DELIVERY_IMAGE,
        pytorch_init_container_image=settings.pytorch_init_container_image,
        pytorch_init_container_max_tries=settings.pytorch_init_container_max_tries,
    )


def _accelerators(path: Path) -> Mapping[str, Accelerator]:
    try:
        return read_accelerators(yaml.safe_load(path.read_text()))
    except OSError as error:
        raise SettingsError(f"--controller-config-file: {path} cannot be read: {error.strerror or error}") from error
    except (UnicodeDecodeError, yaml.YAMLError, SpecError) as error:
        raise SettingsError(f"--controller-config-file: {path} makes no sense: {error}") from error


@contextlib.contextmanager
def _stopping_on_signals(operator: Operator) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    signals = (signal.SIGTERM, signal.SIGINT)
    for number in signals:
        loop.add_signal_handler(number, operator.stop)
    try:
        yield
    finally:
        for number in signals:
            loop.remove_signal_handler(number)
