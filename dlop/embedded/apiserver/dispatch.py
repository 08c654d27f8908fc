"""Maps a parsed request to an operation on the storage, and encodes its result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import msgspec

from dlop.embedded.apiserver.api_errors import (
    error_without_reason,
    method_not_allowed,
    method_not_allowed_here,
    no_such_path,
    not_found,
    version_too_large,
)
from dlop.embedded.apiserver.authentication import ISSUER, Authenticator
from dlop.embedded.apiserver.authorization import check_verb
from dlop.embedded.apiserver.core.namespaces import FINALIZE
from dlop.embedded.apiserver.core.serviceaccounts import TOKEN, token_request
from dlop.embedded.apiserver.negotiation import ResponseFormat, check_format, negotiate
from dlop.embedded.apiserver.patches.patch import decode_patch
from dlop.embedded.apiserver.pod_subresources import BINDING, CREATED, EVICTION, bind, evict, finalize
from dlop.embedded.apiserver.query_options import WriteOptions, delete_options, list_options, watch_options, write_options
from dlop.embedded.apiserver.rbac_escalation import check_escalation
from dlop.embedded.apiserver.request_decoding import check_size, decode_delete_options, decode_object, duplicate_fields
from dlop.embedded.apiserver.request_info import RequestInfo, Verb
from dlop.embedded.apiserver.responses import JSON_HEADERS, ResponseEncoder, deletion_status
from dlop.embedded.apiserver.rest.list import parse_version
from dlop.embedded.apiserver.rest.scale import change_scale, get_scale
from dlop.embedded.apiserver.rest.storage import ResourceStorage
from dlop.embedded.apiserver.rest.update import STATUS
from dlop.embedded.apiserver.rest.watch import Watch, watch_request
from dlop.kube.errors import StatusError
from dlop.kube.resources import ROLES
from dlop.kube.transport import JSON, Request, Response
from dlop.kube.types import JsonObject

SCALE = "scale"


class RequestDispatcher:
    def __init__(self, storage: ResourceStorage, authenticator: Authenticator) -> None:
        self._storage = storage
        self._authenticator = authenticator

    def handle(self, info: RequestInfo, request: Request) -> Response:
        """The response to any request except a watch."""
        check_size(len(request.body or b""))
        response_format = negotiate(request.headers.get("accept", ""), is_custom=info.type.is_custom)
        if info.target.subresource and info.target.subresource != STATUS:
            return self._subresource(info, request)
        if info.target.subresource == STATUS and not info.type.has_status:
            raise _no_subresource(info)
        is_list = info.verb in (Verb.LIST, Verb.DELETE_COLLECTION)
        check_format(response_format, is_list=is_list, kind=info.type.resource.kind, include_object=info.query.get("includeObject", ""))
        encoder = self._encoder(info, response_format)
        return self._HANDLERS[info.verb](self, info, request, encoder)

    def watch(self, info: RequestInfo, request: Request) -> Watch:
        """A watch that has not been started."""
        options = watch_options(info)
        encoder = self._encoder(info, negotiate(request.headers.get("accept", ""), is_custom=info.type.is_custom))
        parameters = watch_request(info, options, self._storage.rng)
        return Watch(self._storage.view, info, options, parameters, encoder)

    def _encoder(self, info: RequestInfo, response_format: ResponseFormat) -> ResponseEncoder:
        return ResponseEncoder(info.type, response_format, now=self._storage.now, include_object=info.query.get("includeObject", ""))

    # --- objects -----------------------------------------------------------------------------------------------------

    def _get(self, info: RequestInfo, request: Request, encoder: ResponseEncoder) -> Response:
        self._check_version(info)
        target = info.target
        return Response(200, encoder.headers, encoder.encode_object(self._storage.get(info.type, target.namespace, target.name)))

    def _check_version(self, info: RequestInfo) -> None:
        try:
            version = parse_version(info.query.get("resourceVersion") or "0")
        except ValueError as error:
            raise error_without_reason(str(error)) from None
        if version > self._storage.view.version:
            raise version_too_large(version, self._storage.view.version)

    def _list(self, info: RequestInfo, request: Request, encoder: ResponseEncoder) -> Response:
        return Response(200, encoder.headers, encoder.encode_list(self._storage.list(info.type, info.target.namespace, list_options(info))))

    def _create(self, info: RequestInfo, request: Request, encoder: ResponseEncoder) -> Response:
        body, options, warnings = _read_body(info, request)
        stored = self._storage.create(info.type, info.target.namespace, body, self._with_admission(info, options))
        return Response(201, _with_warnings(encoder.headers, warnings), encoder.encode_object(stored))

    def _update(self, info: RequestInfo, request: Request, encoder: ResponseEncoder) -> Response:
        target = info.target
        body, options, warnings = _read_body(info, request)
        subresource = target.subresource or None
        created = subresource is None and self._storage.would_create(info.type, target.namespace, target.name)
        if created:
            check_verb(self._storage.store, info.user, Verb.CREATE, target)
        options = self._with_admission(info, options)
        stored = self._storage.update(info.type, target.namespace, target.name, body, options, subresource=subresource)
        return Response(201 if created else 200, _with_warnings(encoder.headers, warnings), encoder.encode_object(stored))

    def _patch(self, info: RequestInfo, request: Request, encoder: ResponseEncoder) -> Response:
        target, warnings = info.target, list[str]()
        options = self._with_admission(info, write_options(info, duplicate_fields=(), warn=warnings.append))
        mutate = decode_patch(info.type, request.headers.get("content-type", ""), request.body or b"")
        subresource = target.subresource or None
        stored = self._storage.change(info.type, target.namespace, target.name, mutate, options, subresource=subresource)
        return Response(200, _with_warnings(encoder.headers, warnings), encoder.encode_object(stored))

    def _with_admission(self, info: RequestInfo, options: WriteOptions) -> WriteOptions:
        if info.type.resource.group != ROLES.group:
            return options
        return replace(options, admit=partial(check_escalation, self._storage.store, info))

    def _delete(self, info: RequestInfo, request: Request, encoder: ResponseEncoder) -> Response:
        target = info.target
        options = delete_options(info, decode_delete_options(request.body, request.headers.get("content-type", JSON)))
        deleted = self._storage.delete(info.type, target.namespace, target.name, options)
        if deleted.removed and not info.type.returns_deleted:
            return Response(200, JSON_HEADERS, deletion_status(info.type, deleted.stored))
        return Response(200, encoder.headers, encoder.encode_object(deleted.stored))

    def _delete_collection(self, info: RequestInfo, request: Request, encoder: ResponseEncoder) -> Response:
        options = delete_options(info, decode_delete_options(request.body, request.headers.get("content-type", JSON)))
        deleted = self._storage.delete_collection(info.type, info.target.namespace, options, list_options(info))
        return Response(200, encoder.headers, encoder.encode_list(deleted))

    _HANDLERS = {  # noqa: RUF012 - a table of methods
        Verb.GET: _get,
        Verb.LIST: _list,
        Verb.CREATE: _create,
        Verb.UPDATE: _update,
        Verb.PATCH: _patch,
        Verb.DELETE: _delete,
        Verb.DELETE_COLLECTION: _delete_collection,
    }

    # --- subresources ------------------------------------------------------------------------------------------------

    def _subresource(self, info: RequestInfo, request: Request) -> Response:
        target = info.target
        if target.subresource == SCALE and info.type.scale is not None:
            return self._scale(info, request)
        if info.type.storage == "pods" and target.subresource in (BINDING, EVICTION):
            return self._pod_action(info, request)
        if info.type.storage == "serviceaccounts" and target.subresource == TOKEN:
            return self._token(info, request)
        if info.type.storage == "namespaces" and target.subresource == FINALIZE and info.verb is Verb.UPDATE:
            body, _, _ = _read_body(info, request)
            return Response(200, JSON_HEADERS, finalize(self._storage, info.type, target.name, body).encoded)
        raise _no_subresource(info)

    def _scale(self, info: RequestInfo, request: Request) -> Response:
        target = info.target
        if info.verb is Verb.GET:
            return _json(200, get_scale(self._storage, info.type, target.namespace, target.name))
        if info.verb is Verb.UPDATE:
            body, options, _ = _read_body(info, request, kind="Scale")
            return _json(200, change_scale(self._storage, info.type, target.namespace, target.name, lambda _: body, options))
        if info.verb is Verb.PATCH:
            options = write_options(info, duplicate_fields=(), warn=lambda _: None)
            mutate = decode_patch(info.type, request.headers.get("content-type", ""), request.body or b"")
            return _json(200, change_scale(self._storage, info.type, target.namespace, target.name, mutate, options))
        raise method_not_allowed(info.type.resource, info.verb)

    def _token(self, info: RequestInfo, request: Request) -> Response:
        if info.verb is not Verb.CREATE:
            raise method_not_allowed_here()
        body, _, _ = _read_body(info, request, kind="TokenRequest")
        account = self._storage.get(info.type, info.target.namespace, info.target.name).body
        return _json(201, token_request(account, body, now=self._storage.now(), issuer=ISSUER, issue_token=self._authenticator.issue))

    def _pod_action(self, info: RequestInfo, request: Request) -> Response:
        target = info.target
        if info.verb is not Verb.CREATE:
            raise method_not_allowed_here()
        body, options, _ = _read_body(info, request, kind="Binding" if target.subresource == BINDING else "Eviction")
        action = bind if target.subresource == BINDING else evict
        action(self._storage, info.type, target.namespace, target.name, body, options)
        return _json(201, CREATED)


def _no_subresource(info: RequestInfo) -> StatusError:
    return not_found(info.type.resource, info.target.name) if info.type.is_custom else no_such_path()


def _read_body(info: RequestInfo, request: Request, *, kind: str = "") -> tuple[JsonObject, WriteOptions, list[str]]:
    raw = request.body or b""
    warnings: list[str] = []
    options = write_options(info, duplicate_fields=(), warn=warnings.append)
    body = decode_object(raw, request.headers.get("content-type", JSON), kind=kind or info.type.resource.kind)
    duplicates = duplicate_fields(raw, body)
    if duplicates:
        options = write_options(info, duplicate_fields=duplicates, warn=warnings.append)
    return body, options, warnings


def _with_warnings(headers: Mapping[str, str], warnings: list[str]) -> Mapping[str, str]:
    if not warnings:
        return headers
    quoted = (warning.replace("\\", "\\\\").replace('"', '\\"') for warning in warnings)
    return {**headers, "warning": ", ".join(f'299 - "{warning}"' for warning in quoted)}


def _json(code: int, body: JsonObject) -> Response:
    return Response(code, JSON_HEADERS, msgspec.json.encode(body))
