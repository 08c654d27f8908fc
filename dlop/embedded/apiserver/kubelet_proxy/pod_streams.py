"""The pod subresources that a kubelet serves: log, exec, attach and portforward.

Validation and its messages are those of kube-apiserver. Other errors come from the kubelet.
"""

from __future__ import annotations

from dlop.embedded.apiserver.age import parse_time
from dlop.embedded.apiserver.api_errors import (
    FieldError,
    FieldErrorType,
    bad_request,
    internal_error,
    invalid,
    method_not_allowed_here,
    not_found,
    status_error,
)
from dlop.embedded.apiserver.kubelet_proxy.kubelet_client import KubeletClient, KubeletLocation, KubeletResponseBody, kubelet_address
from dlop.embedded.apiserver.request_info import RequestInfo, Verb
from dlop.embedded.apiserver.responses import TEXT_HEADERS
from dlop.embedded.apiserver.rest.storage import ResourceStorage
from dlop.kube.errors import NotFoundError, StatusError
from dlop.kube.resources import NODES, Resource
from dlop.kube.transport import Request, Response, StreamResponse
from dlop.kube.types import JsonObject

LOG = "log"
POD_STREAMS = frozenset({LOG, "exec", "attach", "portforward"})

_LOG_OPTIONS = Resource("", "v1", "podlogoptions", "PodLogOptions")
_CONTAINER_LISTS = ("initContainers", "containers", "ephemeralContainers")
# Names of the streams in the Kubernetes API and in the kubelet API.
_STREAMS = (("stdin", "input"), ("stdout", "output"), ("stderr", "error"), ("tty", "tty"))
# Maximum size of an error message of a kubelet.
_MAX_ERROR_BYTES = 50_000


class PodStreams:
    def __init__(self, storage: ResourceStorage, kubelets: KubeletClient) -> None:
        self._storage = storage
        self._kubelets = kubelets

    @staticmethod
    def handles(info: RequestInfo) -> bool:
        return info.target.subresource in POD_STREAMS and info.type.storage == "pods"

    async def handle(self, info: RequestInfo, request: Request) -> Response | StreamResponse:
        """The log, or for subresources that need a WebSocket the error of the kubelet.

        Raises:
            StatusError: the request is invalid.
        """
        if info.target.subresource == LOG:
            return await self._log(info)
        return await self._kubelets.get_error(self.location(info, request))

    def location(self, info: RequestInfo, request: Request) -> KubeletLocation:
        """The location of a stream at the kubelet.

        Raises:
            StatusError: the request is invalid, or the pod has no node.
        """
        if info.verb not in (Verb.GET, Verb.CREATE):
            raise method_not_allowed_here()
        kind, pod = info.target.subresource, self._pod(info)
        if kind == LOG:
            raise bad_request("Upgrade request not allowed")
        path = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        query: list[tuple[str, str]] = []
        if kind == "portforward":
            ports = [value for name, value in request.query if name == "ports"]
            return self._kubelet_location(pod, f"/portForward/{path}", [("port", ",".join(ports))] if ports else [])
        container = _container(pod, info.query.get("container", ""))
        query += [(kubelet_name, "1") for name, kubelet_name in _STREAMS if info.flag(name)]
        query += [("command", value) for name, value in request.query if name == "command" and kind == "exec"]
        return self._kubelet_location(pod, f"/{kind}/{path}/{container}", query)

    async def _log(self, info: RequestInfo) -> Response | StreamResponse:
        if info.verb is not Verb.GET:
            raise method_not_allowed_here()
        query = _log_query(info)
        pod = self._pod(info)
        container = _container(pod, info.query.get("container", ""))
        if not pod["spec"].get("nodeName"):
            return Response(200, TEXT_HEADERS, b"")
        path = f"/containerLogs/{pod['metadata']['namespace']}/{pod['metadata']['name']}/{container}"
        response = await self._kubelets.get(self._kubelet_location(pod, path, query))
        if response.status != 200:
            async with response:
                text = (await response.content.read(_MAX_ERROR_BYTES)).decode(errors="replace")
            raise _kubelet_error(response.status, text, info.target.name)
        return StreamResponse(200, {"content-type": "text/plain"}, KubeletResponseBody(response))

    def _pod(self, info: RequestInfo) -> JsonObject:
        return self._storage.get(info.type, info.target.namespace, info.target.name).body

    def _kubelet_location(self, pod: JsonObject, path: str, query: list[tuple[str, str]]) -> KubeletLocation:
        node_name = pod["spec"].get("nodeName")
        if not node_name:
            raise bad_request(f"pod {pod['metadata']['name']} does not have a host assigned")
        nodes = self._storage.registry.find(NODES.group, NODES.version, NODES.plural)
        if nodes is None:
            raise not_found(NODES, node_name)
        host, port = kubelet_address(self._storage.get(nodes, "", node_name).body)
        return KubeletLocation(host, port, path, query)


