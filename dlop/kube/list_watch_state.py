"""What an informer asks the server for next, given what came of the last request.

A watch that ends is taken up again where it stopped. A list is asked for only when that cannot work: at the start, when
the version is compacted away, when the server refuses the version, or when the next event itself seems to break the
stream: twice in a row at once, or inside a line. A stream that breaks while nothing happens is no reason.
"""

from __future__ import annotations

from enum import Enum

from dlop.kube.errors import GoneError, StatusError
from dlop.kube.watch import UnreadableLineError

# Refusals of a list that say nothing about how it was asked for.
_NOT_ABOUT_THE_QUESTION = frozenset({401, 403, 404, 429})
# How often a stream may break at the next event before the version before it is given up.
_MAX_BREAKS = 2


class Step(Enum):
    """One kind of request."""

    STREAMED_LIST = "a list sent as the beginning of a watch"
    PAGED_LIST = "a list in pages"
    WATCH = "a watch from the last version"


class ListWatchState:
    """Where one informer stands."""

    def __init__(self) -> None:
        self.step = Step.STREAMED_LIST
        self.from_any_version = True
        """Whether the next list is a consistent read, instead of one that is not older than what was seen."""
        self._server_streams_lists = True
        self._breaks = 0

    def listed(self) -> None:
        """A list is complete."""
        self.step = Step.WATCH
        self.from_any_version = False

    def progressed(self) -> None:
        """A watch has brought something new."""
        self._breaks = 0

    def list_again(self) -> None:
        """The last version is of no more use."""
        self.step = Step.STREAMED_LIST if self._server_streams_lists else Step.PAGED_LIST
        self._breaks = 0

    def refresh(self) -> None:
        """Somebody needs what the server has now, whatever was seen before."""
        if self.step is Step.WATCH:
            self.list_again()
        self.from_any_version = True

    def not_opened(self, error: Exception) -> bool:
        """The server could not be reached, or has answered with an error. Whether there is another way, to be tried at once."""
        refused = _refuses_the_question(error)
        if self.step is Step.WATCH:
            if refused or _status_code(error) == 404:
                self.list_again()
            return False
        if self.step is Step.STREAMED_LIST and refused and not _is_about_the_version(error):
            self._server_streams_lists = False
            self.step = Step.PAGED_LIST
            return True
        self.from_any_version = self.from_any_version or refused
        return False

    def sent_no_list(self) -> None:
        """The server has taken the question for a streamed list for a plain watch, as very old ones do."""
        self._server_streams_lists = False

    def broken(self, error: Exception, *, at_once: bool) -> None:
        """An open stream has ended before its time."""
        if self.step is Step.STREAMED_LIST:
            self.from_any_version = self.from_any_version or _is_about_the_version(error)
            self.step = Step.PAGED_LIST
            return
        if at_once or isinstance(error, UnreadableLineError):
            self._breaks += 1
        if isinstance(error, StatusError) or self._breaks >= _MAX_BREAKS:
            self.list_again()


def _status_code(error: Exception) -> int:
    return error.status_code if isinstance(error, StatusError) else 0


def _is_about_the_version(error: Exception) -> bool:
    """Whether the server no longer has the version, or does not have it yet ("Too large resource version")."""
    return isinstance(error, GoneError) or (isinstance(error, StatusError) and error.has_cause("ResourceVersionTooLarge"))


def _refuses_the_question(error: Exception) -> bool:
    code = _status_code(error)
    return (400 <= code < 500 and code not in _NOT_ABOUT_THE_QUESTION) or _is_about_the_version(error)
