"""State machine of the reflector in an informer: which request to send next, given the result of the last one.

A watch that ends is resumed at its last resource version. A list is sent only if that cannot work: at the start, when
the version is compacted (410 Gone), when the server rejects the version, or when the next event itself seems to break the stream
(two immediate breaks in a row, or breaks inside a line). A stream that breaks while it is idle does not cause a list.
"""

from __future__ import annotations

from enum import Enum

from dlop.kube.errors import GoneError, StatusError
from dlop.kube.watch import MalformedWatchEventError

# Client errors that do not depend on the parameters of the request.
_UNRELATED_TO_REQUEST = frozenset({401, 403, 404, 429})
# Number of breaks at the next event after which the resource version is abandoned.
_MAX_BREAKS = 2


class NextRequest(Enum):
    """The request that an informer sends next."""

    STREAMING_LIST = "a watch that starts with a list"
    PAGED_LIST = "a list in pages"
    WATCH = "a watch from the last resource version"


class ReflectorState:
    """State of one informer."""

    def __init__(self) -> None:
        self.next_request = NextRequest.STREAMING_LIST
        self.consistent_read = True
        """Whether the next list is a consistent read. Otherwise it is at least as new as the cache."""
        self._supports_streaming_lists = True
        self._breaks = 0

    def on_listed(self) -> None:
        """A list is complete."""
        self.next_request = NextRequest.WATCH
        self.consistent_read = False

    def on_progress(self) -> None:
        """A watch has delivered an event or a bookmark with a new version."""
        self._breaks = 0

    def relist(self) -> None:
        """Abandon the last resource version."""
        self.next_request = NextRequest.STREAMING_LIST if self._supports_streaming_lists else NextRequest.PAGED_LIST
        self._breaks = 0

    def refresh(self) -> None:
        """Make the next request a consistent list."""
        if self.next_request is NextRequest.WATCH:
            self.relist()
        self.consistent_read = True

    def on_open_failed(self, error: Exception) -> bool:
        """No connection, or an error response. Returns whether a different request can be sent at once."""
        rejected = _rejects_request(error)
        if self.next_request is NextRequest.WATCH:
            if rejected or _status_code(error) == 404:
                self.relist()
            return False
        if self.next_request is NextRequest.STREAMING_LIST and rejected and not _rejects_version(error):
            self._supports_streaming_lists = False
            self.next_request = NextRequest.PAGED_LIST
            return True
        is_new_request = _rejects_version(error) and not self.consistent_read
        self.consistent_read = self.consistent_read or rejected
        return is_new_request

    def on_streaming_list_ignored(self) -> None:
        """The server treated a streaming list as a plain watch, as very old servers do."""
        self._supports_streaming_lists = False

    def on_stream_broken(self, error: Exception, *, soon_after_open: bool) -> None:
        """An open stream ended with an error. `soon_after_open` says that it broke shortly after it was opened."""
        if self.next_request is NextRequest.STREAMING_LIST:
            self.consistent_read = self.consistent_read or _rejects_version(error)
            self.next_request = NextRequest.PAGED_LIST
            return
        if soon_after_open or isinstance(error, MalformedWatchEventError):
            self._breaks += 1
        if isinstance(error, StatusError) or self._breaks >= _MAX_BREAKS:
            self.relist()


def _status_code(error: Exception) -> int:
    return error.status_code if isinstance(error, StatusError) else 0


def _rejects_version(error: Exception) -> bool:
    """Whether the server no longer has the resource version, or does not have it yet ("Too large resource version")."""
    return isinstance(error, GoneError) or (isinstance(error, StatusError) and error.has_cause("ResourceVersionTooLarge"))


def _rejects_request(error: Exception) -> bool:
    code = _status_code(error)
    return (400 <= code < 500 and code not in _UNRELATED_TO_REQUEST) or _rejects_version(error)
