"""Cases: startup, liveness and readiness probes, by command, connection and request; the hook after a start."""

from __future__ import annotations

import re
from typing import Any

from dlop.kube.types import JsonObject
from tests.embedded.kubelet_cases import PYTHON, RUNNING, Case, Hears, Says, Sees, Speaks, condition, ended, failed, main, pod, sh

_READY = condition("Ready", "True")
_UNREADY = condition("Ready", "False", reason="ContainersNotReady")


def _keeping(script: str, **fields: Any) -> JsonObject:
    """A pod of one script that has a folder of its own."""
    spec = {name: fields.pop(name) for name in ("restartPolicy", "terminationGracePeriodSeconds") if name in fields}
    mounted = sh(script, volumeMounts=[{"name": "state", "mountPath": "/state"}], **fields)
    return pod(mounted, volumes=[{"name": "state", "emptyDir": {}}], **spec)


def _probe(*command: str, **numbers: Any) -> JsonObject:
    return {"exec": {"command": list(command)}, "periodSeconds": 1, **numbers}


def _listening(answer: str) -> str:
    """A script that does as it is told when it gets its signal, and says when it is ready for it."""
    return f"trap '{answer}' TERM; touch /state/up; while :; do sleep 0.05; done"


# Tells of a file, and leaves word that it has looked, or that it has found it.
_LOOKS = ("sh", "-c", "test -e /state/there; found=$?; touch /state/looked; exit $found")
_FINDS = ("sh", "-c", "test -e /state/there && touch /state/looked")
_ONCE_LOOKED = "until [ -e /state/looked ]; do sleep 0.05; done"

# Fails, but not before the container is ready for what comes of that.
_FAILS = ("sh", "-c", "until [ -e /state/up ]; do sleep 0.05; done; echo sick; exit 1")


def _failing(**numbers: Any) -> JsonObject:
    return _probe(*_FAILS, timeoutSeconds=20, failureThreshold=1, **numbers)


def _server(port: int, code: int = 200) -> str:
    """A program that answers every request with a code."""
    return (
        "import http.server as h\n"
        "class A(h.BaseHTTPRequestHandler):\n"
        f"    def do_GET(self): self.send_response({code} if self.headers.get('X-Want') in (None, 'it') else 500); self.end_headers()\n"
        "    def log_message(self, *_): pass\n"
        f"h.HTTPServer(('0.0.0.0', {port}), A).serve_forever()\n"
    )


def _serving(port: int, code: int = 200, **fields: Any) -> JsonObject:
    return {"name": "main", "image": "shell", "command": [PYTHON, "-I", "-S", "-c", _server(port, code)], **fields}


