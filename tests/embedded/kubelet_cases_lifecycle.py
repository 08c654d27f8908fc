"""Cases: phases, conditions, exit codes, termination messages, restarts, back-off."""

from __future__ import annotations

import re

from tests.embedded.kubelet_cases import (
    PYTHON,
    RUNNING,
    Case,
    ExpectEvent,
    ExpectStatus,
    condition,
    failed,
    main,
    pod,
    sh,
    succeeded,
    terminated,
    waiting,
)
from tests.embedded.node_env import ABSENT

PHASES = (
    Case(
        "a pod whose only container exits with 0 has succeeded",
        pod(sh("exit 0")),
        (succeeded(**main(state=terminated(0, "Completed"), restartCount=0, ready=False, started=False)),),
    ),
    Case(
        "a pod whose only container exits with another code has failed",
        pod(sh("exit 3")),
        (failed(**main(state=terminated(3, "Error"), restartCount=0)),),
    ),
    Case(
        "a pod is pending before its containers are created",
        pod(sh("exit 0")),
        (ExpectStatus({"phase": "Pending", **main(state=waiting("ContainerCreating"), ready=False)}), succeeded()),
    ),
    Case(
        "a running pod has an address, a start time, a host and container IDs",
        pod(sh("sleep 60")),
        (
            ExpectStatus(
                {
                    "phase": "Running",
                    "podIP": re.compile(r"^\d+\.\d+\.\d+\.\d+$"),
                    "podIPs": [{"ip": re.compile(r"^\d+\.")}],
                    "hostIP": re.compile(r"^\d+\."),
                    "hostIPs": [{"ip": re.compile(r"^\d+\.")}],
                    "startTime": re.compile("Z$"),
                    "observedGeneration": 1,
                    **main(
                        state=RUNNING,
                        ready=True,
                        started=True,
                        restartCount=0,
                        image="shell",
                        imageID=re.compile("."),
                        containerID=re.compile("^dlop://[0-9a-f]{64}$"),
                        lastState=ABSENT,
                    ),
                }
            ),
        ),
    ),
    Case(
        "all five conditions of a running pod are true",
        pod(sh("sleep 60")),
        (
            ExpectStatus(
                {
                    "conditions": [
                        condition("PodScheduled", "True"),
                        condition("PodReadyToStartContainers", "True"),
                        condition("Initialized", "True", reason=ABSENT),
                        condition("ContainersReady", "True", reason=ABSENT, lastTransitionTime=re.compile("Z$")),
                        condition("Ready", "True", reason=ABSENT, message=ABSENT, observedGeneration=1),
                    ]
                }
            ),
        ),
    ),
    Case(
        "a pod that succeeded is initialized and not ready with reason PodCompleted",
        pod(sh("exit 0")),
        (
            succeeded(
                conditions=[
                    condition("Initialized", "True", reason="PodCompleted"),
                    condition("Ready", "False", reason="PodCompleted", message=ABSENT),
                    condition("ContainersReady", "False", reason="PodCompleted"),
                    condition("PodReadyToStartContainers", "False"),
                    condition("PodScheduled", "True"),
                ]
            ),
        ),
    ),
    Case(
        "a pod that failed is not ready with reason PodFailed",
        pod(sh("exit 1")),
        (failed(conditions=[condition("Ready", "False", reason="PodFailed"), condition("ContainersReady", "False", reason="PodFailed")]),),
    ),
    Case(
        "a pod runs as long as one of its containers does",
        pod(sh("exit 1"), sh("sleep 60", name="other")),
        (
            ExpectStatus(
                {
                    "phase": "Running",
                    "containerStatuses": [
                        {"name": "main", "state": terminated(1, "Error"), "ready": False},
                        {"name": "other", "state": RUNNING, "ready": True},
                    ],
                    "conditions": [
                        condition("Ready", "False", reason="ContainersNotReady", message="containers with unready status: [main]")
                    ],
                }
            ),
        ),
    ),
    Case(
        "a pod has failed when all containers have exited and one of them failed",
        pod(sh("exit 2"), sh("exit 0", name="other")),
        (
            failed(
                containerStatuses=[
                    {"name": "main", "state": terminated(2, "Error")},
                    {"name": "other", "state": terminated(0, "Completed")},
                ]
            ),
        ),
    ),
    Case(
        "a pod without requests is best effort, and one with requests is burstable",
        pod(sh("exit 0", resources={"requests": {"cpu": "10m"}})),
        (succeeded(qosClass="Burstable"),),
    ),
    Case(
        "a readiness gate keeps a pod from being ready",
        pod(sh("sleep 60"), readinessGates=[{"conditionType": "example.org/open"}]),
        (
            ExpectStatus(
                {
                    "conditions": [
                        condition("ContainersReady", "True"),
                        condition(
                            "Ready",
                            "False",
                            reason="ReadinessGatesNotReady",
                            message='corresponding condition of pod readiness gate "example.org/open" does not exist.',
                        ),
                    ]
                }
            ),
        ),
    ),
)

