"""Whether and when an exited container is restarted. Pure.

The first restart is immediate. Then the delay doubles from ten seconds up to five minutes, counted from the exit of the last run. It
is reset once a container has run for ten minutes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from dlop.kube.types import JsonObject


class ContainerRole(Enum):
    INIT = "init"
    """Runs to completion before the next container starts."""
    SIDECAR = "sidecar"
    """An init container with restartPolicy Always. It starts in order and is stopped after the main containers."""
    MAIN = "main"


def container_role(container: JsonObject, *, is_init: bool) -> ContainerRole:
    if not is_init:
        return ContainerRole.MAIN
    return ContainerRole.SIDECAR if container.get("restartPolicy") == "Always" else ContainerRole.INIT


def should_restart(pod: JsonObject, container: JsonObject, *, role: ContainerRole, exit_code: int) -> bool:
    """Apply the container's restartPolicyRules, then its own restartPolicy, then that of the pod."""
    if role is ContainerRole.SIDECAR:
        return True
    for rule in container.get("restartPolicyRules") or ():
        if rule.get("action") == "Restart" and _matches(rule.get("exitCodes") or {}, exit_code):
            return True
    policy = container.get("restartPolicy") or pod["spec"].get("restartPolicy") or "Always"
    if role is ContainerRole.INIT and exit_code == 0:
        return False
    return bool(policy == "Always" or (policy == "OnFailure" and exit_code != 0))


def _matches(codes: JsonObject, exit_code: int) -> bool:
    is_listed = exit_code in (codes.get("values") or ())
    return is_listed if codes.get("operator") == "In" else not is_listed


@dataclass(frozen=True, slots=True)
class BackoffPolicy:
    first_seconds: float = 10.0
    max_seconds: float = 300.0
    reset_after_seconds: float = 600.0
    """After this time without a restart the delay is reset."""


class RestartBackoff:
    """Exponential back-off of one container."""

    def __init__(self, policy: BackoffPolicy) -> None:
        self._policy = policy
        self._delay_seconds = 0.0
        self._last_restart_at: float | None = None

    @property
    def delay_seconds(self) -> float:
        """The current delay."""
        return self._delay_seconds

    def restart_at(self, *, ended_at: float) -> float:
        """The time at which a container that exited at `ended_at` may restart."""
        if self._last_restart_at is None or ended_at - self._last_restart_at > self._policy.reset_after_seconds:
            self._delay_seconds = 0.0
        return ended_at + self._delay_seconds

    def record_restart(self, *, now: float) -> None:
        """Record a restart and increase the delay."""
        doubled = self._delay_seconds * 2 if self._delay_seconds else self._policy.first_seconds
        self._delay_seconds = min(doubled, self._policy.max_seconds)
        self._last_restart_at = now


def format_go_duration(seconds: float) -> str:
    """A duration as Go formats it: `10s`, `2m40s`."""
    if seconds < 1:
        return f"{seconds * 1000:g}ms"
    minutes, remaining = divmod(seconds, 60)
    hours, minutes = divmod(int(minutes), 60)
    seconds_part = f"{remaining:g}s"
    if hours:
        return f"{hours}h{minutes}m{seconds_part}"
    return f"{minutes}m{seconds_part}" if minutes else seconds_part
