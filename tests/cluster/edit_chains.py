"""Chains of edits, as hypothesis draws them: a job, and what is done to its spec step by step."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.cluster.chain_edits import (
    Done,
    Draw,
    Edit,
    Pen,
    edit_image,
    modest_edits,
    odd_edits,
    refused_edits,
    right_edits,
    unbearable_edits,
)
from tests.cluster.chain_kinds import KINDS, Kind, Wish, ends

MOST_EDITS = 6
# Hypothesis likes to try again what it has tried before.
_EXAMPLES_FOR_EACH = 1.5


class Sort(StrEnum):
    """What becomes of an edit."""

    RIGHT = "right"
    REFUSED = "refused by the API server"
    ODD = "found wrong by the operator"
    UNBEARABLE = "found wrong when pods are made"
    MENDED = "mended"


_EDITS = {Sort.RIGHT: right_edits, Sort.REFUSED: refused_edits, Sort.ODD: odd_edits, Sort.UNBEARABLE: unbearable_edits}
_WEIGHTS = {Sort.RIGHT: 7, Sort.REFUSED: 2, Sort.ODD: 2, Sort.UNBEARABLE: 1}

# Right edits are made beside a mistake that is there and do not mend it.
_NEXT_MISTAKE = {Sort.ODD: Sort.ODD, Sort.UNBEARABLE: Sort.UNBEARABLE, Sort.MENDED: None}


@dataclass(frozen=True)
class Step:
    """One edit."""

    sort: Sort
    done: Done
    wish: Wish
    """What the job asks for if the edit goes through."""
    is_awaited: bool
    """Whether the next edit waits until the operator has seen this one."""

    def __str__(self) -> str:
        return f"{self.done.what} ({self.sort}{'' if self.is_awaited else ', the next at once'})"


@dataclass(frozen=True)
class Chain:
    """A job and its edits."""

    kind: Kind
    pods_run: bool
    """Whether a kubelet starts the pods. Else they wait for ever."""
    start: Step
    steps: tuple[Step, ...]

    @property
    def last(self) -> Step:
        """The last edit that the API server takes."""
        return next((step for step in reversed(self.steps) if step.sort is not Sort.REFUSED), self.start)

    @property
    def edits(self) -> str:
        """What is done, for people to read."""
        edits = "".join(f"\n  {number}. {step}" for number, step in enumerate((self.start, *self.steps)))
        return f"{self.kind.name}, pods {'run' if self.pods_run else 'wait'}:{edits}"

    def __str__(self) -> str:
        return f"{self.edits}\nlast spec: {self.kind.spec_of(self.last.wish)}"


@st.composite
def chains(draw: Draw) -> Chain:
    """Any chain of a few edits. One that ends the job is the last: nothing matters after it."""
    kind = draw(st.sampled_from(KINDS))
    pods_run = draw(st.integers(0, 3)) == 0
    start = _start(draw, kind)
    wish = sound = start.wish
    mistake: Sort | None = None
    steps: list[Step] = []
    for _ in range(draw(st.integers(1, MOST_EDITS))):
        if ends(wish):
            break
        if mistake is None:
            step = _edited(draw, kind, wish, pods_run=pods_run)
        else:
            step = _after_a_mistake(draw, kind, wish, sound, mistake=mistake)
        steps.append(step)
        if step.sort is Sort.REFUSED:
            continue
        wish, mistake = step.wish, _NEXT_MISTAKE.get(step.sort, mistake)
        sound = wish if mistake is None else sound
    return Chain(kind, pods_run, start, tuple(steps))


def _start(draw: Draw, kind: Kind) -> Step:
    names = [role.name for role in kind.roles if role.required or draw(st.booleans())]
    wish: Wish = {"roles": [kind.new_role(name) for name in names], "policy": {}, "more": {}}
    return Step(Sort.RIGHT, Done(f"made with {', '.join(names)}"), wish, is_awaited=draw(st.booleans()))


def _edited(draw: Draw, kind: Kind, wish: Wish, *, pods_run: bool) -> Step:
    # Pods that run keep the template they were started with, so a template that none can be made of goes unnoticed.
    left_out = [Sort.UNBEARABLE] if pods_run else []
    choices = {sort: edits(kind) for sort, edits in _EDITS.items() if sort not in left_out}
    sort = draw(st.sampled_from([sort for sort, edits in choices.items() if edits for _ in range(_WEIGHTS[sort])]))
    return _step(draw, kind, wish, sort=sort, edits=choices[sort])


def _after_a_mistake(draw: Draw, kind: Kind, wish: Wish, sound: Wish, *, mistake: Sort) -> Step:
    """It is mended as a rule, with another image. Or another one is made in its place. Or it stays, and something else is edited."""
    match draw(st.integers(0, 4)):
        case 0:
            return _step(draw, kind, wish, sort=Sort.RIGHT, edits=modest_edits(kind))
        case 1:
            return _step(draw, kind, sound, sort=mistake, edits=_EDITS[mistake](kind))
        case _:
            return _step(draw, kind, sound, sort=Sort.MENDED, edits=[edit_image])


def _step(draw: Draw, kind: Kind, wish: Wish, *, sort: Sort, edits: Sequence[Edit]) -> Step:
    wish = copy.deepcopy(wish)
    done = draw(st.sampled_from(edits))(Pen(draw, kind, wish))
    return Step(sort, done, wish, is_awaited=draw(st.booleans()))


def drawn(number: int) -> list[Chain]:
    """So many different chains. They are drawn first and run later, many at a time: one by one they would take minutes."""
    found: dict[str, Chain] = {}

    @settings(
        max_examples=int(_EXAMPLES_FOR_EACH * number),
        phases=[Phase.generate],
        database=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(chains())
    def draw_one(chain: Chain) -> None:
        if len(found) < number:
            found.setdefault(chain.edits, chain)

    draw_one()
    return list(found.values())
