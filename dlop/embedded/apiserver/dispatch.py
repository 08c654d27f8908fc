"""From a parsed request to an answer: which verb to call with what, and how to show the result."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from dlop.embedded.apiserver.api_errors import (
    method_not_allowed,
    method_not_allowed_here,
    no_such_path,
    not_found,
    unreasoned,
    version_too_large,
)
from dlop.embedded.apiserver.authentication import ISSUER, Tokens
from dlop.embedded.apiserver.core.namespaces import FINALIZE
from dlop.embedded.apiserver.core.serviceaccounts import TOKEN, token_request
from dlop.embedded.apiserver.negotiation import Wanted, check_form, negotiate
from dlop.embedded.apiserver.patches.patch import read_patch
from dlop.embedded.apiserver.pod_subresources import BINDING, CREATED, EVICTION, bind, evict, finalize
from dlop.embedded.apiserver.query_options import WriteOptions, delete_options, list_options, watch_options, write_options
from dlop.embedded.apiserver.request_decoding import check_size, decode_delete_options, decode_object, duplicate_fields
from dlop.embedded.apiserver.request_info import RequestInfo, Verb
from dlop.embedded.apiserver.responses import JSON_HEADERS, ResponseEncoder, deletion_status
from dlop.embedded.apiserver.rest.list import parse_version
from dlop.embedded.apiserver.rest.scale import change_scale, get_scale
from dlop.embedded.apiserver.rest.storage import ResourceStorage
from dlop.embedded.apiserver.rest.update import STATUS
from dlop.embedded.apiserver.rest.watch import Watch, watch_request
from dlop.kube.errors import StatusError
from dlop.kube.transport import JSON, Request, Response
from dlop.kube.types import JsonObject

SCALE = "scale"


class Handlers:
    """Answers requests to resources."""

    def __init__(self, verbs: ResourceStorage, tokens: Tokens) -> None:
        self._verbs = verbs
        self._tokens = tokens

    def answer(self, asked: RequestInfo, request: Request) -> Response:
        """The answer to anything but a watch."""
        check_size(len(request.body or b""))
        wanted = negotiate(request.headers.get("accept", ""), is_custom=asked.type.is_custom)
        if asked.target.subresource and asked.target.subresource != STATUS:
            return self._subresource(asked, request)
        if asked.target.subresource == STATUS and not asked.type.has_status:
            raise _no_subresource(asked)
        is_list = asked.verb in (Verb.LIST, Verb.DELETE_COLLECTION)
        check_form(wanted, is_list=is_list, kind=asked.type.resource.kind, include_object=asked.query.get("includeObject", ""))
        presenter = self._presenter(asked, wanted)
        return self._ANSWERS[asked.verb](self, asked, request, presenter)

    def watch(self, asked: RequestInfo, request: Request) -> Watch:
        """A watch that has yet to be run."""
        options = watch_options(asked)
        presenter = self._presenter(asked, negotiate(request.headers.get("accept", ""), is_custom=asked.type.is_custom))
        asked_for = watch_request(asked, options, self._verbs.randomness)
        return Watch(self._verbs.view, asked, options, asked_for, presenter)

    def _presenter(self, asked: RequestInfo, wanted: Wanted) -> ResponseEncoder:
        return ResponseEncoder(asked.type, wanted, moment=self._verbs.moment, include_object=asked.query.get("includeObject", ""))

    # --- whole objects -----------------------------------------------------------------------------------------------

    def _get(self, asked: RequestInfo, request: Request, presenter: ResponseEncoder) -> Response:
        self._check_version(asked)
        target = asked.target
        return Response(200, presenter.headers, presenter.one(self._verbs.get(asked.type, target.namespace, target.name)))

    def _check_version(self, asked: RequestInfo) -> None:
        try:
            version = parse_version(asked.query.get("resourceVersion") or "0")
        except ValueError as error:
            raise unreasoned(str(error)) from None
        if version > self._verbs.view.version:
            raise version_too_large(version, self._verbs.view.version)

    def _list(self, asked: RequestInfo, request: Request, presenter: ResponseEncoder) -> Response:
        return Response(200, presenter.headers, presenter.many(self._verbs.list(asked.type, asked.target.namespace, list_options(asked))))

    def _create(self, asked: RequestInfo, request: Request, presenter: ResponseEncoder) -> Response:
        body, options, warnings = _read_body(asked, request)
        stored = self._verbs.create(asked.type, asked.target.namespace, body, options)
        return Response(201, _with_warnings(presenter.headers, warnings), presenter.one(stored))

    def _update(self, asked: RequestInfo, request: Request, presenter: ResponseEncoder) -> Response:
        target = asked.target
        body, options, warnings = _read_body(asked, request)
        subresource = target.subresource or None
        created = subresource is None and self._verbs.would_create(asked.type, target.namespace, target.name)
        stored = self._verbs.update(asked.type, target.namespace, target.name, body, options, subresource=subresource)
        return Response(201 if created else 200, _with_warnings(presenter.headers, warnings), presenter.one(stored))

    def _patch(self, asked: RequestInfo, request: Request, presenter: ResponseEncoder) -> Response:
        target, warnings = asked.target, list[str]()
        options = write_options(asked, duplicate_fields=(), warn=warnings.append)
        changed = read_patch(asked.type, request.headers.get("content-type", ""), request.body or b"")
        subresource = target.subresource or None
        stored = self._verbs.change(asked.type, target.namespace, target.name, changed, options, subresource=subresource)
        return Response(200, _with_warnings(presenter.headers, warnings), presenter.one(stored))

    def _delete(self, asked: RequestInfo, request: Request, presenter: ResponseEncoder) -> Response:
        target = asked.target
        options = delete_options(asked, decode_delete_options(request.body, request.headers.get("content-type", JSON)))
        deleted = self._verbs.delete(asked.type, target.namespace, target.name, options)
        if deleted.gone and not asked.type.returns_deleted:
            return Response(200, JSON_HEADERS, deletion_status(asked.type, deleted.stored))
        return Response(200, presenter.headers, presenter.one(deleted.stored))

    def _delete_collection(self, asked: RequestInfo, request: Request, presenter: ResponseEncoder) -> Response:
        options = delete_options(asked, decode_delete_options(request.body, request.headers.get("content-type", JSON)))
        found = self._verbs.delete_collection(asked.type, asked.target.namespace, options, list_options(asked))
        return Response(200, presenter.headers, presenter.many(found))

    _ANSWERS = {  # noqa: RUF012 - a table of methods
        Verb.GET: _get,
        Verb.LIST: _list,
        Verb.CREATE: _create,
        Verb.UPDATE: _update,
        Verb.PATCH: _patch,
        Verb.DELETE: _delete,
        Verb.DELETE_COLLECTION: _delete_collection,
    }

    # --- subresources ------------------------------------------------------------------------------------------------

    def _subresource(self, asked: RequestInfo, request: Request) -> Response:
        target = asked.target
        if target.subresource == SCALE and asked.type.scale is not None:
            return self._scale(asked, request)
        if asked.type.storage == "pods" and target.subresource in (BINDING, EVICTION):
            return self._pod_deed(asked, request)
        if asked.type.storage == "serviceaccounts" and target.subresource == TOKEN:
            return self._token(asked, request)
        if asked.type.storage == "namespaces" and target.subresource == FINALIZE and asked.verb is Verb.UPDATE:
            body, _, _ = _read_body(asked, request)
            return Response(200, JSON_HEADERS, finalize(self._verbs, asked.type, target.name, body).encoded)
        raise _no_subresource(asked)

    def _scale(self, asked: RequestInfo, request: Request) -> Response:
        target = asked.target
        if asked.verb is Verb.GET:
            return _json(200, get_scale(self._verbs, asked.type, target.namespace, target.name))
        if asked.verb is Verb.UPDATE:
            body, options, _ = _read_body(asked, request, kind="Scale")
            return _json(200, change_scale(self._verbs, asked.type, target.namespace, target.name, lambda _: body, options))
        if asked.verb is Verb.PATCH:
            options = write_options(asked, duplicate_fields=(), warn=lambda _: None)
            changed = read_patch(asked.type, request.headers.get("content-type", ""), request.body or b"")
            return _json(200, change_scale(self._verbs, asked.type, target.namespace, target.name, changed, options))
        raise method_not_allowed(asked.type.resource, asked.verb)

    def _token(self, asked: RequestInfo, request: Request) -> Response:
        if asked.verb is not Verb.CREATE:
            raise method_not_allowed_here()
        body, _, _ = _read_body(asked, request, kind="TokenRequest")
        account = self._verbs.get(asked.type, asked.target.namespace, asked.target.name).body
        return _json(201, token_request(account, body, moment=self._verbs.moment(), issuer=ISSUER, make=self._tokens.make))

    def _pod_deed(self, asked: RequestInfo, request: Request) -> Response:
        target = asked.target
        if asked.verb is not Verb.CREATE:
            raise method_not_allowed_here()
        body, options, _ = _read_body(asked, request, kind="Binding" if target.subresource == BINDING else "Eviction")
        deed = bind if target.subresource == BINDING else evict
        deed(self._verbs, asked.type, target.namespace, target.name, body, options)
        return _json(201, CREATED)


def _no_subresource(asked: RequestInfo) -> StatusError:
    return not_found(asked.type.resource, asked.target.name) if asked.type.is_custom else no_such_path()


def _read_body(asked: RequestInfo, request: Request, *, kind: str = "") -> tuple[JsonObject, WriteOptions, list[str]]:
    raw = request.body or b""
    warnings: list[str] = []
    options = write_options(asked, duplicate_fields=(), warn=warnings.append)
    body = decode_object(raw, request.headers.get("content-type", JSON), kind=kind or asked.type.resource.kind)
    doubled = duplicate_fields(raw, body)
    if doubled:
        options = write_options(asked, duplicate_fields=doubled, warn=warnings.append)
    return body, options, warnings


def _with_warnings(headers: Mapping[str, str], warnings: list[str]) -> Mapping[str, str]:
    if not warnings:
        return headers
    quoted = (warning.replace("\\", "\\\\").replace('"', '\\"') for warning in warnings)
    return {**headers, "warning": ", ".join(f'299 - "{warning}"' for warning in quoted)}


def _json(code: int, body: JsonObject) -> Response:
    return Response(code, JSON_HEADERS, msgspec.json.encode(body))
