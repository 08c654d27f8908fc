"""Process entry point of the operator: connection, signals, health endpoints, logging, event loop and garbage collector."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AsyncExitStack
from random import SystemRandom

import structlog

from dlop.api.types import Options
from dlop.frameworks.registry import Registry, RegistryError
from dlop.kube.errors import ConfigurationError
from dlop.kube.http.transport import HttpTransport, connect
from dlop.operator.event_loop import EventLoopMonitor
from dlop.operator.flags import LegacyNotice
from dlop.operator.gc import tune_garbage_collection
from dlop.operator.health import Endpoint, list_endpoints, serve_endpoint
from dlop.operator.logging import set_up_logging
from dlop.operator.operator import Operator
from dlop.operator.settings import Settings, SettingsError, load_framework_flags

log = structlog.get_logger(__name__)

# Large jobs are planned in a thread. Each read and write of a TLS connection lets it run, by default for at least 5 ms.
_SWITCH_INTERVAL_SECONDS = 0.0002
_CONFIGURATION_ERRORS = (ConfigurationError, RegistryError, SettingsError)


def run(settings: Settings, registry: Registry, *, notices: Iterable[LegacyNotice] = (), environ: Mapping[str, str] = os.environ) -> int:
    """Run the operator until it is stopped by a signal. Returns the exit code of the process.

    `settings` must have the flags of the frameworks in the registry; see `with_framework_flags`.
    """
    set_up_logging(settings.log_format, settings.log_level)
    for error in registry.skipped:
        log.error("failed to load framework", error=error)
    for notice in notices:
        log.info("using flag or variable of another operator", name=notice.name, description=notice.description)
    try:
        with asyncio.Runner(loop_factory=_new_event_loop) as runner:
            runner.run(_serve(settings, registry, environ=environ))
    except _CONFIGURATION_ERRORS as error:
        log.error("failed to start operator", error=str(error))
        return 1
    return 0


def _new_event_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop  # noqa: PLC0415 - not available on every platform
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


async def _serve(settings: Settings, registry: Registry, *, environ: Mapping[str, str]) -> None:
    in_cluster = "KUBERNETES_SERVICE_HOST" in environ
    options = make_options(settings, registry)
    transport = await connect(settings.kubeconfig or None, context=settings.context or None)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(transport.close)
        operator = _make_operator(settings, registry, transport, options=options, in_cluster=in_cluster)
        for endpoint in list_endpoints(settings, in_cluster=in_cluster):
            await _start_endpoint(operator, stack, endpoint, watch_age_limit_seconds=settings.watch_age_limit_seconds)
        stack.enter_context(_stop_on_signals(operator))
        tune_garbage_collection()
        sys.setswitchinterval(_SWITCH_INTERVAL_SECONDS)
        if settings.event_loop_metrics:
            stack.enter_context(_measured_event_loop(operator))
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


def make_options(settings: Settings, registry: Registry) -> Options:
    return Options(
        cluster_domain=settings.cluster_domain,
        node_lost_seconds=settings.node_lost_seconds,
        force_deletion=settings.force_deletion,
        gang_scheduler_name=settings.gang_scheduler_name,
        autoscaler=settings.autoscaler,
        git_sync_image=settings.git_sync_image,
        framework_flags=load_framework_flags(settings, registry.flags),
    )


@contextlib.contextmanager
def _measured_event_loop(operator: Operator) -> Iterator[None]:
    monitor = EventLoopMonitor()
    operator.metrics.registry.register(monitor)
    with monitor.running():
        yield


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
