"""Work queue between informers and workers.

Guarantees:
- One worker per key: a key that is being processed is not handed out again before `done`.
- No lost wake-up: a key that is added while it is being processed is handed out once more afterwards.
- One entry per key. Adding a waiting key again keeps the earlier time and the higher priority of the two.
- Live changes go before the initial list; within each priority, namespaces take turns (round robin).
- Back-off is per key, doubles, has jitter and a cap.
- After `shutdown` adds are ignored, delayed keys are dropped, and workers process the remaining ready keys.

All operations are O(log n) or better. All delays share one timer; nothing polls.
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

from dlop.kube.cooperative import YieldBudget

K = TypeVar("K", bound=Hashable)

# The delay heap is compacted when most of its entries are stale, but not below this size.
_MIN_COMPACTED_HEAP = 64
_MAX_DOUBLINGS = 40


class QueueShutDownError(Exception):
    """The queue is shut down and empty; the worker can exit."""


@dataclass(frozen=True, slots=True)
class RetryDelays:
    """Per-key back-off: after n failures a random delay between half and all of `base * 2**n`, at most the cap."""

    base_seconds: float = 0.005
    cap_seconds: float = 120.0

    def delay_seconds(self, failures: int, *, rng: Random) -> float:
        """The delay after `failures` earlier failures. Jitter keeps keys that failed together from retrying together."""
        longest = min(self.cap_seconds, math.ldexp(self.base_seconds, min(failures, _MAX_DOUBLINGS)))
        return longest * rng.uniform(0.5, 1.0)


def key_namespace(key: Any) -> str:
    """The `namespace` attribute of a key, or the first item of a tuple; otherwise empty."""
    namespace = getattr(key, "namespace", None)
    if namespace is None and isinstance(key, tuple) and key:
        namespace = key[0]
    return namespace if isinstance(namespace, str) else ""


# --- metrics -------------------------------------------------------------------------------------------------------------


class QueueState(Protocol):
    """State of a queue that metrics read."""

    def depth(self, *, initial: bool) -> int:
        """Number of ready keys of one priority."""
        ...

    def processing_seconds(self) -> list[float]:
        """For each key that is being processed, the seconds since a worker took it."""
        ...


class QueueObserver(Protocol):
    """Receives the events of a queue. The calls are on the hot path and must return quickly."""

    def attach(self, queue: QueueState) -> None:
        """Called once, by the queue that is observed."""
        ...

    def on_add(self) -> None:
        """A key became ready. Adds without effect are not reported."""
        ...

    def on_get(self, *, waited_seconds: float) -> None:
        """A worker took a key that was ready for `waited_seconds`."""
        ...

    def on_done(self, *, worked_seconds: float) -> None:
        """A worker finished a key."""
        ...

    def on_retry(self) -> None:
        """A key was added with a delay."""
        ...


class _NoObserver:
    def attach(self, queue: QueueState) -> None:
        pass

    def on_add(self) -> None:
        pass

    def on_get(self, *, waited_seconds: float) -> None:
        pass

    def on_done(self, *, worked_seconds: float) -> None:
        pass

    def on_retry(self) -> None:
        pass


NO_OBSERVER: QueueObserver = _NoObserver()


# --- ready keys ----------------------------------------------------------------------------------------------------------


class QueueItem(Generic[K]):
    """State of one key: its waiting entry, if any, and its processing by a worker, if any."""

    __slots__ = ("due", "key", "namespace", "pending_initial", "processing_initial", "ready", "ready_since", "started_at")

    def __init__(self, key: K, namespace: str) -> None:
        self.key = key
        self.namespace = namespace
        self.ready = False
        self.ready_since = 0.0
        self.due: float | None = None
        self.pending_initial = True
        self.started_at: float | None = None
        self.processing_initial = False

    @property
    def is_idle(self) -> bool:
        """Whether the key is neither waiting nor being processed."""
        return not self.ready and self.due is None and self.started_at is None


class FairQueue(Generic[K]):
    """Ready keys of one priority: FIFO within a namespace, round robin between namespaces. All operations are O(1)."""

    def __init__(self) -> None:
        self._namespaces: OrderedDict[str, OrderedDict[K, QueueItem[K]]] = OrderedDict()
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def push(self, item: QueueItem[K]) -> None:
        keys = self._namespaces.get(item.namespace)
        if keys is None:
            keys = self._namespaces[item.namespace] = OrderedDict()
        keys[item.key] = item
        self._length += 1

    def pop(self) -> QueueItem[K]:
        """Remove the oldest key of the next namespace."""
        namespace, keys = self._namespaces.popitem(last=False)
        _, item = keys.popitem(last=False)
        if keys:
            self._namespaces[namespace] = keys
        self._length -= 1
        return item

    def remove(self, item: QueueItem[K]) -> None:
        keys = self._namespaces[item.namespace]
        del keys[item.key]
        if not keys:
            del self._namespaces[item.namespace]
        self._length -= 1


# --- the queue -----------------------------------------------------------------------------------------------------------


class WorkQueue(Generic[K]):
    """Rate-limited work queue with two priorities. Create and use it on one event loop."""

    def __init__(
        self,
        *,
        rng: Random,
        retry_delays: RetryDelays = RetryDelays(),
        namespace_of: Callable[[K], str] = key_namespace,
        observer: QueueObserver = NO_OBSERVER,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._rng = rng
        self._retry_delays = retry_delays
        self._namespace_of = namespace_of
        self._observer = observer
        self._items: dict[K, QueueItem[K]] = {}
        self._processing: dict[K, QueueItem[K]] = {}
        self._failures: dict[K, int] = {}
        self._live: FairQueue[K] = FairQueue()
        self._initial: FairQueue[K] = FairQueue()
        self._heap: list[tuple[float, int, QueueItem[K]]] = []
        self._delayed = 0
        self._order = itertools.count()
        self._timer: asyncio.Handle | None = None
        self._timer_fires_at = 0.0
        self._getters: deque[asyncio.Future[None]] = deque()
        self._budget = YieldBudget()
        self._idle = asyncio.Event()
        self._is_shut_down = False
        observer.attach(self)

    # --- adding ------------------------------------------------------------------------------------------------------

    def add(self, key: K, *, initial: bool = False) -> None:
        """Make a key ready. `initial` is for keys of the first list, which have the lower priority."""
        if not self._is_shut_down:
            self._make_ready(self._item(key), initial=initial)

    def add_after(self, key: K, seconds: float, *, initial: bool = False) -> None:
        """Make a key ready after a delay. An earlier time that is already set is kept."""
        if self._is_shut_down:
            return
        item = self._item(key)
        if seconds > 0:
            self._observer.on_retry()
        if seconds <= 0 or item.ready:
            self._make_ready(item, initial=initial)
            return
        item.pending_initial = item.pending_initial and initial
        due = self._loop.time() + seconds
        if item.due is None or due < item.due:
            self._delay(item, due)

    def add_rate_limited(self, key: K) -> None:
        """Requeue a key that failed, after its back-off and with its previous priority."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        processing = self._processing.get(key)
        delay = self._retry_delays.delay_seconds(failures, rng=self._rng)
        self.add_after(key, delay, initial=processing is not None and processing.processing_initial)

    def forget(self, key: K) -> None:
        """Reset the back-off of a key after a success."""
        self._failures.pop(key, None)

    def end_backoff(self, *, within_seconds: float) -> None:
        """Retry all keys that failed, at random times within this delay, because what made them fail is over."""
        failed, self._failures = self._failures, {}
        for key in failed:
            item = self._items.get(key)
            if item is not None and item.due is not None:
                self.add_after(key, within_seconds * self._rng.random(), initial=item.pending_initial)

    def failures(self, key: K) -> int:
        """Number of consecutive failures of a key."""
        return self._failures.get(key, 0)

    # --- getting -----------------------------------------------------------------------------------------------------

    async def get(self) -> K:
        """Wait for the next key. The caller must call `done` with it.

        Raises:
            QueueShutDownError: the queue is shut down and empty.
        """
        # Thousands of reconcile passes that await nothing must not block the loop.
        await self._budget.maybe_yield()
        while not self._live and not self._initial:
            if self._is_shut_down:
                raise QueueShutDownError
            await self._wait_for_key()
        return self._take()

    def done(self, key: K) -> None:
        """Mark a key as processed. If it was added meanwhile it becomes ready again."""
        item = self._processing.pop(key)
        started_at = item.started_at
        item.started_at = None
        if item.ready:
            self._push(item)
        elif item.due is None:
            del self._items[key]
        if started_at is not None:
            self._observer.on_done(worked_seconds=self._loop.time() - started_at)
        self._check_idle()

    # --- shutdown ----------------------------------------------------------------------------------------------------

    def shutdown(self) -> None:
        """Ignore further adds and drop delayed keys. Workers process the remaining ready keys."""
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
        self._check_idle()

    async def drain(self) -> None:
        """Shut down and wait until the workers have processed all ready keys. Workers must still be running."""
        self.shutdown()
        await self._idle.wait()

    # --- queries -----------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._live) + len(self._initial)

    def depth(self, *, initial: bool) -> int:
        """Number of ready keys of one priority."""
        return len(self._initial if initial else self._live)

    def is_requeued(self, key: K) -> bool:
        """Whether a key that is being processed will be handed out again as soon as it is done."""
        item = self._processing.get(key)
        return item is not None and item.ready

    def processing_seconds(self) -> list[float]:
        """For each key that is being processed, the seconds since a worker took it."""
        now = self._loop.time()
        return [now - item.started_at for item in list(self._processing.values()) if item.started_at is not None]

    # --- internals ---------------------------------------------------------------------------------------------------

    def _item(self, key: K) -> QueueItem[K]:
        item = self._items.get(key)
        if item is None:
            item = self._items[key] = QueueItem(key, self._namespace_of(key))
        return item

    def _make_ready(self, item: QueueItem[K], *, initial: bool) -> None:
        raises_priority = item.pending_initial and not initial
        if item.ready and not raises_priority:
            return
        if item.ready and item.started_at is None:
            self._initial.remove(item)
        if item.due is not None:
            item.due = None
            self._delayed -= 1
        if not item.ready:
            item.ready = True
            item.ready_since = self._loop.time()
            self._observer.on_add()
        if raises_priority:
            item.pending_initial = False
        if item.started_at is None:
            self._push(item)

    def _push(self, item: QueueItem[K]) -> None:
        (self._initial if item.pending_initial else self._live).push(item)
        self._wake_one_getter()

    def _take(self) -> K:
        item = (self._live or self._initial).pop()
        now = self._loop.time()
        item.processing_initial = item.pending_initial
        item.pending_initial = True
        item.ready = False
        item.started_at = now
        self._processing[item.key] = item
        self._observer.on_get(waited_seconds=now - item.ready_since)
        return item.key

    async def _wait_for_key(self) -> None:
        getter = self._loop.create_future()
        self._getters.append(getter)
        try:
            await getter
        except asyncio.CancelledError:
            if getter in self._getters:
                self._getters.remove(getter)
            elif not getter.cancelled():
                self._wake_one_getter()  # pass the wake-up on to a worker that is not cancelled
            raise

    def _wake_one_getter(self) -> None:
        while self._getters:
            if _wake(self._getters.popleft()):
                return

    def _check_idle(self) -> None:
        if self._is_shut_down and not self._processing and not self._live and not self._initial:
            self._idle.set()

    # --- delays ------------------------------------------------------------------------------------------------------

    def _delay(self, item: QueueItem[K], due: float) -> None:
        if item.due is None:
            self._delayed += 1
        item.due = due
        heapq.heappush(self._heap, (due, next(self._order), item))
        if len(self._heap) > _MIN_COMPACTED_HEAP and len(self._heap) > 2 * self._delayed:
            self._compact_heap()
        self._set_timer()

    def _compact_heap(self) -> None:
        self._heap = [entry for entry in self._heap if entry[2].due == entry[0]]
        heapq.heapify(self._heap)

    def _set_timer(self) -> None:
        if not self._heap:
            return
        earliest = self._heap[0][0]
        if self._timer is not None:
            if self._timer_fires_at <= earliest:
                return
            self._timer.cancel()
        # Stored here, because uvloop returns a handle without `when()` for a time that is almost now.
        self._timer_fires_at = earliest
        self._timer = self._loop.call_at(earliest, self._release_due)

    def _release_due(self) -> None:
        self._timer = None
        now = self._loop.time()
        while self._heap and self._heap[0][0] <= now:
            due, _, item = heapq.heappop(self._heap)
            if item.due == due:  # otherwise the entry is stale
                self._make_ready(item, initial=item.pending_initial)
        self._set_timer()


def _wake(getter: asyncio.Future[None]) -> bool:
    if getter.done():
        return False
    getter.set_result(None)
    return True