EXITS = (
    Case("the exit code is in the status", pod(sh("exit 42")), (failed(**main(state=terminated(42, "Error"))),)),
    Case(
        "a termination by signal n has exit code 128 + n",
        pod({"name": "main", "image": "shell", "command": [PYTHON, "-I", "-S", "-c", "import ctypes; ctypes.string_at(0)"]}),
        (failed(**main(state=terminated(139, "Error", signal=ABSENT))),),
    ),
    Case(
        "a termination has a start and a finish time",
        pod(sh("exit 0")),
        (
            succeeded(
                **main(
                    state=terminated(
                        0, "Completed", startedAt=re.compile("Z$"), finishedAt=re.compile("Z$"), containerID=re.compile("^dlop://")
                    )
                )
            ),
        ),
    ),
    Case(
        "a missing program is a start error",
        pod({"name": "main", "image": "shell", "command": ["/no/such/program"]}),
        (
            failed(**main(state=terminated(128, "StartError", message=re.compile("/no/such/program"), startedAt="1970-01-01T00:00:00Z"))),
            ExpectEvent({"reason": "Failed", "type": "Warning", "message": re.compile("^Error: .*no/such/program")}),
        ),
    ),
    Case(
        "a start error is retried if the pod restarts",
        pod({"name": "main", "image": "shell", "command": ["/no/such/program"]}, restartPolicy="Always"),
        (
            ExpectStatus({"phase": "Running", **main(state=waiting("CrashLoopBackOff"), lastState=terminated(128, "StartError"))}),
            ExpectStatus(main(restartCount=2)),
        ),
    ),
    Case(
        "a termination message is read from its file",
        pod(sh("printf 'all is lost' > /dev/termination-log; exit 1")),
        (failed(**main(state=terminated(1, "Error", message="all is lost"))),),
    ),
    Case(
        "terminationMessagePath sets the path of the message",
        pod(sh("printf why > /tmp/why; exit 0", terminationMessagePath="/tmp/why")),
        (succeeded(**main(state=terminated(0, "Completed", message="why"))),),
    ),
    Case(
        "the output is not the termination message by default",
        pod(sh("echo much; exit 1")),
        (failed(**main(state=terminated(1, "Error", message=ABSENT))),),
    ),
    Case(
        "FallbackToLogsOnError uses the end of the output of a failure",
        pod(sh("echo one; echo two >&2; exit 1", terminationMessagePolicy="FallbackToLogsOnError")),
        (failed(**main(state=terminated(1, "Error", message=re.compile("two\n")))),),
    ),
    Case(
        "FallbackToLogsOnError does not apply to a success",
        pod(sh("echo one; exit 0", terminationMessagePolicy="FallbackToLogsOnError")),
        (succeeded(**main(state=terminated(0, "Completed", message=ABSENT))),),
    ),
    Case(
        "a long termination message is truncated to its last 4096 bytes",
        pod(sh("head -c 5000 /dev/zero | tr '\\0' x > /dev/termination-log; printf END >> /dev/termination-log")),
        (succeeded(**main(state=terminated(0, "Completed", message=re.compile("^x{4093}END$")))),),
    ),
)

