"""Random sequences of edits of a job, drawn by Hypothesis."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.cluster.edited_kinds import KINDS, Draft, EditedKind, finishes_immediately
from tests.cluster.spec_edits import (
    Draw,
    Edit,
    EditContext,
    EditResult,
    edit_image,
    invalid_edits,
    pod_rejected_edits,
    rejected_edits,
    unrelated_edits,
    valid_edits,
)

MAX_EDITS = 6
# Hypothesis draws duplicates.
_EXAMPLES_PER_SEQUENCE = 1.5


class Outcome(StrEnum):
    VALID = "valid"
    REJECTED = "rejected by the API server"
    INVALID = "reported by the operator"
    POD_REJECTED = "rejected when pods are created"
    REPAIRED = "repaired"


_EDITS = {
    Outcome.VALID: valid_edits,
    Outcome.REJECTED: rejected_edits,
    Outcome.INVALID: invalid_edits,
    Outcome.POD_REJECTED: pod_rejected_edits,
}
_WEIGHTS = {Outcome.VALID: 7, Outcome.REJECTED: 2, Outcome.INVALID: 2, Outcome.POD_REJECTED: 1}

# The error in the spec after an edit with this outcome. A valid edit does not change it.
_NEXT_ERROR = {Outcome.INVALID: Outcome.INVALID, Outcome.POD_REJECTED: Outcome.POD_REJECTED, Outcome.REPAIRED: None}


@dataclass(frozen=True)
class Step:
    outcome: Outcome
    result: EditResult
    draft: Draft
    """The spec of the job if the edit is accepted."""
    wait: bool
    """Whether the next edit waits until the operator has observed this one."""

    def __str__(self) -> str:
        return f"{self.result.description} ({self.outcome}{'' if self.wait else ', not awaited'})"


@dataclass(frozen=True)
class EditSequence:
    kind: EditedKind
    pods_run: bool
    """Whether a kubelet runs the pods. Otherwise they stay pending."""
    start: Step
    steps: tuple[Step, ...]

    @property
    def last(self) -> Step:
        """The last edit that the API server accepts."""
        return next((step for step in reversed(self.steps) if step.outcome is not Outcome.REJECTED), self.start)

    @property
    def edits(self) -> str:
        """A readable list of the edits."""
        edits = "".join(f"\n  {number}. {step}" for number, step in enumerate((self.start, *self.steps)))
        return f"{self.kind.name}, pods {'run' if self.pods_run else 'stay pending'}:{edits}"

    def __str__(self) -> str:
        return f"{self.edits}\nlast spec: {self.kind.build_spec(self.last.draft)}"


@st.composite
def sequences(draw: Draw) -> EditSequence:
    """A sequence of a few edits. An edit that finishes the job is the last one."""
    kind = draw(st.sampled_from(KINDS))
    pods_run = draw(st.integers(0, 3)) == 0
    start = _draw_start(draw, kind)
    draft = valid_draft = start.draft
    error_kind: Outcome | None = None
    steps: list[Step] = []
    for _ in range(draw(st.integers(1, MAX_EDITS))):
        if finishes_immediately(draft):
            break
        if error_kind is None:
            step = _draw_edit(draw, kind, draft, pods_run=pods_run)
        else:
            step = _draw_edit_after_error(draw, kind, draft, valid_draft, error_kind=error_kind)
        steps.append(step)
        if step.outcome is Outcome.REJECTED:
            continue
        draft, error_kind = step.draft, _NEXT_ERROR.get(step.outcome, error_kind)
        valid_draft = draft if error_kind is None else valid_draft
    return EditSequence(kind, pods_run, start, tuple(steps))


def _draw_start(draw: Draw, kind: EditedKind) -> Step:
    names = [role.name for role in kind.roles if role.required or draw(st.booleans())]
    draft: Draft = {"roles": [kind.new_role(name) for name in names], "policy": {}, "more": {}}
    return Step(Outcome.VALID, EditResult(f"created with {', '.join(names)}"), draft, wait=draw(st.booleans()))


def _draw_edit(draw: Draw, kind: EditedKind, draft: Draft, *, pods_run: bool) -> Step:
    # Running pods keep their original template, so an invalid template has no effect.
    excluded = [Outcome.POD_REJECTED] if pods_run else []
    choices = {outcome: edits(kind) for outcome, edits in _EDITS.items() if outcome not in excluded}
    outcome = draw(st.sampled_from([outcome for outcome, edits in choices.items() if edits for _ in range(_WEIGHTS[outcome])]))
    return _step(draw, kind, draft, outcome=outcome, edits=choices[outcome])


def _draw_edit_after_error(draw: Draw, kind: EditedKind, draft: Draft, valid_draft: Draft, *, error_kind: Outcome) -> Step:
    """Most often repairs the spec. Otherwise replaces the error by another one, or edits another part of the spec."""
    match draw(st.integers(0, 4)):
        case 0:
            return _step(draw, kind, draft, outcome=Outcome.VALID, edits=unrelated_edits(kind))
        case 1:
            return _step(draw, kind, valid_draft, outcome=error_kind, edits=_EDITS[error_kind](kind))
        case _:
            return _step(draw, kind, valid_draft, outcome=Outcome.REPAIRED, edits=[edit_image])


def _step(draw: Draw, kind: EditedKind, draft: Draft, *, outcome: Outcome, edits: Sequence[Edit]) -> Step:
    draft = copy.deepcopy(draft)
    result = draw(st.sampled_from(edits))(EditContext(draw, kind, draft))
    return Step(outcome, result, draft, wait=draw(st.booleans()))


def draw_sequences(number: int) -> list[EditSequence]:
    """This number of different sequences. They are drawn first, so that they can run concurrently."""
    drawn: dict[str, EditSequence] = {}

    @settings(
        max_examples=int(_EXAMPLES_PER_SEQUENCE * number),
        phases=[Phase.generate],
        database=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(sequences())
    def draw_one(sequence: EditSequence) -> None:
        if len(drawn) < number:
            drawn.setdefault(sequence.edits, sequence)

    draw_one()
    return list(drawn.values())
