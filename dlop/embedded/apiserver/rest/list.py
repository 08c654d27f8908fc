"""Lists: whole or page by page, now or as of a version.

All pages of one list show the same version of the store. When that version is compacted away in the meantime, the
answer is 410 with a token that goes on from the same place in whatever the store holds then, as on the real server.
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
from dlop.embedded.apiserver.rest.update import served
from dlop.embedded.apiserver.store import CompactedError, Key, StoredObject, StoreEvent
from dlop.kube.errors import GoneError

_TOKEN_VERSION = "meta.k8s.io/v1"  # noqa: S105
# Stands in a token for "whatever version there is by then".
_ANY_VERSION = -1

_LIST_TOO_OLD = "The resourceVersion for the provided list is too old."
_CONTINUE_TOO_OLD = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue "
    "parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided "
    "token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was "
    "returned and now may show up in the list."
)


class ListScope(Protocol):
    """A reader's place in the history of one storage."""

    @property
    def version(self) -> int:
        """The last version taken, or the one to begin after."""
        ...

    def take(self, at_most: int = 1000) -> list[StoreEvent]:
        """The next changes, oldest first."""
        ...

    async def wait(self) -> None:
        """Return when there may be something to take, or when somebody calls `wake`."""
        ...

    async def wait_for_wake(self) -> None:
        """Return when somebody calls `wake`, whatever there is to take."""
        ...

    def wake(self) -> None:
        """End a wait that is under way."""
        ...


class View(Protocol):
    """What lists and watches read: the store itself, or how it looked a while ago."""

    @property
    def version(self) -> int:
        """The version of the newest change that is seen."""
        ...

    @property
    def floor(self) -> int:
        """Versions below this are refused."""
        ...

    def get(self, key: Key) -> StoredObject | None:
        """The object, or None."""
        ...

    def list(
        self, storage: str, *, namespace: str = "", version: int | None = None, after: tuple[str, str] | None = None
    ) -> Iterator[tuple[Key, StoredObject]]:
        """The objects in key order."""
        ...

    def cursor(self, storage: str, *, since: int) -> ListScope:
        """A place in the history right after version `since`."""
        ...


class _Token(msgspec.Struct):
    v: str
    rv: int
    start: str


@dataclass(frozen=True, slots=True)
class Listing:
    """One page: the objects, the version they are from, and how it goes on."""

    items: list[StoredObject]
    version: int
    continue_token: str = ""
    remaining: int | None = None
    """How many objects follow; unknown when a selector decides."""


def list_objects(view: View, type: ResourceType, namespace: str, options: ListOptions) -> Listing:
    """The objects that the options ask for.

    Raises:
        StatusError: for a version that is unreadable (400), not there yet (504) or no longer there (410).
    """
    version, after = _start(view, options)
    limit = 0 if options.resource_version == "0" else options.limit
    found = view.list(type.storage, namespace=namespace, version=version, after=after)
    matches = (lambda _: True) if options.selector.is_empty else (lambda stored: options.selector.matches(served(type, stored.body)))
    try:
        return _page(found, version, limit=limit, matches=matches, countable=options.selector.is_empty)
    except CompactedError:
        raise _too_old(options, after) from None


def parse_version(text: str) -> int:
    """A resourceVersion of a query as a number.

    Raises:
        ValueError: with the real server's words.
    """
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f'resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax')
    return int(text)


def _start(view: View, options: ListOptions) -> tuple[int, tuple[str, str] | None]:
    """The version to show and the place to begin after."""
    if options.continue_token:
        version, after = _decoded(options.continue_token)
        if options.resource_version not in ("", "0"):
            raise bad_request("specifying resource version is not allowed when using continue")
        return (view.version if version == _ANY_VERSION else version), after
    if options.resource_version in ("", "0"):
        return view.version, None
    try:
        asked = parse_version(options.resource_version)
    except ValueError as error:
        raise bad_request(f"invalid resource version: {error}") from None
    if asked > view.version:
        raise version_too_large(asked, view.version)
    # Before there was a word for it, a limit meant that the version is meant exactly.
    exact = options.resource_version_match == EXACT or (options.limit and not options.resource_version_match)
    return (asked if exact else view.version), None


def _page(
    found: Iterator[tuple[Key, StoredObject]], version: int, *, limit: int, matches: Callable[[StoredObject], bool], countable: bool
) -> Listing:
    items: list[StoredObject] = []
    last = None
    for key, stored in found:
        if limit > 0 and len(items) == limit:
            # As on the real server, a page that is full goes on even when nothing that follows would match.
            return Listing(items, version, _encoded(version, last), 1 + sum(1 for _ in found) if countable else None)
        last = key
        if matches(stored):
            items.append(stored)
    return Listing(items, version)


def _encoded(version: int, last: Key | tuple[str, str] | None) -> str:
    namespace, name = last[-2:] if last else ("", "")
    token = msgspec.json.encode(_Token(_TOKEN_VERSION, version, f"{namespace}/{name}\0"))
    return base64.urlsafe_b64encode(token).rstrip(b"=").decode()


def _decoded(text: str) -> tuple[int, tuple[str, str]]:
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
    refusal = expired(_CONTINUE_TOO_OLD)
    return GoneError({**refusal.status, "metadata": {"continue": _encoded(_ANY_VERSION, after)}})