RESTARTS = (
    Case(
        "a failed container is restarted with restartPolicy OnFailure and counted",
        pod(
            sh("[ -e /state/again ] && exit 0; touch /state/again; exit 5", volumeMounts=[{"name": "state", "mountPath": "/state"}]),
            restartPolicy="OnFailure",
            volumes=[{"name": "state", "emptyDir": {}}],
        ),
        (succeeded(**main(restartCount=1, state=terminated(0, "Completed"), lastState=terminated(5, "Error"))),),
    ),
    Case(
        "a container that succeeded is not restarted with restartPolicy OnFailure",
        pod(sh("exit 0"), restartPolicy="OnFailure"),
        (succeeded(**main(restartCount=0)),),
    ),
    Case(
        "a container that succeeded is restarted with restartPolicy Always",
        pod(sh("exit 0"), restartPolicy="Always"),
        (ExpectStatus({"phase": "Running", **main(restartCount=1, lastState=terminated(0, "Completed"))}),),
    ),
    Case(
        "a container that keeps failing is in CrashLoopBackOff",
        pod(sh("exit 1"), restartPolicy="Always"),
        (
            ExpectStatus(
                {
                    "phase": "Running",
                    **main(
                        restartCount=1,
                        state=waiting(
                            "CrashLoopBackOff",
                            message=re.compile(r"^back-off 200ms restarting failed container=main pod=.*_default\(.*\)$"),
                        ),
                        lastState=terminated(1, "Error"),
                        ready=False,
                        started=False,
                    ),
                }
            ),
            ExpectStatus(main(restartCount=2, state=waiting("CrashLoopBackOff", message=re.compile("^back-off 400ms ")))),
            ExpectStatus(main(restartCount=3, state=waiting("CrashLoopBackOff", message=re.compile("^back-off 800ms ")))),
            ExpectStatus(main(restartCount=4, state=waiting("CrashLoopBackOff", message=re.compile("^back-off 800ms ")))),
            ExpectEvent(
                {
                    "reason": "BackOff",
                    "type": "Warning",
                    "message": re.compile("^Back-off restarting failed container main in pod "),
                    "count": lambda count: count >= 2,
                }
            ),
        ),
    ),
    Case(
        "containers are restarted independently",
        pod(sh("exit 1"), sh("sleep 60", name="other"), restartPolicy="OnFailure"),
        (
            ExpectStatus(
                {
                    "phase": "Running",
                    "containerStatuses": [
                        {"name": "main", "restartCount": 2, "lastState": terminated(1, "Error")},
                        {"name": "other", "restartCount": 0, "state": RUNNING},
                    ],
                }
            ),
        ),
    ),
    Case(
        "a restart rule of the container overrides the restartPolicy of the pod",
        pod(
            sh(
                "[ -e /state/again ] && exit 1; touch /state/again; exit 42",
                volumeMounts=[{"name": "state", "mountPath": "/state"}],
                restartPolicy="Never",
                restartPolicyRules=[{"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}],
            ),
            volumes=[{"name": "state", "emptyDir": {}}],
        ),
        (failed(**main(restartCount=1, state=terminated(1, "Error"), lastState=terminated(42, "Error"))),),
    ),
    Case(
        "an emptyDir survives restarts of a container",
        pod(
            sh(
                "echo x >> /state/runs; [ $(wc -l < /state/runs) -ge 3 ] || exit 1", volumeMounts=[{"name": "state", "mountPath": "/state"}]
            ),
            restartPolicy="OnFailure",
            volumes=[{"name": "state", "emptyDir": {}}],
        ),
        (succeeded(**main(restartCount=2)),),
    ),
)

CASES = PHASES + EXITS + RESTARTS
