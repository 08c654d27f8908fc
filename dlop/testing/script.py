"""Scripts for the pods of a test, defined before the pods exist.

    script = Script()
    script.when("*-worker-0", times=1).run().after(30).fail(exit_code=137)
    script.when("*-worker-*").run().after(60).succeed()

The first matching rule that is not used up applies. Pods without a matching rule run indefinitely.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Self

from dlop.testing.pod_steps import (
    BecomeReady,
    ContainerExit,
    Evict,
    FailInitContainer,
    FailToStart,
    LoseNode,
    Pause,
    Preempt,
    RestartInPlace,
    RunContainers,
    Step,
    Unschedulable,
    UntilReleased,
)


class PodScript:
    """The steps of a pod, one second apart."""

    def __init__(self) -> None:
        self.steps: list[Step] = []

    def run(self, *, ready: bool = True) -> Self:
        """Schedule the pod and start its containers. They are ready at once unless `ready` is False."""
        return self.then(RunContainers(ready))

    def become_ready(self) -> Self:
        """Let the readiness probes of the running containers succeed."""
        return self.then(BecomeReady())

    def succeed(self) -> Self:
        """Terminate the first container with exit code 0."""
        return self.then(ContainerExit(0))

    def fail(self, exit_code: int = 1, *, reason: str = "", message: str = "") -> Self:
        """Terminate the first container with an error. It is restarted in place unless the restart policy is Never."""
        return self.then(ContainerExit(exit_code, reason=reason, message=message))

    def restart_in_place(self, times: int = 1, *, exit_code: int = 1) -> Self:
        """Restart the first container this many times."""
        return self.then(RestartInPlace(times, exit_code))

    def evict(self) -> Self:
        """Evict the pod because of memory pressure."""
        return self.then(Evict())

    def preempt(self) -> Self:
        """Preempt the pod."""
        return self.then(Preempt())

    def image_pull_error(self) -> Self:
        """Fail to pull the image."""
        return self.then(FailToStart("ImagePullBackOff", 'Back-off pulling image "scripted"'))

    def config_error(self) -> Self:
        """Fail because of a missing ConfigMap."""
        return self.then(FailToStart("CreateContainerConfigError", 'configmap "scripted" not found'))

    def fail_init(self, container: str, exit_code: int = 1, *, message: str = "") -> Self:
        """Schedule the pod and fail one of its init containers."""
        return self.then(FailInitContainer(container, exit_code, message))

    def unschedulable(self) -> Self:
        """Find no node for the pod."""
        return self.then(Unschedulable())

    def lose_node(self, *, deleted_after_seconds: float = 300.0) -> Self:
        """Lose the node of the pod. The pod is deleted later and never confirmed as terminated."""
        return self.then(LoseNode(deleted_after_seconds))

    def after(self, seconds: float) -> Self:
        """Wait before the next step."""
        return self.then(Pause(seconds))

    def until_released(self) -> Self:
        """Wait for `ScriptedKubelet.release`."""
        return self.then(UntilReleased())

    def then(self, step: Step) -> Self:
        """Add any other step."""
        self.steps.append(step)
        return self


@dataclass(slots=True)
class _Rule:
    pattern: str
    times: int | None
    script: PodScript = field(default_factory=PodScript)
    used: Counter[str] = field(default_factory=Counter)

    def matches(self, namespace: str, name: str) -> bool:
        has_name = fnmatchcase(f"{namespace}/{name}" if "/" in self.pattern else name, self.pattern)
        return has_name and (self.times is None or self.used[f"{namespace}/{name}"] < self.times)


class Script:
    """Rules that map pod names to scripts."""

    def __init__(self) -> None:
        self._rules: list[_Rule] = []

    def when(self, pattern: str = "*", *, times: int | None = None) -> PodScript:
        """Add a rule for pods whose name matches (`*-worker-*`, `default/ring-*`).

        With `times`, the rule applies to the first pods of each name; the next pod of that name is a replacement.
        """
        rule = _Rule(pattern, times)
        self._rules.append(rule)
        return rule.script

    def steps_of(self, namespace: str, name: str) -> tuple[Step, ...]:
        """The steps of a new pod. Uses up one application of its rule."""
        for rule in self._rules:
            if rule.matches(namespace, name):
                rule.used[f"{namespace}/{name}"] += 1
                return tuple(rule.script.steps)
        return (RunContainers(),)
