"""What a work queue tells about itself: the seam between the queue and whatever counts."""

from __future__ import annotations

from typing import Protocol


class QueueState(Protocol):
    """What can be read off a queue at any moment."""

    def depth(self, *, initial: bool) -> int:
        """How many keys of one priority are ready to be handed out."""
        ...

    def working_seconds(self) -> list[float]:
        """For how long each key that is being worked on has been in work."""
        ...


class QueueObserver(Protocol):
    """Is told of every step of a queue. The calls are on the hot path: they count and return."""

    def attach(self, queue: QueueState) -> None:
        """The queue to be read when somebody wants to know."""
        ...

    def added(self) -> None:
        """A key became ready; adds that changed nothing do not count."""
        ...

    def handed_out(self, *, waited_seconds: float) -> None:
        """A worker took a key that had been ready for so long."""
        ...

    def finished(self, *, worked_seconds: float) -> None:
        """A worker is done with a key."""
        ...

    def retried(self) -> None:
        """A key was put off to a later time."""
        ...


class _NoObserver:
    def attach(self, queue: QueueState) -> None:
        """Nobody wants to know."""

    def added(self) -> None:
        """Nobody counts."""

    def handed_out(self, *, waited_seconds: float) -> None:
        """Nobody counts."""

    def finished(self, *, worked_seconds: float) -> None:
        """Nobody counts."""

    def retried(self) -> None:
        """Nobody counts."""


NO_OBSERVER: QueueObserver = _NoObserver()
