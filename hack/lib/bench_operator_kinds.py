"""Whether one kind of jobs is slower than another: both in one operator, in many short turns, each turn beside one of the other kind.

What the machine and the server do meanwhile comes and goes more than the kinds differ. So neighbours are compared, and
the median of all pairs is told with the bounds between which it lies with 95 % certainty. The bare client takes the same
turns: larger objects are slower whoever creates them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from math import comb
from statistics import median

from bench_operator_creates import Counts, Speed, bare_released, released, warm_up
from bench_operator_jobs import Load
from bench_operator_load import Place
from bench_operator_process import running_operator
from bench_rows import Row, say

_CERTAINTY = 0.95
# No slower and no dearer, as far as such a run can tell.
_NO_SLOWER, _NO_DEARER = 0.95, 1.05
_QUIET_SECONDS, _REST_SECONDS = 0.3, 0.5

Turn = Callable[[Place, int], Awaitable[Speed]]
"""Takes a turn of this number with a kind."""
Turns = tuple[Speed, Speed]
"""A turn of each kind, one right after the other."""


async def kind_rows(places: Sequence[Place], load: Load, *, pairs: int, name: str) -> list[Row]:
    """The first kind against the second; nothing where there is only one."""
    if len(places) == 1:
        return []
    one, other = places
    title = f"{one.kind.title} against {other.kind.title}, {pairs} pairs of {load.title}"
    say(f"{title}, in turns")
    ours, bare = await _both_clients(one, other, load, pairs=pairs, name=name)
    speeds, costs, bare_speeds, bare_costs = _speeds(ours), _costs(ours), _speeds(bare), _costs(bare)
    return [
        Row(f"{title}: objects a second, {_between(speeds)}", median(speeds), "ratio", at_least=_NO_SLOWER),
        Row(f"{title}: the same of the bare client, {_between(bare_speeds)}", median(bare_speeds), "ratio"),
        Row(f"{title}: CPU an object, {_between(costs)}", median(costs), "ratio", at_most=_NO_DEARER),
        Row(f"{title}: the same of the bare client, {_between(bare_costs)}", median(bare_costs), "ratio"),
    ]


async def _both_clients(one: Place, other: Place, load: Load, *, pairs: int, name: str) -> tuple[list[Turns], list[Turns]]:
    """The turns of the operator and those of the bare client, each in a namespace of its own."""
    namespace, bare_namespace = await one.make_namespace(name), await one.make_namespace(f"{name}-bare")
    counts, bare_counts = Counts(), Counts()
    kinds = ",".join(place.kind.resource.qualified_name for place in (one, other))
    async with (
        running_operator(one.kubeconfig, kind=kinds, namespace=namespace, folder=one.folder) as operator,
        counts.follower([one, other], namespace) as follower,
        bare_counts.follower([one, other], bare_namespace) as bare_follower,
    ):

        async def turn(place: Place, number: int) -> Speed:
            await operator.wait_quiet(seconds=_QUIET_SECONDS)  # or the events of the other kind would count as this one's
            counts.clear()
            bodies = load.bodies(place.kind, namespace, name=_name(place, number))
            return await released(place, operator, follower, counts, bodies=bodies, load=load, rest_seconds=_REST_SECONDS)

        async def bare_turn(place: Place, number: int) -> Speed:
            bare_counts.clear()
            bodies = load.bodies(place.kind, bare_namespace, name=_name(place, number))
            return await bare_released(place, bare_follower, bare_counts, bodies=bodies, load=load, rest_seconds=_REST_SECONDS)

        for place in (one, other):
            await warm_up(place, operator, follower, counts, namespace=namespace)
        ours: list[Turns] = []
        bare: list[Turns] = []
        for number in range(pairs):
            ours.append(await _pair(turn, one, other, number))
            bare.append(await _pair(bare_turn, one, other, number))
            say(f"  {number + 1}: {_told(one, ours[-1][0])}, {_told(other, ours[-1][1])}")
        return ours, bare


async def _pair(turn: Turn, one: Place, other: Place, number: int) -> Turns:
    """In turns one of the kinds goes first."""
    if number % 2:
        second = await turn(other, number)
        return await turn(one, number), second
    return await turn(one, number), await turn(other, number)


def _name(place: Place, number: int) -> str:
    return f"{place.kind.title.lower()}-{number}"


def _told(place: Place, speed: Speed) -> str:
    return f"{place.kind.title} {speed.per_second:.0f}/s at {speed.cpu_microseconds:.0f} µs of CPU"


def _speeds(turns: Sequence[Turns]) -> list[float]:
    return [one.per_second / other.per_second for one, other in turns]


def _costs(turns: Sequence[Turns]) -> list[float]:
    return [one.cpu_microseconds / other.cpu_microseconds for one, other in turns]


def _between(ratios: Sequence[float]) -> str:
    found = bounds(ratios)
    return "too few to be certain" if found is None else f"{found[0]:.2f} to {found[1]:.2f}"


def bounds(ratios: Sequence[float]) -> tuple[float, float] | None:
    """Between which of the ratios the true median lies, with 95 % certainty; None where they are too few to say.

    Each ratio is as often below the true median as above it. So it is rare that nearly all of them are on one side.
    """
    ordered, count = sorted(ratios), len(ratios)
    outside, chance = 0, 1 / 2**count
    while 2 * chance <= 1 - _CERTAINTY:
        outside += 1
        chance += comb(count, outside) / 2**count
    return (ordered[outside - 1], ordered[-outside]) if outside else None
