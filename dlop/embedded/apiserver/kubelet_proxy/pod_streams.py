"""The subresources of pods that a kubelet answers: which container is meant, what is asked of it, and where it is.

The checks and their sentences are the real server's; what only the node can know, it says itself.
"""

from __future__ import annotations

from dlop.embedded.apiserver.age import parse_time
from dlop.embedded.apiserver.api_errors import (
    FieldError,
    FieldErrorType,
    bad_request,
    failure,
    internal_error,
    invalid,
    method_not_allowed_here,
    not_found,
)
from dlop.embedded.apiserver.kubelet_proxy.kubelet_client import Body, Kubelets, Location, kubelet_address
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
# What the streams are called in the API, and in the kubelet's.
_STREAMS = (("stdin", "input"), ("stdout", "output"), ("stderr", "error"), ("tty", "tty"))
# As much of a kubelet's complaint is passed on.
_MOST_COMPLAINT_BYTES = 50_000


class PodStreams:
    """Answers them by asking kubelets."""

    def __init__(self, verbs: ResourceStorage, kubelets: Kubelets) -> None:
        self._verbs = verbs
        self._kubelets = kubelets

    @staticmethod
    def concern(asked: RequestInfo) -> bool:
        """Whether a request is about one of them."""
        return asked.target.subresource in POD_STREAMS and asked.type.storage == "pods"

    async def answer(self, asked: RequestInfo, request: Request) -> Response | StreamResponse:
        """The log; for the others, which need a WebSocket, what is wrong.

        Raises:
            StatusError: the request is refused.
        """
        if asked.target.subresource == LOG:
            return await self._log(asked)
        return await self._kubelets.refusal(self.location(asked, request))

    def location(self, asked: RequestInfo, request: Request) -> Location:
        """Where the stream is that a request asks for.

        Raises:
            StatusError: there is none.
        """
        if asked.verb not in (Verb.GET, Verb.CREATE):
            raise method_not_allowed_here()
        kind, pod = asked.target.subresource, self._pod(asked)
        if kind == LOG:
            raise bad_request("Upgrade request not allowed")
        path = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        query: list[tuple[str, str]] = []
        if kind == "portforward":
            ports = [value for name, value in request.query if name == "ports"]
            return self._at(pod, f"/portForward/{path}", [("port", ",".join(ports))] if ports else [])
        container = _container(pod, asked.query.get("container", ""))
        query += [(kubelets, "1") for ours, kubelets in _STREAMS if asked.flag(ours)]
        query += [("command", value) for name, value in request.query if name == "command" and kind == "exec"]
        return self._at(pod, f"/{kind}/{path}/{container}", query)

    async def _log(self, asked: RequestInfo) -> Response | StreamResponse:
        if asked.verb is not Verb.GET:
            raise method_not_allowed_here()
        query = _log_query(asked)
        pod = self._pod(asked)
        container = _container(pod, asked.query.get("container", ""))
        if not pod["spec"].get("nodeName"):
            return Response(200, TEXT_HEADERS, b"")
        path = f"/containerLogs/{pod['metadata']['namespace']}/{pod['metadata']['name']}/{container}"
        answer = await self._kubelets.get(self._at(pod, path, query))
        if answer.status != 200:
            async with answer:
                text = (await answer.content.read(_MOST_COMPLAINT_BYTES)).decode(errors="replace")
            raise _complaint(answer.status, text, asked.target.name)
        return StreamResponse(200, {"content-type": "text/plain"}, Body(answer))

    def _pod(self, asked: RequestInfo) -> JsonObject:
        return self._verbs.get(asked.type, asked.target.namespace, asked.target.name).body

    def _at(self, pod: JsonObject, path: str, query: list[tuple[str, str]]) -> Location:
        node_name = pod["spec"].get("nodeName")
        if not node_name:
            raise bad_request(f"pod {pod['metadata']['name']} does not have a host assigned")
        nodes = self._verbs.registry.find(NODES.group, NODES.version, NODES.plural)
        if nodes is None:
            raise not_found(NODES, node_name)
        host, port = kubelet_address(self._verbs.get(nodes, "", node_name).body)
        return Location(host, port, path, query)


def _container(pod: JsonObject, name: str) -> str:
    """The container that is meant.

    Raises:
        BadRequestError: there is none of that name, or there are several and none was named.
    """
    pod_name, spec = pod["metadata"]["name"], pod["spec"]
    names = [each["name"] for field in _CONTAINER_LISTS for each in spec.get(field) or ()]
    if name:
        if name not in names:
            raise bad_request(f"container {name} is not valid for pod {pod_name}")
        return name
    containers = spec.get("containers") or []
    if len(containers) != 1:
        raise bad_request(f"a container name must be specified for pod {pod_name}, choose one of: [{' '.join(names)}]")
    return str(containers[0]["name"])


def _log_query(asked: RequestInfo) -> list[tuple[str, str]]:
    """The options of a log request, checked, as the kubelet takes them."""
    numbers = {name: asked.number(name) for name in ("tailLines", "limitBytes", "sinceSeconds") if name in asked.query}
    errors = _log_errors(numbers, has_since_time="sinceTime" in asked.query, has_stream="stream" in asked.query)
    if errors:
        raise invalid(_LOG_OPTIONS, asked.target.name, errors)
    query = [(name, "true") for name in ("follow", "previous", "timestamps") if asked.flag(name)]
    query += [(name, str(value)) for name, value in numbers.items()]
    if since := asked.query.get("sinceTime"):
        try:
            parse_time(since)
        except ValueError:
            raise bad_request(f'parsing time "{since}" as "2006-01-02T15:04:05Z07:00": cannot parse "{since}" as "2006"') from None
        query.append(("sinceTime", since))
    return query


def _log_errors(numbers: dict[str, int], *, has_since_time: bool, has_stream: bool) -> list[FieldError]:
    def wrong(name: str, detail: str) -> FieldError:
        return FieldError(FieldErrorType.INVALID, name, detail, numbers[name])

    errors = []
    if numbers.get("tailLines", 0) < 0:
        errors.append(wrong("tailLines", "must be greater than or equal to 0"))
    if numbers.get("limitBytes", 1) < 1:
        errors.append(wrong("limitBytes", "must be greater than 0"))
    if "sinceSeconds" in numbers and has_since_time:
        errors.append(FieldError(FieldErrorType.FORBIDDEN, "", "at most one of `sinceTime` or `sinceSeconds` may be specified"))
    elif numbers.get("sinceSeconds", 1) < 1:
        errors.append(wrong("sinceSeconds", "must be greater than 0"))
    if has_stream:
        errors.append(FieldError(FieldErrorType.FORBIDDEN, "stream", "may not be specified"))
    return errors


def _complaint(status: int, text: str, name: str) -> StatusError:
    """What a kubelet said, as the server passes it on."""
    if status == 400:
        return bad_request(text)
    if status == 404:
        message = f"the server could not find the requested resource ( pods/{LOG} {name})"
        causes = [{"reason": "UnexpectedServerResponse", "message": text}]
        return failure(NotFoundError, message, {"name": name, "kind": f"pods/{LOG}", "causes": causes})
    return internal_error(text)
