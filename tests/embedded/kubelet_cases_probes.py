"""Cases: startup, liveness and readiness probes, and the postStart hook."""

from __future__ import annotations

import re
from typing import Any

from ports import ReservedPorts

from dlop.kube.types import JsonObject
from tests.embedded.kubelet_cases import (
    PYTHON,
    RUNNING,
    Case,
    ExpectEvent,
    ExpectOutput,
    ExpectStatus,
    WaitForOutput,
    condition,
    failed,
    main,
    pod,
    sh,
    terminated,
)

_READY = condition("Ready", "True")
_UNREADY = condition("Ready", "False", reason="ContainersNotReady")


def _pod_with_state(script: str, **fields: Any) -> JsonObject:
    """A pod with one script and a volume at /state."""
    spec = {name: fields.pop(name) for name in ("restartPolicy", "terminationGracePeriodSeconds") if name in fields}
    container = sh(script, volumeMounts=[{"name": "state", "mountPath": "/state"}], **fields)
    return pod(container, volumes=[{"name": "state", "emptyDir": {}}], **spec)


def _probe(*command: str, **numbers: Any) -> JsonObject:
    return {"exec": {"command": list(command)}, "periodSeconds": 1, **numbers}


def _on_sigterm(command: str) -> str:
    """A script that runs a command on SIGTERM, and creates /state/up when it is ready for the signal."""
    return f"trap '{command}' TERM; touch /state/up; while :; do sleep 0.05; done"


# Probe commands that check for a file, and record that they have looked, or that they have found it.
_CHECK_FILE = ("sh", "-c", "test -e /state/there; found=$?; touch /state/looked; exit $found")
_FIND_FILE = ("sh", "-c", "test -e /state/there && touch /state/looked")
_UNTIL_CHECKED = "until [ -e /state/looked ]; do sleep 0.05; done"

# A probe command that fails once the container is ready for the signal.
_FAIL = ("sh", "-c", "until [ -e /state/up ]; do sleep 0.05; done; echo sick; exit 1")


def _failing_probe(**numbers: Any) -> JsonObject:
    return _probe(*_FAIL, timeoutSeconds=20, failureThreshold=1, **numbers)


# Pods on the host network share the ports of this machine.
_PORTS = ReservedPorts()
_HTTP_PORT = _PORTS.reserve()
_NAMED_PORT = _PORTS.reserve()
_FAILING_HTTP_PORT = _PORTS.reserve()
_REDIRECT_PORT = _PORTS.reserve()
_CLOSED_HTTP_PORT = _PORTS.reserve()
_TCP_PORT = _PORTS.reserve()
_CLOSED_TCP_PORT = _PORTS.reserve()


def _server(port: int, code: int = 200) -> str:
    """A program that responds to every request with a status code."""
    return (
        "import http.server as h, socketserver as s\n"
        "class A(h.BaseHTTPRequestHandler):\n"
        f"    def do_GET(self): self.send_response({code} if self.headers.get('X-Want') in (None, 'it') else 500); self.end_headers()\n"
        "    def log_message(self, *_): pass\n"
        # HTTPServer is not used, because it resolves the host name before it listens, which may take long.
        "s.TCPServer.allow_reuse_address = True\n"
        f"s.TCPServer(('0.0.0.0', {port}), A).serve_forever()\n"
    )


def _http_container(port: int, code: int = 200, **fields: Any) -> JsonObject:
    return {"name": "main", "image": "shell", "command": [PYTHON, "-I", "-S", "-c", _server(port, code)], **fields}