CASES = (
    Case(
        "a container is ready once its readiness probe succeeds, and not before",
        _keeping(f"{_ONCE_LOOKED}; touch /state/there; sleep 60", readinessProbe=_probe(*_LOOKS)),
        (
            Sees({"phase": "Running", "conditions": [_UNREADY], **main(state=RUNNING, ready=False, started=True)}),
            Sees({"phase": "Running", "conditions": [_READY], **main(ready=True)}),
            Hears({"reason": "Unhealthy", "type": "Warning", "message": re.compile("^Readiness probe failed: ")}),
        ),
    ),
    Case(
        "a container whose readiness probe fails is not ready any more, and is not restarted",
        _keeping(
            f"touch /state/there; {_ONCE_LOOKED}; rm /state/there; sleep 60",
            readinessProbe=_probe(*_FINDS, failureThreshold=1),
            restartPolicy="Always",
        ),
        (
            Sees({"conditions": [_READY]}),
            Sees({"phase": "Running", "conditions": [_UNREADY], **main(ready=False, restartCount=0, state=RUNNING)}),
        ),
    ),
    Case(
        "a container whose liveness probe fails is stopped and restarted",
        _keeping(_listening("exit 0"), livenessProbe=_failing(), restartPolicy="Always"),
        (
            Sees(main(restartCount=1, lastState=ended(0, "Completed"))),
            Hears({"reason": "Unhealthy", "type": "Warning", "message": "Liveness probe failed: sick\n"}),
            Hears({"reason": "Killing", "message": "Container main failed liveness probe, will be restarted"}),
        ),
    ),
    Case(
        "a pod that never restarts has failed when its liveness probe does",
        _keeping(_listening("exit 4"), livenessProbe=_failing()),
        (failed(**main(state=ended(4, "Error"), restartCount=0)),),
    ),
    Case(
        "a probe may have a grace period of its own",
        _keeping(_listening(""), livenessProbe=_failing(terminationGracePeriodSeconds=1), terminationGracePeriodSeconds=600),
        (failed(**main(state=ended(137, "Error"))),),
    ),
    Case(
        "failures below the threshold change nothing",
        _keeping(
            # It lives on: a probe that is under way when its container ends is killed with it, and has failed once more.
            "trap 'exit 3' TERM; [ -e /state/probes ] && echo again; touch /state/probes;"
            " while [ $(wc -l < /state/probes) -lt 3 ]; do sleep 0.05; done; echo ready; while :; do sleep 0.05; done",
            livenessProbe=_probe(
                "sh", "-c", "echo x >> /state/probes; [ $(wc -l < /state/probes) -gt 1 ]", timeoutSeconds=20, failureThreshold=2
            ),
            restartPolicy="OnFailure",
        ),
        (Sees(main(state=RUNNING)), Speaks(), Hears({"reason": "Unhealthy", "count": 1}), Says("ready\n")),
    ),
    Case(
        "a readiness probe may have to succeed more than once",
        pod(sh("sleep 60", readinessProbe=_probe("true", successThreshold=2))),
        (Sees({"conditions": [_UNREADY], **main(started=True)}), Sees({"conditions": [_READY]})),
    ),
    Case(
        "until its startup probe has succeeded a container has not started, and is probed for nothing else",
        _keeping(
            f"{_ONCE_LOOKED}; touch /state/there; sleep 60",
            startupProbe=_probe(*_LOOKS, failureThreshold=30),
            livenessProbe=_probe("test", "-e", "/state/there", failureThreshold=1),
            readinessProbe=_probe("test", "-e", "/state/there"),
        ),
        (
            Sees({"phase": "Running", "conditions": [_UNREADY], **main(state=RUNNING, started=False, ready=False)}),
            Sees({"phase": "Running", "conditions": [_READY], **main(started=True, ready=True, restartCount=0)}),
        ),
    ),
    Case(
        "a container whose startup probe fails is restarted",
        _keeping(_listening("exit 6"), startupProbe=_failing(), restartPolicy="OnFailure"),
        (
            Hears({"reason": "Killing", "message": "Container main failed startup probe, will be restarted"}),
            Sees({"phase": "Running", **main(restartCount=1, lastState=ended(6, "Error"))}),
        ),
    ),
    Case(
        "a probe that takes too long has failed",
        pod(sh("sleep 60", readinessProbe=_probe("sleep", "5", timeoutSeconds=1))),
        (Hears({"reason": "Unhealthy", "message": 'Readiness probe failed: command timed out: "sleep 5" timed out after 1s'}),),
    ),
    Case(
        "a container that answers requests is ready",
        pod(_serving(18081, readinessProbe={"httpGet": {"port": 18081, "path": "/healthz"}, "periodSeconds": 1})),
        (Sees({"conditions": [_READY]}),),
    ),
    Case(
        "a port may be named, and a request may have headers",
        pod(
            _serving(
                18082,
                ports=[{"name": "web", "containerPort": 18082}],
                readinessProbe={"httpGet": {"port": "web", "httpHeaders": [{"name": "X-Want", "value": "it"}]}, "periodSeconds": 1},
            )
        ),
        (Sees({"conditions": [_READY]}),),
    ),
    Case(
        "an answer of 400 and more is a failure",
        pod(_serving(18083, 503, readinessProbe={"httpGet": {"port": 18083}, "periodSeconds": 1})),
        (
            Hears({"reason": "Unhealthy", "message": "Readiness probe failed: HTTP probe failed with statuscode: 503"}),
            Sees({"conditions": [_UNREADY]}),
        ),
    ),
    Case(
        "an answer of less than 400 is a success",
        pod(_serving(18084, 302, readinessProbe={"httpGet": {"port": 18084}, "periodSeconds": 1})),
        (Sees({"conditions": [_READY]}),),
    ),
    Case(
        "a request that nobody answers is a failure",
        pod(sh("sleep 60", readinessProbe={"httpGet": {"port": 18085}, "periodSeconds": 1})),
        (
            Hears(
                {
                    "reason": "Unhealthy",
                    "message": re.compile(
                        '^Readiness probe failed: Get "http://.*:18085/": dial tcp .*:18085: connect: connection refused$'
                    ),
                }
            ),
        ),
    ),
    Case(
        "a container that takes connections is ready",
        pod(_serving(18086, readinessProbe={"tcpSocket": {"port": 18086}, "periodSeconds": 1})),
        (Sees({"conditions": [_READY]}),),
    ),
    Case(
        "a container that takes no connections is not ready",
        pod(sh("sleep 60", readinessProbe={"tcpSocket": {"port": 18087}, "periodSeconds": 1})),
        (
            Hears(
                {"reason": "Unhealthy", "message": re.compile("^Readiness probe failed: dial tcp .*:18087: connect: connection refused$")}
            ),
            Sees({"conditions": [_UNREADY]}),
        ),
    ),
    Case(
        "a probe waits for its initial delay",
        pod(sh("sleep 60", readinessProbe=_probe("true", initialDelaySeconds=1))),
        (Sees({"conditions": [_UNREADY], **main(state=RUNNING)}), Sees({"conditions": [_READY]})),
    ),
    Case(
        "a container runs only after its postStart hook",
        _keeping(
            "sleep 60",
            lifecycle={"postStart": {"exec": {"command": ["sh", "-c", "sleep 0.2; touch /state/hooked"]}}},
            readinessProbe=_probe("test", "-e", "/state/hooked", failureThreshold=1),
        ),
        (Sees({"phase": "Pending"}), Sees({"phase": "Running", "conditions": [_READY]})),
    ),
    Case(
        "a container whose postStart hook fails is killed, and restarted by the pod's policy",
        _keeping(_listening("exit 1"), lifecycle={"postStart": {"exec": {"command": list(_FAILS)}}}, restartPolicy="Always"),
        (
            Hears({"reason": "FailedPostStartHook", "type": "Warning", "message": "PostStartHook failed"}),
            Sees(main(restartCount=1, lastState=ended(1, "Error"))),
        ),
    ),
)
