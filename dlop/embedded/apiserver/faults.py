"""Deterministic fault injection for tests: delays, errors, dropped connections and held watches.

A fault is armed for matching requests, triggers a fixed number of times and is then exhausted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from dlop.embedded.apiserver.request_info import RequestInfo, Verb
from dlop.embedded.apiserver.rest.watch import ConnectionDroppedError, Watch
from dlop.embedded.apiserver.store import Store
from dlop.kube.errors import StatusError, error_from_status
from dlop.kube.types import JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestMatch:
    """Selects requests. A field that is None matches everything."""

    verb: Verb | str | None = None
    plural: str | None = None
    namespace: str | None = None
    name: str | None = None
    subresource: str | None = None

    def matches(self, info: RequestInfo) -> bool:
        target = info.target
        actual = (info.verb, target.plural, target.namespace, target.name, target.subresource)
        expected = (self.verb, self.plural, self.namespace, self.name, self.subresource)
        return all(value is None or value == actual_value for value, actual_value in zip(expected, actual, strict=True))


EVERYTHING = RequestMatch()


class _Stage(StrEnum):
    BEFORE = "before"
    AFTER = "after"


@dataclass(slots=True)
class Fault:
    """An armed fault. `hits` counts the requests that triggered it; `triggered` is set by the first one."""

    match: RequestMatch
    stage: _Stage
    times: int
    delay_seconds: float = 0.0
    error: StatusError | None = None
    drop: bool = False
    hits: int = 0
    triggered: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def is_exhausted(self) -> bool:
        return self.hits >= self.times


@dataclass(slots=True)
class WatchHold:
    """Holds back the events of matching watches, including watches that start later, until released."""

    match: RequestMatch
    watches: list[Watch] = field(default_factory=list)
    on_release: Callable[[WatchHold], None] = lambda _: None

    def send_next(self) -> None:
        """Send one held event of each watch, and hold the others."""
        for watch in self.watches:
            watch.send_next()

    def release(self) -> None:
        """Send the held events and continue."""
        self.on_release(self)
        for watch in self.watches:
            watch.release()


class Faults:
    """The armed faults and running watches of one API server."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._armed: list[Fault] = []
        self._holds: list[WatchHold] = []
        self._watches: set[Watch] = set()

    # --- arming ------------------------------------------------------------------------------------------------------

    def delay(self, seconds: float, *, match: RequestMatch = EVERYTHING, times: int = 1) -> Fault:
        """Delay matching requests before they are handled."""
        return self._arm(Fault(match, _Stage.BEFORE, times, delay_seconds=seconds))

    def fail_before(self, status: JsonObject | None, *, match: RequestMatch = EVERYTHING, times: int = 1) -> Fault:
        """Reject matching requests with a Status before they are handled. None drops the connection."""
        return self._arm(_failure(status, match, _Stage.BEFORE, times))

    def fail_after(self, status: JsonObject | None, *, match: RequestMatch = EVERYTHING, times: int = 1) -> Fault:
        """Handle matching requests but respond with this Status. None drops the connection, so that the response is lost."""
        return self._arm(_failure(status, match, _Stage.AFTER, times))

    def drop_watches(self, *, match: RequestMatch = EVERYTHING, abort: bool = True) -> int:
        """End the running watches that match, by aborting the connection or, with `abort=False`, by ending the stream normally.

        Returns their number.
        """
        matching = [watch for watch in self._watches if match.matches(watch.request_info)]
        for watch in matching:
            watch.end(abort=abort)
        return len(matching)

    def hold_watches(self, *, match: RequestMatch = EVERYTHING) -> WatchHold:
        """Hold back all events of matching watches, running and new, until the hold is released."""
        hold = WatchHold(match, on_release=self._holds.remove)
        self._holds.append(hold)
        for watch in self._watches:
            _hold_if_matching(hold, watch)
        return hold

    def compact(self, version: int | None = None) -> None:
        """Compact the history up to a version, by default all of it. Watches and lists of older versions get 410."""
        self._store.compact(version)

    def clear(self) -> None:
        """Disarm all faults and release all holds."""
        self._armed.clear()
        for hold in list(self._holds):
            hold.release()

    def _arm(self, fault: Fault) -> Fault:
        self._armed.append(fault)
        return fault

    # --- triggering --------------------------------------------------------------------------------------------------

    async def before(self, info: RequestInfo) -> None:
        """Trigger the faults that precede the handling of a request."""
        for fault in self._trigger(info, _Stage.BEFORE):
            if fault.delay_seconds:
                await asyncio.sleep(fault.delay_seconds)
            _raise(fault)

    def after(self, info: RequestInfo) -> None:
        """Trigger the faults that follow the handling of a request."""
        for fault in self._trigger(info, _Stage.AFTER):
            _raise(fault)

    def watch_opened(self, watch: Watch) -> None:
        self._watches.add(watch)
        for hold in self._holds:
            _hold_if_matching(hold, watch)

    def watch_closed(self, watch: Watch) -> None:
        self._watches.discard(watch)

    def _trigger(self, info: RequestInfo, stage: _Stage) -> Iterator[Fault]:
        if not self._armed:
            return
        for fault in [fault for fault in self._armed if fault.stage is stage and fault.match.matches(info)]:
            fault.hits += 1
            fault.triggered.set()
            if fault.is_exhausted:
                self._armed.remove(fault)
            yield fault


def _failure(status: JsonObject | None, match: RequestMatch, stage: _Stage, times: int) -> Fault:
    if status is None:
        return Fault(match, stage, times, drop=True)
    return Fault(match, stage, times, error=error_from_status(status, retry_after_seconds=_retry_after(status)))


def _retry_after(status: JsonObject) -> float | None:
    seconds = (status.get("details") or {}).get("retryAfterSeconds")
    return None if seconds is None else float(seconds)


def _raise(fault: Fault) -> None:
    if fault.drop:
        raise ConnectionDroppedError
    if fault.error is not None:
        raise fault.error


def _hold_if_matching(hold: WatchHold, watch: Watch) -> None:
    if hold.match.matches(watch.request_info):
        watch.hold()
        hold.watches.append(watch)