def _container(pod: JsonObject, name: str) -> str:
    """The name of the requested container.

    Raises:
        BadRequestError: it does not exist, or the name is missing and there are several.
    """
    pod_name, spec = pod["metadata"]["name"], pod["spec"]
    names = [container["name"] for field in _CONTAINER_LISTS for container in spec.get(field) or ()]
    if name:
        if name not in names:
            raise bad_request(f"container {name} is not valid for pod {pod_name}")
        return name
    containers = spec.get("containers") or []
    if len(containers) != 1:
        raise bad_request(f"a container name must be specified for pod {pod_name}, choose one of: [{' '.join(names)}]")
    return str(containers[0]["name"])


def _log_query(info: RequestInfo) -> list[tuple[str, str]]:
    """The validated options of a log request, as query parameters of the kubelet."""
    numbers = {name: info.number(name) for name in ("tailLines", "limitBytes", "sinceSeconds") if name in info.query}
    errors = _log_errors(numbers, has_since_time="sinceTime" in info.query, has_stream="stream" in info.query)
    if errors:
        raise invalid(_LOG_OPTIONS, info.target.name, errors)
    query = [(name, "true") for name in ("follow", "previous", "timestamps") if info.flag(name)]
    query += [(name, str(value)) for name, value in numbers.items()]
    if since := info.query.get("sinceTime"):
        try:
            parse_time(since)
        except ValueError:
            raise bad_request(f'parsing time "{since}" as "2006-01-02T15:04:05Z07:00": cannot parse "{since}" as "2006"') from None
        query.append(("sinceTime", since))
    return query


def _log_errors(numbers: dict[str, int], *, has_since_time: bool, has_stream: bool) -> list[FieldError]:
    def invalid_number(name: str, detail: str) -> FieldError:
        return FieldError(FieldErrorType.INVALID, name, detail, numbers[name])

    errors = []
    if numbers.get("tailLines", 0) < 0:
        errors.append(invalid_number("tailLines", "must be greater than or equal to 0"))
    if numbers.get("limitBytes", 1) < 1:
        errors.append(invalid_number("limitBytes", "must be greater than 0"))
    if "sinceSeconds" in numbers and has_since_time:
        errors.append(FieldError(FieldErrorType.FORBIDDEN, "", "at most one of `sinceTime` or `sinceSeconds` may be specified"))
    elif numbers.get("sinceSeconds", 1) < 1:
        errors.append(invalid_number("sinceSeconds", "must be greater than 0"))
    if has_stream:
        errors.append(FieldError(FieldErrorType.FORBIDDEN, "stream", "may not be specified"))
    return errors


def _kubelet_error(status: int, text: str, name: str) -> StatusError:
    """The error for an error response of a kubelet."""
    if status == 400:
        return bad_request(text)
    if status == 404:
        message = f"the server could not find the requested resource ( pods/{LOG} {name})"
        causes = [{"reason": "UnexpectedServerResponse", "message": text}]
        return status_error(NotFoundError, message, {"name": name, "kind": f"pods/{LOG}", "causes": causes})
    return internal_error(text)
