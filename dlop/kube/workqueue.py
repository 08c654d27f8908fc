"""The queue between the informers and the workers: which key to look at next.

What it promises:
- One worker a key: a key that is being worked on is not handed out again before `done`.
- No lost wake-up: a key added while it is being worked on comes again afterwards, once, however often it was added.
- One entry a key. Adding a waiting key again keeps the earlier time and the higher priority of the two.
- Live changes go before the initial list; within each, namespaces take turns.
- Back-off is per key, doubles, is jittered and has a cap.
- After `shutdown` nothing new gets in, delayed keys are dropped, and workers empty what is left.

Everything is O(log n) or better. Delays share one timer; nothing polls.

Ready keys in line: first in, first out within a namespace, and namespaces take turns. Every step is O(1).

What a work queue tells about itself: the seam between the queue and whatever counts.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import math
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from random import Random
from typing import Any, Generic, Protocol, TypeVar

from dlop.kube.cooperative import Slices

K = TypeVar("K", bound=Hashable)


class Item(Generic[K]):
    """All that is known of one key: the entry that waits for it, if any, and the work going on, if any."""

    __slots__ = ("due", "key", "namespace", "pending_initial", "ready", "ready_since", "started_at", "work_initial")

    def __init__(self, key: K, namespace: str) -> None:
        self.key = key
        self.namespace = namespace
        self.ready = False
        self.ready_since = 0.0
        self.due: float | None = None
        self.pending_initial = True
        self.started_at: float | None = None
        self.work_initial = False

    @property
    def is_idle(self) -> bool:
        """Neither waiting nor being worked on."""
        return not self.ready and self.due is None and self.started_at is None


class Lane(Generic[K]):
    """Ready keys of one priority: first in, first out within a namespace, and namespaces take turns."""

    def __init__(self) -> None:
        self._turns: OrderedDict[str, OrderedDict[K, Item[K]]] = OrderedDict()
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def push(self, item: Item[K]) -> None:
        """Line up behind the other keys of the namespace."""
        keys = self._turns.get(item.namespace)
        if keys is None:
            keys = self._turns[item.namespace] = OrderedDict()
        keys[item.key] = item
        self._length += 1

    def pop(self) -> Item[K]:
        """The oldest key of the namespace whose turn it is; the namespace then goes to the end of the row."""
        namespace, keys = self._turns.popitem(last=False)
        _, item = keys.popitem(last=False)
        if keys:
            self._turns[namespace] = keys
        self._length -= 1
        return item

    def remove(self, item: Item[K]) -> None:
        """Leave the lane without having been handed out."""
        keys = self._turns[item.namespace]
        del keys[item.key]
        if not keys:
            del self._turns[item.namespace]
        self._length -= 1


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


# Stale entries of the delay heap are thrown out when they outnumber the others, but not before there are this many.
_SMALL_HEAP = 64
_MAX_DOUBLINGS = 40


class QueueShutDownError(Exception):
    """The queue is shut down and empty: the worker can go home."""


@dataclass(frozen=True, slots=True)
class RetryDelays:
    """How long a key waits after its nth failure in a row: from half to the whole of `base * 2**n`, at most the cap."""

    base_seconds: float = 0.005
    cap_seconds: float = 120.0

    def delay_seconds(self, failures: int, *, rng: Random) -> float:
        """The wait after `failures` earlier failures. Jitter keeps keys that failed together from coming back together."""
        whole = min(self.cap_seconds, math.ldexp(self.base_seconds, min(failures, _MAX_DOUBLINGS)))
        return whole * rng.uniform(0.5, 1.0)


def namespace_of_key(key: Any) -> str:
    """The namespace of a key that has one as an attribute or as its first part; otherwise all keys share one."""
    namespace = getattr(key, "namespace", None)
    if namespace is None and isinstance(key, tuple) and key:
        namespace = key[0]
    return namespace if isinstance(namespace, str) else ""


class WorkQueue(Generic[K]):
    """Keys to look at. Made and used on one event loop."""

    def __init__(
        self,
        *,
        rng: Random,
        retry_delays: RetryDelays = RetryDelays(),
        namespace_of: Callable[[K], str] = namespace_of_key,
        observer: QueueObserver = NO_OBSERVER,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._rng = rng
        self._retry_delays = retry_delays
        self._namespace_of = namespace_of
        self._observer = observer
        self._items: dict[K, Item[K]] = {}
        self._working: dict[K, Item[K]] = {}
        self._failures: dict[K, int] = {}
        self._live: Lane[K] = Lane()
        self._initial: Lane[K] = Lane()
        self._heap: list[tuple[float, int, Item[K]]] = []
        self._delayed = 0
        self._order = itertools.count()
        self._timer: asyncio.Handle | None = None
        self._timer_rings_at = 0.0
        self._getters: deque[asyncio.Future[None]] = deque()
        self._slices = Slices()
        self._idle = asyncio.Event()
        self._is_shut_down = False
        observer.attach(self)

    # --- putting in --------------------------------------------------------------------------------------------------

    def add(self, key: K, *, initial: bool = False) -> None:
        """Have a key looked at now. `initial` is for what the first list brought: it lets live changes go first."""
        if not self._is_shut_down:
            self._make_ready(self._item(key), initial=initial)

    def add_after(self, key: K, seconds: float, *, initial: bool = False) -> None:
        """Have a key looked at after a while; a time that is already set and earlier stays."""
        if self._is_shut_down:
            return
        item = self._item(key)
        if seconds > 0:
            self._observer.retried()
        if seconds <= 0 or item.ready:
            self._make_ready(item, initial=initial)
            return
        item.pending_initial = item.pending_initial and initial
        due = self._loop.time() + seconds
        if item.due is None or due < item.due:
            self._delay(item, due)

    def add_rate_limited(self, key: K) -> None:
        """Have a key that failed looked at again, after its back-off and with the priority it had."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        working = self._working.get(key)
        delay = self._retry_delays.delay_seconds(failures, rng=self._rng)
        self.add_after(key, delay, initial=working is not None and working.work_initial)

    def forget(self, key: K) -> None:
        """The key went well: its next failure is its first."""
        self._failures.pop(key, None)

    def failures(self, key: K) -> int:
        """How many times in a row the key has failed."""
        return self._failures.get(key, 0)

    # --- taking out --------------------------------------------------------------------------------------------------

    async def get(self) -> K:
        """The next key. Call `done` with it, whatever happens.

        Raises:
            QueueShutDownError: when the queue is shut down and empty.
        """
        # Thousands of passes that await nothing must not stall everybody else.
        await self._slices.breathe()
        while not self._live and not self._initial:
            if self._is_shut_down:
                raise QueueShutDownError
            await self._wait_for_a_key()
        return self._take()

    def done(self, key: K) -> None:
        """The work on a key has ended. If the key was added meanwhile it comes again."""
        item = self._working.pop(key)
        started_at = item.started_at
        item.started_at = None
        if item.ready:
            self._enter_lane(item)
        elif item.due is None:
            del self._items[key]
        if started_at is not None:
            self._observer.finished(worked_seconds=self._loop.time() - started_at)
        self._note_if_idle()

    # --- the end -----------------------------------------------------------------------------------------------------

    def shutdown(self) -> None:
        """Take nothing new, drop what is delayed, and let the workers empty the rest."""
        if self._is_shut_down:
            return
        self._is_shut_down = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._heap.clear()
        self._delayed = 0
        for item in [item for item in self._items.values() if item.due is not None]:
            item.due = None
            if item.is_idle:
                del self._items[item.key]
        for getter in self._getters:
            _wake(getter)
        self._note_if_idle()

    async def drain(self) -> None:
        """Shut down, and wait until the workers have finished every key. Needs workers that go on."""
        self.shutdown()
        await self._idle.wait()

    # --- looking in --------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._live) + len(self._initial)

    def depth(self, *, initial: bool) -> int:
        """How many keys of one priority are ready to be handed out."""
        return len(self._initial if initial else self._live)

    def is_due_again(self, key: K) -> bool:
        """Whether a key that is being worked on will come again as soon as it is done."""
        item = self._working.get(key)
        return item is not None and item.ready

    def working_seconds(self) -> list[float]:
        """For how long each key that is being worked on has been in work."""
        now = self._loop.time()
        return [now - item.started_at for item in list(self._working.values()) if item.started_at is not None]

    # --- inside ------------------------------------------------------------------------------------------------------

    def _item(self, key: K) -> Item[K]:
        item = self._items.get(key)
        if item is None:
            item = self._items[key] = Item(key, self._namespace_of(key))
        return item

    def _make_ready(self, item: Item[K], *, initial: bool) -> None:
        higher = item.pending_initial and not initial
        if item.ready and not higher:
            return
        if item.ready and item.started_at is None:
            self._initial.remove(item)
        if item.due is not None:
            item.due = None
            self._delayed -= 1
        if not item.ready:
            item.ready = True
            item.ready_since = self._loop.time()
            self._observer.added()
        if higher:
            item.pending_initial = False
        if item.started_at is None:
            self._enter_lane(item)

    def _enter_lane(self, item: Item[K]) -> None:
        (self._initial if item.pending_initial else self._live).push(item)
        self._wake_one_getter()

    def _take(self) -> K:
        item = (self._live or self._initial).pop()
        now = self._loop.time()
        item.work_initial = item.pending_initial
        item.pending_initial = True
        item.ready = False
        item.started_at = now
        self._working[item.key] = item
        self._observer.handed_out(waited_seconds=now - item.ready_since)
        return item.key

    async def _wait_for_a_key(self) -> None:
        getter = self._loop.create_future()
        self._getters.append(getter)
        try:
            await getter
        except asyncio.CancelledError:
            if getter in self._getters:
                self._getters.remove(getter)
            elif not getter.cancelled():
                self._wake_one_getter()  # the wake-up was meant for a worker that goes on
            raise

    def _wake_one_getter(self) -> None:
        while self._getters:
            if _wake(self._getters.popleft()):
                return

    def _note_if_idle(self) -> None:
        if self._is_shut_down and not self._working and not self._live and not self._initial:
            self._idle.set()

    # --- delays ------------------------------------------------------------------------------------------------------

    def _delay(self, item: Item[K], due: float) -> None:
        if item.due is None:
            self._delayed += 1
        item.due = due
        heapq.heappush(self._heap, (due, next(self._order), item))
        if len(self._heap) > _SMALL_HEAP and len(self._heap) > 2 * self._delayed:
            self._throw_out_stale_entries()
        self._set_timer()

    def _throw_out_stale_entries(self) -> None:
        self._heap = [entry for entry in self._heap if entry[2].due == entry[0]]
        heapq.heapify(self._heap)

    def _set_timer(self) -> None:
        if not self._heap:
            return
        earliest = self._heap[0][0]
        if self._timer is not None:
            if self._timer_rings_at <= earliest:
                return
            self._timer.cancel()
        # Kept here, because uvloop's handle of a moment that is almost now cannot tell it.
        self._timer_rings_at = earliest
        self._timer = self._loop.call_at(earliest, self._release_due)

    def _release_due(self) -> None:
        self._timer = None
        now = self._loop.time()
        while self._heap and self._heap[0][0] <= now:
            due, _, item = heapq.heappop(self._heap)
            if item.due == due:  # otherwise it was added or moved meanwhile
                self._make_ready(item, initial=item.pending_initial)
        self._set_timer()


def _wake(getter: asyncio.Future[None]) -> bool:
    if getter.done():
        return False
    getter.set_result(None)
    return True
