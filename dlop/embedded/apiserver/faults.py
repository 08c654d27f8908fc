"""Faults on request: what goes wrong between a client and a server, for tests that want exactly this to go wrong.

A fault is armed for requests that match, happens a given number of times, and is then spent. Times are counted when a
request matches, so a test knows which request it hits. Nothing here is random.
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
class Match:
    """Which requests are meant; what is None is not looked at."""

    verb: Verb | str | None = None
    plural: str | None = None
    namespace: str | None = None
    name: str | None = None
    subresource: str | None = None

    def fits(self, asked: RequestInfo) -> bool:
        """Whether a request is meant."""
        target = asked.target
        found = (asked.verb, target.plural, target.namespace, target.name, target.subresource)
        wanted = (self.verb, self.plural, self.namespace, self.name, self.subresource)
        return all(want is None or want == have for want, have in zip(wanted, found, strict=True))


EVERYTHING = Match()


class _Moment(StrEnum):
    BEFORE = "before"
    AFTER = "after"


@dataclass(slots=True)
class Fault:
    """One armed fault. `hits` counts the requests that it has met; `met` is set by the first."""

    match: Match
    when: _Moment
    times: int
    delay_seconds: float = 0.0
    error: StatusError | None = None
    drop: bool = False
    hits: int = 0
    met: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def is_spent(self) -> bool:
        """Whether it will happen no more."""
        return self.hits >= self.times


@dataclass(slots=True)
class Hold:
    """Watches that are being held back: those that run, and those that match and begin meanwhile."""

    match: Match
    watches: list[Watch] = field(default_factory=list)
    forget: Callable[[Hold], None] = lambda _: None

    def release(self) -> None:
        """Let the watches send what was held back, and go on."""
        self.forget(self)
        for watch in self.watches:
            watch.release()


class Faults:
    """The faults of one server, and the watches that it has running."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._armed: list[Fault] = []
        self._holds: list[Hold] = []
        self._watches: set[Watch] = set()

    # --- arming ------------------------------------------------------------------------------------------------------

    def delay(self, seconds: float, *, match: Match = EVERYTHING, times: int = 1) -> Fault:
        """Let matching requests wait before anything is done."""
        return self._arm(Fault(match, _Moment.BEFORE, times, delay_seconds=seconds))

    def fail_before(self, status: JsonObject | None, *, match: Match = EVERYTHING, times: int = 1) -> Fault:
        """Refuse matching requests with a Status before anything is done; None drops the connection instead."""
        return self._arm(_failure(status, match, _Moment.BEFORE, times))

    def fail_after(self, status: JsonObject | None, *, match: Match = EVERYTHING, times: int = 1) -> Fault:
        """Carry out matching requests and answer with this Status; None drops the connection, so that the answer is lost."""
        return self._arm(_failure(status, match, _Moment.AFTER, times))

    def drop_watches(self, *, match: Match = EVERYTHING, torn: bool = True) -> int:
        """End the matching watches that run, as by a broken connection or else properly. Returns how many there were."""
        found = [watch for watch in self._watches if match.fits(watch.asked)]
        for watch in found:
            watch.end(torn=torn)
        return len(found)

    def hold_watches(self, *, match: Match = EVERYTHING) -> Hold:
        """Hold back all events of matching watches, running and new, until released."""
        hold = Hold(match, forget=self._holds.remove)
        self._holds.append(hold)
        for watch in self._watches:
            _hold_if_meant(hold, watch)
        return hold

    def compact(self, version: int | None = None) -> None:
        """Forget the history up to a version, by default all of it: older watches and lists get 410."""
        self._store.compact(version)

    def clear(self) -> None:
        """Disarm everything and release every hold."""
        self._armed.clear()
        for hold in list(self._holds):
            hold.release()

    def _arm(self, fault: Fault) -> Fault:
        self._armed.append(fault)
        return fault

    # --- happening ---------------------------------------------------------------------------------------------------

    async def before(self, asked: RequestInfo) -> None:
        """What happens to a request before it is carried out."""
        for fault in self._hitting(asked, _Moment.BEFORE):
            if fault.delay_seconds:
                await asyncio.sleep(fault.delay_seconds)
            _raise(fault)

    def after(self, asked: RequestInfo) -> None:
        """What happens to the answer of a request that was carried out."""
        for fault in self._hitting(asked, _Moment.AFTER):
            _raise(fault)

    def opened(self, watch: Watch) -> None:
        """A watch begins."""
        self._watches.add(watch)
        for hold in self._holds:
            _hold_if_meant(hold, watch)

    def closed(self, watch: Watch) -> None:
        """A watch is over."""
        self._watches.discard(watch)

    def _hitting(self, asked: RequestInfo, when: _Moment) -> Iterator[Fault]:
        if not self._armed:
            return
        for fault in [fault for fault in self._armed if fault.when is when and fault.match.fits(asked)]:
            fault.hits += 1
            fault.met.set()
            if fault.is_spent:
                self._armed.remove(fault)
            yield fault


def _failure(status: JsonObject | None, match: Match, when: _Moment, times: int) -> Fault:
    if status is None:
        return Fault(match, when, times, drop=True)
    return Fault(match, when, times, error=error_from_status(status, retry_after_seconds=_retry_after(status)))


def _retry_after(status: JsonObject) -> float | None:
    seconds = (status.get("details") or {}).get("retryAfterSeconds")
    return None if seconds is None else float(seconds)


def _raise(fault: Fault) -> None:
    if fault.drop:
        raise ConnectionDroppedError
    if fault.error is not None:
        raise fault.error


def _hold_if_meant(hold: Hold, watch: Watch) -> None:
    if hold.match.fits(watch.asked):
        watch.hold()
        hold.watches.append(watch)
