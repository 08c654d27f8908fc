"""The operator as a process: connection, signals, probes, logs, a fast event loop and a quiet garbage collector."""

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
from dlop.frameworks.kubeflow.pytorch_init import fill_in
from dlop.frameworks.registry import Registry, RegistryError, load_registry
from dlop.kube.errors import ConfigurationError
from dlop.kube.http.transport import HttpTransport, connect
from dlop.kube.leader_election import LeadershipLostError
from dlop.operator.flags import Note
from dlop.operator.gc import tune_garbage_collection
from dlop.operator.health import Endpoint, serving_probes, sites
from dlop.operator.logging import set_up_logging
from dlop.operator.operator import Operator
from dlop.operator.settings import Settings, SettingsError

log = structlog.get_logger(__name__)

_MISTAKES = (ConfigurationError, RegistryError, SettingsError)


def run(settings: Settings, *, notes: Iterable[Note] = (), environ: Mapping[str, str] = os.environ) -> int:
    """Run the operator until it is told to stop. Returns the exit code of the process. `notes` are told first."""
    set_up_logging(settings.log_format, settings.log_level)
    for note in notes:
        log.info("a name of Kubeflow's operator is understood", name=note.name, meaning=note.meaning)
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
        for site in sites(settings, in_cluster=in_cluster):
            await _serve_probes(operator, stack, site, watch_age_limit_seconds=settings.watch_age_limit_seconds)
        stack.enter_context(_stopping_on_signals(operator))
        tune_garbage_collection()
        await operator.run()


async def _serve_probes(operator: Operator, stack: AsyncExitStack, site: Endpoint, *, watch_age_limit_seconds: float) -> None:
    try:
        host, port = await stack.enter_async_context(serving_probes(operator, site, watch_age_limit_seconds=watch_age_limit_seconds))
    except OSError as error:
        raise SettingsError(f"{site.flag}: {site.host}:{site.port} cannot be served ({error}); choose another port, or off") from error
    log.info("probes and metrics are served", host=host, port=port, pages=sorted(site.pages))


def _operator(settings: Settings, registry: Registry, transport: HttpTransport, *, options: Options, in_cluster: bool) -> Operator:
    connection = transport.connection
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


def _options(settings: Settings) -> Options:
    path = settings.controller_config_file
    accelerators = _accelerators(Path(path)) if path else {}
    return Options(
        accelerators=accelerators,
        cluster_domain=settings.cluster_domain,
        node_lost_seconds=settings.node_lost_seconds,
        kubectl_delivery_image=settings.mpi_kubectl_delivery_image or KUBECTL_DELIVERY_IMAGE,
        gang_scheduler_name=settings.gang_scheduler_name,
        pytorch_init_container_image=settings.pytorch_init_container_image,
        pytorch_init_container_max_tries=settings.pytorch_init_container_max_tries,
        pytorch_init_container_template=_template(settings.pytorch_init_container_template_file),
    )


def _accelerators(path: Path) -> Mapping[str, Accelerator]:
    try:
        return read_accelerators(yaml.safe_load(path.read_text()))
    except OSError as error:
        raise SettingsError(f"--controller-config-file: {path} cannot be read: {error.strerror or error}") from error
    except (UnicodeDecodeError, yaml.YAMLError, SpecError) as error:
        raise SettingsError(f"--controller-config-file: {path} makes no sense: {error}") from error


def _template(path: str) -> str:
    """The text of the file, which is tried out: no job must have to tell what is wrong with it."""
    if not path:
        return ""
    flag = "--pytorch-init-container-template-file"
    try:
        text = Path(path).read_text()
        found = fill_in(text, MasterAddr="master", InitContainerImage="image", MaxTries="1")
    except OSError as error:
        raise SettingsError(f"{flag}: {path} cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise SettingsError(f"{flag}: {path} makes no sense: {error}") from error
    if not isinstance(found, list) or not all(isinstance(each, dict) and each.get("name") for each in found):
        raise SettingsError(f"{flag}: {path} makes no sense: write a list of containers, each with a name")
    return text


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