CASES = (
    Case(
        "a container is ready once its readiness probe has succeeded",
        _pod_with_state(f"{_UNTIL_CHECKED}; touch /state/there; sleep 60", readinessProbe=_probe(*_CHECK_FILE)),
        (
            ExpectStatus({"phase": "Running", "conditions": [_UNREADY], **main(state=RUNNING, ready=False, started=True)}),
            ExpectStatus({"phase": "Running", "conditions": [_READY], **main(ready=True)}),
            ExpectEvent({"reason": "Unhealthy", "type": "Warning", "message": re.compile("^Readiness probe failed: ")}),
        ),
    ),
    Case(
        "a container whose readiness probe fails becomes unready and is not restarted",
        _pod_with_state(
            f"touch /state/there; {_UNTIL_CHECKED}; rm /state/there; sleep 60",
            readinessProbe=_probe(*_FIND_FILE, failureThreshold=1),
            restartPolicy="Always",
        ),
        (
            ExpectStatus({"conditions": [_READY]}),
            ExpectStatus({"phase": "Running", "conditions": [_UNREADY], **main(ready=False, restartCount=0, state=RUNNING)}),
        ),
    ),
    Case(
        "a container whose liveness probe fails is stopped and restarted",
        _pod_with_state(_on_sigterm("exit 0"), livenessProbe=_failing_probe(), restartPolicy="Always"),
        (
            ExpectStatus(main(restartCount=1, lastState=terminated(0, "Completed"))),
            ExpectEvent({"reason": "Unhealthy", "type": "Warning", "message": "Liveness probe failed: sick\n"}),
            ExpectEvent({"reason": "Killing", "message": "Container main failed liveness probe, will be restarted"}),
        ),
    ),
    Case(
        "a failed liveness probe fails a pod with restartPolicy Never",
        _pod_with_state(_on_sigterm("exit 4"), livenessProbe=_failing_probe()),
        (failed(**main(state=terminated(4, "Error"), restartCount=0)),),
    ),
    Case(
        "a probe may have its own grace period",
        _pod_with_state(_on_sigterm(""), livenessProbe=_failing_probe(terminationGracePeriodSeconds=1), terminationGracePeriodSeconds=600),
        (failed(**main(state=terminated(137, "Error"))),),
    ),
    Case(
        "failures below the threshold have no effect",
        _pod_with_state(
            # It keeps running, because a probe that is killed with its container would count as another failure.
            "trap 'exit 3' TERM; [ -e /state/probes ] && echo again; touch /state/probes;"
            " while [ $(wc -l < /state/probes) -lt 3 ]; do sleep 0.05; done; echo ready; while :; do sleep 0.05; done",
            livenessProbe=_probe(
                "sh", "-c", "echo x >> /state/probes; [ $(wc -l < /state/probes) -gt 1 ]", timeoutSeconds=20, failureThreshold=2
            ),
            restartPolicy="OnFailure",
        ),
        (ExpectStatus(main(state=RUNNING)), WaitForOutput(), ExpectEvent({"reason": "Unhealthy", "count": 1}), ExpectOutput("ready\n")),
    ),
    Case(
        "successThreshold of a readiness probe applies",
        pod(sh("sleep 60", readinessProbe=_probe("true", successThreshold=2))),
        (ExpectStatus({"conditions": [_UNREADY], **main(started=True)}), ExpectStatus({"conditions": [_READY]})),
    ),
    Case(
        "other probes start after the startup probe has succeeded",
        _pod_with_state(
            f"{_UNTIL_CHECKED}; touch /state/there; sleep 60",
            startupProbe=_probe(*_CHECK_FILE, failureThreshold=30),
            livenessProbe=_probe("test", "-e", "/state/there", failureThreshold=1),
            readinessProbe=_probe("test", "-e", "/state/there"),
        ),
        (
            ExpectStatus({"phase": "Running", "conditions": [_UNREADY], **main(state=RUNNING, started=False, ready=False)}),
            ExpectStatus({"phase": "Running", "conditions": [_READY], **main(started=True, ready=True, restartCount=0)}),
        ),
    ),
    Case(
        "a container whose startup probe fails is restarted",
        _pod_with_state(_on_sigterm("exit 6"), startupProbe=_failing_probe(), restartPolicy="OnFailure"),
        (
            ExpectEvent({"reason": "Killing", "message": "Container main failed startup probe, will be restarted"}),
            ExpectStatus({"phase": "Running", **main(restartCount=1, lastState=terminated(6, "Error"))}),
        ),
    ),
    Case(
        "a probe that times out has failed",
        pod(sh("sleep 60", readinessProbe=_probe("sleep", "5", timeoutSeconds=1))),
        (ExpectEvent({"reason": "Unhealthy", "message": 'Readiness probe failed: command timed out: "sleep 5" timed out after 1s'}),),
    ),
    Case(
        "an HTTP probe succeeds when the container responds",
        pod(_http_container(_HTTP_PORT, readinessProbe={"httpGet": {"port": _HTTP_PORT, "path": "/healthz"}, "periodSeconds": 1})),
        (ExpectStatus({"conditions": [_READY]}),),
    ),
    Case(
        "an HTTP probe may have a named port and headers",
        pod(
            _http_container(
                _NAMED_PORT,
                ports=[{"name": "web", "containerPort": _NAMED_PORT}],
                readinessProbe={"httpGet": {"port": "web", "httpHeaders": [{"name": "X-Want", "value": "it"}]}, "periodSeconds": 1},
            )
        ),
        (ExpectStatus({"conditions": [_READY]}),),
    ),
    Case(
        "an HTTP status of 400 or more is a failure",
        pod(_http_container(_FAILING_HTTP_PORT, 503, readinessProbe={"httpGet": {"port": _FAILING_HTTP_PORT}, "periodSeconds": 1})),
        (
            ExpectEvent({"reason": "Unhealthy", "message": "Readiness probe failed: HTTP probe failed with statuscode: 503"}),
            ExpectStatus({"conditions": [_UNREADY]}),
        ),
    ),
    Case(
        "an HTTP status below 400 is a success",
        pod(_http_container(_REDIRECT_PORT, 302, readinessProbe={"httpGet": {"port": _REDIRECT_PORT}, "periodSeconds": 1})),
        (ExpectStatus({"conditions": [_READY]}),),
    ),
    Case(
        "a refused HTTP request is a failure",
        pod(sh("sleep 60", readinessProbe={"httpGet": {"port": _CLOSED_HTTP_PORT}, "periodSeconds": 1})),
        (
            ExpectEvent(
                {
                    "reason": "Unhealthy",
                    "message": re.compile(
                        f'^Readiness probe failed: Get "http://.*:{_CLOSED_HTTP_PORT}/": '
                        f"dial tcp .*:{_CLOSED_HTTP_PORT}: connect: connection refused$"
                    ),
                }
            ),
        ),
    ),
    Case(
        "a TCP probe succeeds when the port is open",
        pod(_http_container(_TCP_PORT, readinessProbe={"tcpSocket": {"port": _TCP_PORT}, "periodSeconds": 1})),
        (ExpectStatus({"conditions": [_READY]}),),
    ),
    Case(
        "a TCP probe fails when the port is closed",
        pod(sh("sleep 60", readinessProbe={"tcpSocket": {"port": _CLOSED_TCP_PORT}, "periodSeconds": 1})),
        (
            ExpectEvent(
                {
                    "reason": "Unhealthy",
                    "message": re.compile(f"^Readiness probe failed: dial tcp .*:{_CLOSED_TCP_PORT}: connect: connection refused$"),
                }
            ),
            ExpectStatus({"conditions": [_UNREADY]}),
        ),
    ),
    Case(
        "a probe waits for its initial delay",
        pod(sh("sleep 60", readinessProbe=_probe("true", initialDelaySeconds=1))),
        (ExpectStatus({"conditions": [_UNREADY], **main(state=RUNNING)}), ExpectStatus({"conditions": [_READY]})),
    ),
    Case(
        "a container runs only after its postStart hook",
        _pod_with_state(
            "sleep 60",
            lifecycle={"postStart": {"exec": {"command": ["sh", "-c", "sleep 0.2; touch /state/hooked"]}}},
            readinessProbe=_probe("test", "-e", "/state/hooked", failureThreshold=1),
        ),
        (ExpectStatus({"phase": "Pending"}), ExpectStatus({"phase": "Running", "conditions": [_READY]})),
    ),
    Case(
        "a container whose postStart hook fails is killed and restarted by policy",
        _pod_with_state(_on_sigterm("exit 1"), lifecycle={"postStart": {"exec": {"command": list(_FAIL)}}}, restartPolicy="Always"),
        (
            ExpectEvent({"reason": "FailedPostStartHook", "type": "Warning", "message": "PostStartHook failed"}),
            ExpectStatus(main(restartCount=1, lastState=terminated(1, "Error"))),
        ),
    ),
)
