"""What is to happen to the pods of a test, told before they exist.

    script = Script()
    script.when("*-worker-0", times=1).run().after(30).fail(exit_code=137)
    script.when("*-worker-*").run().after(60).succeed()

The first rule that fits a pod and is not used up decides. Pods that no rule fits run, and go on running.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Self

from dlop.testing.pod_steps import (
    CannotStart,
    Evict,
    Exit,
    LoseNode,
    Pause,
    Preempt,
    RestartInPlace,
    RunFor,
    Step,
    Unschedulable,
    UntilTold,
)


class PodScript:
    """The steps of a pod's life, one second after another unless something else is said."""

    def __init__(self) -> None:
        self.steps: list[Step] = []

    def run(self) -> Self:
        """It gets a node, and its containers run."""
        return self.then(RunFor())

    def succeed(self) -> Self:
        """Its first container ends with exit code 0."""
        return self.then(Exit(0))

    def fail(self, exit_code: int = 1, *, reason: str = "", message: str = "") -> Self:
        """Its first container ends with an error. With a restart policy other than Never it is restarted in place."""
        return self.then(Exit(exit_code, reason=reason, message=message))

    def restart_in_place(self, times: int = 1, *, exit_code: int = 1) -> Self:
        """Its first container ends and runs again, so many times."""
        return self.then(RestartInPlace(times, exit_code))

    def evict(self) -> Self:
        """Its node ends it for want of memory."""
        return self.then(Evict())

    def preempt(self) -> Self:
        """The scheduler takes its place away."""
        return self.then(Preempt())

    def image_pull_error(self) -> Self:
        """Its image cannot be pulled."""
        return self.then(CannotStart("ImagePullBackOff", 'Back-off pulling image "scripted"'))

    def config_error(self) -> Self:
        """Something that it refers to does not exist."""
        return self.then(CannotStart("CreateContainerConfigError", 'configmap "scripted" not found'))

    def unschedulable(self) -> Self:
        """No node has room for it."""
        return self.then(Unschedulable())

    def lose_node(self, *, deleted_after_seconds: float = 300.0) -> Self:
        """Its node falls silent; later it is deleted, and never confirmed to be gone."""
        return self.then(LoseNode(deleted_after_seconds))

    def after(self, seconds: float) -> Self:
        """Let time pass before the next step."""
        return self.then(Pause(seconds))

    def until_told(self) -> Self:
        """Wait for `Kubelet.tell`."""
        return self.then(UntilTold())

    def then(self, step: Step) -> Self:
        """Any other step."""
        self.steps.append(step)
        return self


@dataclass(slots=True)
class _Rule:
    pattern: str
    times: int | None
    course: PodScript = field(default_factory=PodScript)
    used: Counter[str] = field(default_factory=Counter)

    def fits(self, namespace: str, name: str) -> bool:
        """Whether the pod is meant, and has not been often enough."""
        meant = fnmatchcase(f"{namespace}/{name}" if "/" in self.pattern else name, self.pattern)
        return meant and (self.times is None or self.used[f"{namespace}/{name}"] < self.times)


class Script:
    """Rules from pod names to what happens to those pods."""

    def __init__(self) -> None:
        self._rules: list[_Rule] = []

    def when(self, pattern: str = "*", *, times: int | None = None) -> PodScript:
        """What happens to pods of such a name (`*-worker-*`, `default/ring-*`).

        With `times` the rule is for the first so many pods of each name: the next one of that name is a replacement.
        """
        rule = _Rule(pattern, times)
        self._rules.append(rule)
        return rule.course

    def steps_of(self, namespace: str, name: str) -> tuple[Step, ...]:
        """What happens to a pod that has just appeared."""
        for rule in self._rules:
            if rule.fits(namespace, name):
                rule.used[f"{namespace}/{name}"] += 1
                return tuple(rule.course.steps)
        return (RunFor(),)
