"""Encodes objects, lists, watch events and errors in the negotiated format."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import msgspec
import yaml

from dlop.embedded.apiserver.negotiation import YAML, ObjectFormat, ResponseFormat
from dlop.embedded.apiserver.resource_type import ResourceType, Timestamp
from dlop.embedded.apiserver.rest.list import ListedObjects
from dlop.embedded.apiserver.rest.update import to_served_version
from dlop.embedded.apiserver.store import StoredObject
from dlop.embedded.apiserver.views.table_printer import partial_metadata, partial_metadata_list, table
from dlop.kube.errors import StatusError
from dlop.kube.transport import JSON, Response
from dlop.kube.types import JsonObject

JSON_HEADERS = {"content-type": JSON}
_YAML_HEADERS = {"content-type": YAML}
TEXT_HEADERS = {"content-type": "text/plain; charset=utf-8", "x-content-type-options": "nosniff"}


class ResponseEncoder:
    """Encodes objects of one type in one format."""

    def __init__(
        self, type: ResourceType, response_format: ResponseFormat, *, now: Callable[[], Timestamp], include_object: str = ""
    ) -> None:
        self._type = type
        self._format = response_format
        self._moment = now
        self._include_object = include_object or "Metadata"
        self._headers_sent = False
        self._kind = b'{"kind":"%b","apiVersion":"%b",' % (type.resource.kind.encode(), type.resource.api_version.encode())

    @property
    def headers(self) -> dict[str, str]:
        return _YAML_HEADERS if self._format.media_type == YAML else JSON_HEADERS

    def encode_object(self, stored: StoredObject) -> bytes:
        if self._format.object_format is ObjectFormat.FULL:
            return self._in_media_type(self._encode(stored))
        body = to_served_version(self._type, stored.body)
        if self._format.object_format is ObjectFormat.TABLE:
            return self._in_media_type(self._table([body], {"resourceVersion": str(stored.version)}))
        return self._in_media_type(msgspec.json.encode(partial_metadata(body)))

    def encode_list(self, page: ListedObjects) -> bytes:
        metadata: JsonObject = {"resourceVersion": str(page.version)}
        if page.continue_token:
            metadata["continue"] = page.continue_token
        if page.remaining is not None:
            metadata["remainingItemCount"] = page.remaining
        if self._format.object_format is ObjectFormat.FULL:
            return self._in_media_type(self._full_list(page.items, metadata))
        bodies = [to_served_version(self._type, stored.body) for stored in page.items]
        if self._format.object_format is ObjectFormat.TABLE:
            return self._in_media_type(self._table(bodies, metadata))
        return self._in_media_type(msgspec.json.encode(partial_metadata_list(bodies, list_metadata=metadata)))

    def encode_event(self, type: str, stored: StoredObject) -> bytes:
        """One line of a watch stream."""
        if self._format.object_format is ObjectFormat.FULL:
            encoded = self._encode(stored)
        elif self._format.object_format is ObjectFormat.TABLE:
            # Only the first Table of a stream has column definitions, so that `kubectl get -w` prints one header.
            encoded = self._table([to_served_version(self._type, stored.body)], {"resourceVersion": str(stored.version)})
            self._headers_sent = True
        else:
            encoded = msgspec.json.encode(partial_metadata(to_served_version(self._type, stored.body)))
        return b'{"type":"%b","object":%b}\n' % (type.encode(), encoded)

    def encode_bookmark(self, version: int, *, ends_initial_events: bool) -> bytes:
        """A bookmark line of a watch stream: all changes up to `version` have been sent."""
        metadata: JsonObject = {"resourceVersion": str(version)}
        if ends_initial_events:
            metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
        body: JsonObject = {"kind": self._type.resource.kind, "apiVersion": self._type.resource.api_version, "metadata": metadata}
        if self._format.object_format is ObjectFormat.TABLE:
            row = {"cells": [], "object": partial_metadata(body)}
            body = {
                "kind": "Table",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": {"resourceVersion": str(version)},
                "columnDefinitions": None,
                "rows": [row],
            }
        elif self._format.object_format is not ObjectFormat.FULL:
            body = partial_metadata(body)
        return b'{"type":"BOOKMARK","object":%b}\n' % msgspec.json.encode(body)

    def _encode(self, stored: StoredObject) -> bytes:
        if self._type.from_storage is None:
            return stored.encoded
        return msgspec.json.encode(self._type.from_storage(stored.body))

    def _full_list(self, items: Sequence[StoredObject], metadata: JsonObject) -> bytes:
        resource = self._type.resource
        head = msgspec.json.encode({"kind": self._type.list_kind, "apiVersion": resource.api_version, "metadata": metadata})
        encoded_items = b",".join([self._item(stored) for stored in items])
        return b'%b,"items":[%b]}' % (head[:-1], encoded_items)

    def _item(self, stored: StoredObject) -> bytes:
        if self._type.is_custom:
            return self._encode(stored)
        # kube-apiserver omits kind and apiVersion of the items in lists of built-in types.
        encoded = self._encode(stored)
        if encoded.startswith(self._kind):
            return b"{" + encoded[len(self._kind) :]
        body = {name: value for name, value in to_served_version(self._type, stored.body).items() if name not in ("kind", "apiVersion")}
        return msgspec.json.encode(body)

    def _table(self, bodies: Sequence[JsonObject], metadata: JsonObject) -> bytes:
        document = table(
            self._type,
            bodies,
            now=self._moment(),
            list_metadata=metadata,
            include_object=self._include_object,
            with_headers=not self._headers_sent,
        )
        return msgspec.json.encode(document)

    def _in_media_type(self, encoded: bytes) -> bytes:
        return as_yaml(encoded) if self._format.media_type == YAML else encoded


def as_yaml(encoded: bytes) -> bytes:
    """Convert JSON to YAML."""
    return yaml.safe_dump(json.loads(encoded), default_flow_style=False).encode()


def error_response(error: StatusError) -> Response:
    headers = dict(JSON_HEADERS)
    if error.retry_after_seconds is not None:
        headers["retry-after"] = str(int(error.retry_after_seconds))
    return Response(error.status_code, headers, msgspec.json.encode(error.status))


def deletion_status(type: ResourceType, stored: StoredObject) -> bytes:
    """The Status that reports the removal of an object."""
    resource, metadata = type.resource, stored.body["metadata"]
    fields = {"name": metadata["name"], "group": resource.group, "kind": resource.plural, "uid": metadata["uid"]}
    details = {name: value for name, value in fields.items() if value}
    return msgspec.json.encode({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
