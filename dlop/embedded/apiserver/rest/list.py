"""List, with pagination and resource versions.

All pages of a list show the same version of the store. If that version is compacted, the response is 410 with a token
that continues at the same position with the current version.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import msgspec

from dlop.embedded.apiserver.api_errors import bad_request, expired, version_too_large
from dlop.embedded.apiserver.query_options import EXACT, ListOptions
from dlop.embedded.apiserver.resource_type import ResourceType
from dlop.embedded.apiserver.rest.update import to_served_version
from dlop.embedded.apiserver.store import CompactedError, ObjectKey, StoredObject, StoreEvent
from dlop.kube.errors import GoneError

_TOKEN_VERSION = "meta.k8s.io/v1"  # noqa: S105
# In a token: continue with the current version.
_ANY_VERSION = -1

_LIST_TOO_OLD = "The resourceVersion for the provided list is too old."
_CONTINUE_TOO_OLD = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue "
    "parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided "
    "token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was "
    "returned and now may show up in the list."
)


class EventCursor(Protocol):
    """Interface of `StoreCursor`, also implemented by stale views in tests."""

    @property
    def version(self) -> int:
        """The last version taken, or the start version."""
        ...

    def take(self, at_most: int = 1000) -> list[StoreEvent]: ...

    async def wait(self) -> None:
        """Wait until there may be changes to take, or until `wake` is called."""
        ...

    async def wait_for_wake(self) -> None:
        """Wait until `wake` is called, even if there are changes to take."""
        ...

    def wake(self) -> None:
        """End a pending wait."""
        ...


class StoreReader(Protocol):
    """The interface that reads use. Implemented by the store, and by stale views in tests."""

    @property
    def version(self) -> int:
        """The version of the newest visible change."""
        ...

    @property
    def floor(self) -> int:
        """The compacted version."""
        ...

    def get(self, key: ObjectKey) -> StoredObject | None: ...

    def list(
        self, storage: str, *, namespace: str = "", version: int | None = None, after: tuple[str, str] | None = None
    ) -> Iterator[tuple[ObjectKey, StoredObject]]: ...

    def cursor(self, storage: str, *, since: int) -> EventCursor:
        """A cursor over the changes after version `since`."""
        ...


class _Token(msgspec.Struct):
    v: str
    rv: int
    start: str


@dataclass(frozen=True, slots=True)
class ListedObjects:
    items: list[StoredObject]
    version: int
    continue_token: str = ""
    remaining: int | None = None
    """Number of objects after this page; None with a selector, or on the last page."""


def list_objects(view: StoreReader, type: ResourceType, namespace: str, options: ListOptions) -> ListedObjects:
    """List the objects that match the options.

    Raises:
        StatusError: the version is malformed (400), in the future (504) or compacted (410).
    """
    version, after = _start(view, options)
    limit = 0 if options.resource_version == "0" else options.limit
    objects = view.list(type.storage, namespace=namespace, version=version, after=after)
    matches = (
        (lambda _: True) if options.selector.is_empty else (lambda stored: options.selector.matches(to_served_version(type, stored.body)))
    )
    try:
        return _page(objects, version, limit=limit, matches=matches, countable=options.selector.is_empty)
    except CompactedError:
        raise _too_old(options, after) from None


def parse_version(text: str) -> int:
    """Parse the resourceVersion of a query.

    Raises:
        ValueError: it is malformed. The message is that of kube-apiserver.
    """
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f'resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax')
    return int(text)


def _start(view: StoreReader, options: ListOptions) -> tuple[int, tuple[str, str] | None]:
    """The version to list and the key after which to start."""
    if options.continue_token:
        version, after = _decode_token(options.continue_token)
        if options.resource_version not in ("", "0"):
            raise bad_request("specifying resource version is not allowed when using continue")
        return (view.version if version == _ANY_VERSION else version), after
    if options.resource_version in ("", "0"):
        return view.version, None
    try:
        requested = parse_version(options.resource_version)
    except ValueError as error:
        raise bad_request(f"invalid resource version: {error}") from None
    if requested > view.version:
        raise version_too_large(requested, view.version)
    # Without resourceVersionMatch, a limit implies an exact version.
    exact = options.resource_version_match == EXACT or (options.limit and not options.resource_version_match)
    return (requested if exact else view.version), None


def _page(
    objects: Iterator[tuple[ObjectKey, StoredObject]], version: int, *, limit: int, matches: Callable[[StoredObject], bool], countable: bool
) -> ListedObjects:
    items: list[StoredObject] = []
    last = None
    for key, stored in objects:
        if limit > 0 and len(items) == limit:
            # As in kube-apiserver, a full page has a continue token even if no later object matches.
            return ListedObjects(items, version, _encode_token(version, last), 1 + sum(1 for _ in objects) if countable else None)
        last = key
        if matches(stored):
            items.append(stored)
    return ListedObjects(items, version)


def _encode_token(version: int, last: ObjectKey | tuple[str, str] | None) -> str:
    namespace, name = last[-2:] if last else ("", "")
    token = msgspec.json.encode(_Token(_TOKEN_VERSION, version, f"{namespace}/{name}\0"))
    return base64.urlsafe_b64encode(token).rstrip(b"=").decode()


def _decode_token(text: str) -> tuple[int, tuple[str, str]]:
    try:
        raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        token = msgspec.json.decode(raw, type=_Token)
    except (binascii.Error, ValueError, UnicodeError) as error:
        raise bad_request(f"invalid continue token: continue key is not valid: {error}") from None
    if token.v != _TOKEN_VERSION:
        raise bad_request(f'invalid continue token: continue key is not valid: server does not recognize this encoded version "{token.v}"')
    namespace, _, name = token.start.removesuffix("\0").partition("/")
    return token.rv, (namespace, name)


def _too_old(options: ListOptions, after: tuple[str, str] | None) -> GoneError:
    if not options.continue_token:
        return expired(_LIST_TOO_OLD)
    error = expired(_CONTINUE_TOO_OLD)
    return GoneError({**error.status, "metadata": {"continue": _encode_token(_ANY_VERSION, after)}})
