"""Work queue compared with a simple model that uses plain lists."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlop.kube.workqueue import QueueShutDownError, RetryDelays, WorkQueue
from dlop.testing.virtual_time import virtual_time
from tests.thorough import examples


class Key(NamedTuple):
    namespace: str
    name: str


class NoJitter(random.Random):
    def uniform(self, a: float, b: float) -> float:
        return max(a, b)


# Powers of two, so that sums of times are exact.
DELAYS = RetryDelays(base_seconds=0.25, cap_seconds=4.0)


@dataclass
class Entry:
    key: Key
    initial: bool
    due: float = 0.0
    """0 if the entry is ready."""


@dataclass
class Model:
    """One entry per key. `ready` holds ready entries in FIFO order, `turns` the order of namespaces for each priority."""

    now: float = 0.0
    ready: list[Entry] = field(default_factory=list)
    delayed: list[Entry] = field(default_factory=list)
    dirty: list[Entry] = field(default_factory=list)
    processing: dict[Key, bool] = field(default_factory=dict)
    failures: dict[Key, int] = field(default_factory=dict)
    turns: dict[bool, list[str]] = field(default_factory=lambda: {False: [], True: []})
    shut: bool = False

    def remove_entry(self, key: Key) -> Entry | None:
        for entries in (self.ready, self.delayed, self.dirty):
            for entry in entries:
                if entry.key == key:
                    entries.remove(entry)
                    self.prune_turns()
                    return entry
        return None

    def prune_turns(self) -> None:
        for initial, namespaces in self.turns.items():
            present = {entry.key.namespace for entry in self.ready if entry.initial is initial}
            namespaces[:] = [namespace for namespace in namespaces if namespace in present]

    def put(self, entry: Entry) -> None:
        if entry.due:
            self.delayed.append(entry)
        elif entry.key in self.processing:
            self.dirty.append(entry)
        else:
            self.ready.append(entry)
            namespaces = self.turns[entry.initial]
            if entry.key.namespace not in namespaces:
                namespaces.append(entry.key.namespace)

    def add(self, key: Key, *, initial: bool, seconds: float = 0.0) -> None:
        if self.shut:
            return
        due = self.now + seconds if seconds else 0.0
        old = next((entry for entry in self.ready + self.delayed + self.dirty if entry.key == key), None)
        if old is None:
            self.put(Entry(key, initial, due))
            return
        changed = Entry(key, old.initial and initial, min(old.due, due))
        if changed == old:
            return
        if old.due and changed.due == old.due:
            old.initial = changed.initial  # keeps its position among entries with the same time
            return
        self.remove_entry(key)
        self.put(changed)

    def fail(self, key: Key) -> None:
        failures = self.failures.get(key, 0)
        self.failures[key] = failures + 1
        self.add(key, initial=self.processing.get(key, False), seconds=min(4.0, 0.25 * 2**failures))

    def advance(self, seconds: float) -> None:
        self.now += seconds
        for entry in sorted([entry for entry in self.delayed if entry.due <= self.now], key=lambda entry: entry.due):
            self.delayed.remove(entry)
            self.put(Entry(entry.key, entry.initial))

    def get(self) -> Key | None:
        if not self.ready:
            return None
        initial = all(entry.initial for entry in self.ready)
        namespaces = self.turns[initial]
        namespace = namespaces.pop(0)
        chosen = next(entry for entry in self.ready if entry.initial is initial and entry.key.namespace == namespace)
        self.ready.remove(chosen)
        namespaces.append(namespace)
        self.prune_turns()
        self.processing[chosen.key] = initial
        return chosen.key

    def done(self, key: Key) -> None:
        del self.processing[key]
        entry = next((entry for entry in self.dirty if entry.key == key), None)
        if entry is not None:
            self.dirty.remove(entry)
            self.put(entry)

    def shutdown(self) -> None:
        self.shut = True
        self.delayed.clear()


KEYS = st.builds(Key, namespace=st.sampled_from(["x", "y", "z"]), name=st.sampled_from(["1", "2", "3"]))
SECONDS = st.sampled_from([0.0, 0.25, 0.5, 1.0, 2.0, 8.0])
STEPS = st.one_of(
    st.tuples(st.just("add"), KEYS, st.booleans()),
    st.tuples(st.just("add_after"), KEYS, SECONDS, st.booleans()),
    st.tuples(st.just("fail"), KEYS),
    st.tuples(st.just("forget"), KEYS),
    st.tuples(st.just("get")),
    st.tuples(st.just("get")),
    st.tuples(st.just("done"), st.integers(0, 8)),
    st.tuples(st.just("advance"), SECONDS),
)


class Pair:
    """Runs each step on the queue and on the model."""

    def __init__(self) -> None:
        self.queue: WorkQueue[Key] = WorkQueue(rng=NoJitter(), retry_delays=DELAYS)
        self.model = Model()

    async def step(self, step: tuple[object, ...]) -> None:
        match step:
            case ("add", Key() as key, bool() as initial):
                self.queue.add(key, initial=initial)
                self.model.add(key, initial=initial)
            case ("add_after", Key() as key, float() as seconds, bool() as initial):
                self.queue.add_after(key, seconds, initial=initial)
                self.model.add(key, initial=initial, seconds=seconds)
            case ("fail", Key() as key):
                self.queue.add_rate_limited(key)
                self.model.fail(key)
            case ("forget", Key() as key):
                self.queue.forget(key)
                self.model.failures.pop(key, None)
            case ("get",):
                await self.get()
            case ("done", int() as index) if self.model.processing:
                key = list(self.model.processing)[index % len(self.model.processing)]
                self.queue.done(key)
                self.model.done(key)
            case ("advance", float() as seconds):
                await asyncio.sleep(seconds)
                await asyncio.sleep(0)
                self.model.advance(seconds)
        self.compare()

    async def get(self) -> None:
        expected = self.model.get()
        if expected is not None:
            assert await self.queue.get() == expected
            return
        worker = asyncio.create_task(self.queue.get())
        for _ in range(3):
            await asyncio.sleep(0)
        if self.model.shut:
            with pytest.raises(QueueShutDownError):
                await worker
        else:
            assert not worker.done()
            worker.cancel()

    def compare(self) -> None:
        for initial in (False, True):
            assert self.queue.depth(initial=initial) == sum(entry.initial is initial for entry in self.model.ready)
        assert len(self.queue.processing_seconds()) == len(self.model.processing)
        for key, failures in self.model.failures.items():
            assert self.queue.failures(key) == failures


@settings(max_examples=examples(300), deadline=None)
@given(steps=st.lists(STEPS, max_size=60), stops=st.booleans())
@virtual_time
async def test_the_queue_behaves_like_the_model(steps: list[tuple[object, ...]], stops: bool) -> None:
    pair = Pair()
    for step in steps:
        await pair.step(step)
    if stops:
        pair.queue.shutdown()
        pair.model.shutdown()
        draining = asyncio.create_task(pair.queue.drain())
        await pair.step(("add", Key("x", "1"), False))
    else:
        await pair.step(("advance", 8.0))
    while pair.model.ready or pair.model.processing:
        await pair.step(("done", 0) if pair.model.processing else ("get",))
    if stops:
        await draining
        assert pair.queue._items == {}


@settings(max_examples=examples(200), deadline=None)
@given(keys=st.lists(KEYS, max_size=60), seed=st.integers(0, 2**32))
@virtual_time
async def test_namespaces_take_turns(keys: list[Key], seed: int) -> None:
    """Between two keys of one namespace, each other namespace with ready keys gets one."""
    rng = random.Random(seed)
    queue: WorkQueue[Key] = WorkQueue(rng=rng)
    waiting: dict[str, set[Key]] = {}
    overtaken: dict[str, dict[str, int]] = {}
    arrivals = list(keys)
    while arrivals or len(queue):
        if arrivals and rng.random() < 0.6:
            key = arrivals.pop()
            queue.add(key)
            waiting.setdefault(key.namespace, set()).add(key)
            continue
        if not len(queue):
            continue
        key = await queue.get()
        queue.done(key)
        waiting[key.namespace].discard(key)
        overtaken.pop(key.namespace, None)
        for namespace, ready_keys in waiting.items():
            if ready_keys and namespace != key.namespace:
                by = overtaken.setdefault(namespace, {})
                by[key.namespace] = by.get(key.namespace, 0) + 1
                assert by[key.namespace] <= 1
