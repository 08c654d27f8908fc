"""Answers: objects, lists, events and refusals as bytes, in the form that the caller wants."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import msgspec
import yaml

from dlop.embedded.apiserver.negotiation import YAML, Form, Wanted
from dlop.embedded.apiserver.resource_type import Moment, ResourceType
from dlop.embedded.apiserver.rest.list import Listing
from dlop.embedded.apiserver.rest.update import served
from dlop.embedded.apiserver.store import StoredObject
from dlop.embedded.apiserver.views.table_printer import partial_metadata, partial_metadata_list, table
from dlop.kube.errors import StatusError
from dlop.kube.transport import JSON, Response
from dlop.kube.types import JsonObject

JSON_HEADERS = {"content-type": JSON}
_YAML_HEADERS = {"content-type": YAML}
TEXT_HEADERS = {"content-type": "text/plain; charset=utf-8", "x-content-type-options": "nosniff"}


class ResponseEncoder:
    """Shows the objects of one type in one form."""

    def __init__(self, type: ResourceType, wanted: Wanted, *, moment: Callable[[], Moment], include_object: str = "") -> None:
        self._type = type
        self._wanted = wanted
        self._moment = moment
        self._include_object = include_object or "Metadata"
        self._headers_sent = False
        self._kind = b'{"kind":"%b","apiVersion":"%b",' % (type.resource.kind.encode(), type.resource.api_version.encode())

    @property
    def headers(self) -> dict[str, str]:
        """The headers of an answer in this form."""
        return _YAML_HEADERS if self._wanted.media_type == YAML else JSON_HEADERS

    def one(self, stored: StoredObject) -> bytes:
        """One object."""
        if self._wanted.form is Form.WHOLE:
            return self._in_media_type(self._encoded(stored))
        body = served(self._type, stored.body)
        if self._wanted.form is Form.TABLE:
            return self._in_media_type(self._table([body], {"resourceVersion": str(stored.version)}))
        return self._in_media_type(msgspec.json.encode(partial_metadata(body)))

    def many(self, listing: Listing) -> bytes:
        """A list."""
        metadata: JsonObject = {"resourceVersion": str(listing.version)}
        if listing.continue_token:
            metadata["continue"] = listing.continue_token
        if listing.remaining is not None:
            metadata["remainingItemCount"] = listing.remaining
        if self._wanted.form is Form.WHOLE:
            return self._in_media_type(self._whole_list(listing.items, metadata))
        bodies = [served(self._type, stored.body) for stored in listing.items]
        if self._wanted.form is Form.TABLE:
            return self._in_media_type(self._table(bodies, metadata))
        return self._in_media_type(msgspec.json.encode(partial_metadata_list(bodies, list_metadata=metadata)))

    def event(self, type: str, stored: StoredObject) -> bytes:
        """One line of a watch."""
        if self._wanted.form is Form.WHOLE:
            shown = self._encoded(stored)
        elif self._wanted.form is Form.TABLE:
            # Only the first table of a stream has its columns described: `kubectl get -w` prints one header.
            shown = self._table([served(self._type, stored.body)], {"resourceVersion": str(stored.version)})
            self._headers_sent = True
        else:
            shown = msgspec.json.encode(partial_metadata(served(self._type, stored.body)))
        return b'{"type":"%b","object":%b}\n' % (type.encode(), shown)

    def bookmark(self, version: int, *, ends_initial_events: bool) -> bytes:
        """The line that says up to which version everything has been sent."""
        metadata: JsonObject = {"resourceVersion": str(version)}
        if ends_initial_events:
            metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
        body: JsonObject = {"kind": self._type.resource.kind, "apiVersion": self._type.resource.api_version, "metadata": metadata}
        if self._wanted.form is Form.TABLE:
            row = {"cells": [], "object": partial_metadata(body)}
            body = {
                "kind": "Table",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": {"resourceVersion": str(version)},
                "columnDefinitions": None,
                "rows": [row],
            }
        elif self._wanted.form is not Form.WHOLE:
            body = partial_metadata(body)
        return b'{"type":"BOOKMARK","object":%b}\n' % msgspec.json.encode(body)

    def _encoded(self, stored: StoredObject) -> bytes:
        if self._type.from_storage is None:
            return stored.encoded
        return msgspec.json.encode(self._type.from_storage(stored.body))

    def _whole_list(self, items: Sequence[StoredObject], metadata: JsonObject) -> bytes:
        resource = self._type.resource
        head = msgspec.json.encode({"kind": self._type.list_kind, "apiVersion": resource.api_version, "metadata": metadata})
        shown = b",".join([self._item(stored) for stored in items])
        return b'%b,"items":[%b]}' % (head[:-1], shown)

    def _item(self, stored: StoredObject) -> bytes:
        if self._type.is_custom:
            return self._encoded(stored)
        # In lists of built-in types the real server leaves out the kind of the items: the list says it.
        encoded = self._encoded(stored)
        if encoded.startswith(self._kind):
            return b"{" + encoded[len(self._kind) :]
        body = {name: value for name, value in served(self._type, stored.body).items() if name not in ("kind", "apiVersion")}
        return msgspec.json.encode(body)

    def _table(self, bodies: Sequence[JsonObject], metadata: JsonObject) -> bytes:
        shown = table(
            self._type,
            bodies,
            moment=self._moment(),
            list_metadata=metadata,
            include_object=self._include_object,
            with_headers=not self._headers_sent,
        )
        return msgspec.json.encode(shown)

    def _in_media_type(self, encoded: bytes) -> bytes:
        return as_yaml(encoded) if self._wanted.media_type == YAML else encoded


def as_yaml(encoded: bytes) -> bytes:
    """JSON as YAML."""
    return yaml.safe_dump(json.loads(encoded), default_flow_style=False).encode()


def refusal(error: StatusError) -> Response:
    """The answer to a request that is refused."""
    headers = dict(JSON_HEADERS)
    if error.retry_after_seconds is not None:
        headers["retry-after"] = str(int(error.retry_after_seconds))
    return Response(error.status_code, headers, msgspec.json.encode(error.status))


def deletion_status(type: ResourceType, stored: StoredObject) -> bytes:
    """The Status that says that an object is gone."""
    resource, metadata = type.resource, stored.body["metadata"]
    about = {"name": metadata["name"], "group": resource.group, "kind": resource.plural, "uid": metadata["uid"]}
    details = {name: value for name, value in about.items() if value}
    return msgspec.json.encode({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
