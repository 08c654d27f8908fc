"""Whether a container that has ended is started again, and when. Pure.

The first restart is immediate. Then the wait doubles from ten seconds up to five minutes, counted from the end of the
last run, and is forgotten once a container has run for ten minutes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from dlop.kube.types import JsonObject


class Role(Enum):
    """What a container is to its pod."""

    INIT = "init"
    """Runs to its end before the next one starts."""
    SIDECAR = "sidecar"
    """An init container that stays: started in its turn, stopped after all others."""
    MAIN = "main"


def role_of(container: JsonObject, *, is_init: bool) -> Role:
    """The role of a container of the pod's spec."""
    if not is_init:
        return Role.MAIN
    return Role.SIDECAR if container.get("restartPolicy") == "Always" else Role.INIT


def is_restarted(pod: JsonObject, container: JsonObject, *, role: Role, exit_code: int) -> bool:
    """Whether a container is started again after this exit code: by its own rules, its own policy, or its pod's."""
    if role is Role.SIDECAR:
        return True
    for rule in container.get("restartPolicyRules") or ():
        if rule.get("action") == "Restart" and _matches(rule.get("exitCodes") or {}, exit_code):
            return True
    policy = container.get("restartPolicy") or pod["spec"].get("restartPolicy") or "Always"
    if role is Role.INIT and exit_code == 0:
        return False
    return bool(policy == "Always" or (policy == "OnFailure" and exit_code != 0))


def _matches(codes: JsonObject, exit_code: int) -> bool:
    listed = exit_code in (codes.get("values") or ())
    return listed if codes.get("operator") == "In" else not listed


@dataclass(frozen=True, slots=True)
class RestartPace:
    """How long restarts wait."""

    first_seconds: float = 10.0
    longest_seconds: float = 300.0
    forgotten_seconds: float = 600.0
    """After so long without a restart, the next one is a first one."""


class CrashLoop:
    """The waits of one container."""

    def __init__(self, pace: RestartPace) -> None:
        self._pace = pace
        self._wait_seconds = 0.0
        self._last_restart: float | None = None

    @property
    def wait_seconds(self) -> float:
        """The wait that applies now."""
        return self._wait_seconds

    def restart_at(self, *, ended_at: float) -> float:
        """When a container that ended at this moment is started again."""
        if self._last_restart is None or ended_at - self._last_restart > self._pace.forgotten_seconds:
            self._wait_seconds = 0.0
        return ended_at + self._wait_seconds

    def restarted(self, *, now: float) -> None:
        """Note that it was, so that the next wait is longer."""
        doubled = self._wait_seconds * 2 if self._wait_seconds else self._pace.first_seconds
        self._wait_seconds = min(doubled, self._pace.longest_seconds)
        self._last_restart = now


def duration_text(seconds: float) -> str:
    """A duration as Go writes it: `10s`, `2m40s`."""
    if seconds < 1:
        return f"{seconds * 1000:g}ms"
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(int(minutes), 60)
    text = f"{rest:g}s"
    if hours:
        return f"{hours}h{minutes}m{text}"
    return f"{minutes}m{text}" if minutes else text
