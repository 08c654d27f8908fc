"""The work queue against a model that is too simple to be wrong: plain lists, searched from end to end."""

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
    """0: ready."""


@dataclass
class Model:
    """One entry a key; `line` holds ready entries in the order they came, `turns` the namespaces of each priority in theirs."""

    now: float = 0.0
    line: list[Entry] = field(default_factory=list)
    delayed: list[Entry] = field(default_factory=list)
    again: list[Entry] = field(default_factory=list)
    in_work: dict[Key, bool] = field(default_factory=dict)
    failures: dict[Key, int] = field(default_factory=dict)
    turns: dict[bool, list[str]] = field(default_factory=lambda: {False: [], True: []})
    shut: bool = False

    def take_entry(self, key: Key) -> Entry | None:
        for entries in (self.line, self.delayed, self.again):
            for entry in entries:
                if entry.key == key:
                    entries.remove(entry)
                    self.clean_turns()
                    return entry
        return None

    def clean_turns(self) -> None:
        for initial, namespaces in self.turns.items():
            present = {entry.key.namespace for entry in self.line if entry.initial is initial}
            namespaces[:] = [namespace for namespace in namespaces if namespace in present]

    def put(self, entry: Entry) -> None:
        if entry.due:
            self.delayed.append(entry)
        elif entry.key in self.in_work:
            self.again.append(entry)
        else:
            self.line.append(entry)
            namespaces = self.turns[entry.initial]
            if entry.key.namespace not in namespaces:
                namespaces.append(entry.key.namespace)

    def add(self, key: Key, *, initial: bool, seconds: float = 0.0) -> None:
        if self.shut:
            return
        due = self.now + seconds if seconds else 0.0
        old = next((entry for entry in self.line + self.delayed + self.again if entry.key == key), None)
        if old is None:
            self.put(Entry(key, initial, due))
            return
        changed = Entry(key, old.initial and initial, min(old.due, due))
        if changed == old:
            return
        if old.due and changed.due == old.due:
            old.initial = changed.initial  # keeps its place among those of the same time
            return
        self.take_entry(key)
        self.put(changed)

    def fail(self, key: Key) -> None:
        failures = self.failures.get(key, 0)
        self.failures[key] = failures + 1
        self.add(key, initial=self.in_work.get(key, False), seconds=min(4.0, 0.25 * 2**failures))

    def advance(self, seconds: float) -> None:
        self.now += seconds
        for entry in sorted([entry for entry in self.delayed if entry.due <= self.now], key=lambda entry: entry.due):
            self.delayed.remove(entry)
            self.put(Entry(entry.key, entry.initial))

    def get(self) -> Key | None:
        if not self.line:
            return None
        initial = all(entry.initial for entry in self.line)
        namespaces = self.turns[initial]
        namespace = namespaces.pop(0)
        chosen = next(entry for entry in self.line if entry.initial is initial and entry.key.namespace == namespace)
        self.line.remove(chosen)
        namespaces.append(namespace)
        self.clean_turns()
        self.in_work[chosen.key] = initial
        return chosen.key

    def done(self, key: Key) -> None:
        del self.in_work[key]
        entry = next((entry for entry in self.again if entry.key == key), None)
        if entry is not None:
            self.again.remove(entry)
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
    """The queue and its model, driven alike."""

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
            case ("done", int() as index) if self.model.in_work:
                key = list(self.model.in_work)[index % len(self.model.in_work)]
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
            assert self.queue.depth(initial=initial) == sum(entry.initial is initial for entry in self.model.line)
        assert len(self.queue.working_seconds()) == len(self.model.in_work)
        for key, failures in self.model.failures.items():
            assert self.queue.failures(key) == failures


@settings(max_examples=300, deadline=None)
@given(steps=st.lists(STEPS, max_size=60), stops=st.booleans())
@virtual_time
async def test_the_queue_does_what_its_model_does(steps: list[tuple[object, ...]], stops: bool) -> None:
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
    while pair.model.line or pair.model.in_work:
        await pair.step(("done", 0) if pair.model.in_work else ("get",))
    if stops:
        await draining
        assert pair.queue._items == {}


@settings(max_examples=200, deadline=None)
@given(keys=st.lists(KEYS, max_size=60), seed=st.integers(0, 2**32))
@virtual_time
async def test_between_two_turns_of_a_namespace_every_other_that_waits_has_its_turn(keys: list[Key], seed: int) -> None:
    """Work comes in while it is worked off; only what was said of fairness is checked, not how it is done."""
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
        for namespace, its_keys in waiting.items():
            if its_keys and namespace != key.namespace:
                by = overtaken.setdefault(namespace, {})
                by[key.namespace] = by.get(key.namespace, 0) + 1
                assert by[key.namespace] <= 1
