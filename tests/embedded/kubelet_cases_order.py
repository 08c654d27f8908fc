"""Cases: init containers, sidecars, deadlines, termination, scheduling."""

from __future__ import annotations

import re

from tests.embedded.kubelet_cases import (
    RUNNING,
    Case,
    DeletePod,
    ExpectDeleted,
    ExpectEvent,
    ExpectOutput,
    ExpectStatus,
    WaitForOutput,
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

_WAIT = "echo ready; while :; do sleep 0.05; done"
_TRAP = f"trap 'echo bye; exit 0' TERM; {_WAIT}"
_IGNORE_TERM = f"trap '' TERM; {_WAIT}"
_COPY_ORDER = "cp /state/order /dev/termination-log"

INIT = (
    Case(
        "init containers run in order before the main containers",
        pod(
            sh("echo main >> /state/order; cat /state/order", volumeMounts=[{"name": "state", "mountPath": "/state"}]),
            initContainers=[
                sh("sleep 0.1; echo first >> /state/order", name="first", volumeMounts=[{"name": "state", "mountPath": "/state"}]),
                sh("echo second >> /state/order", name="second", volumeMounts=[{"name": "state", "mountPath": "/state"}]),
            ],
            volumes=[{"name": "state", "emptyDir": {}}],
        ),
        (
            succeeded(
                initContainerStatuses=[
                    {"name": "first", "ready": True, "state": terminated(0, "Completed"), "started": False},
                    {"name": "second", "ready": True, "state": terminated(0, "Completed")},
                ]
            ),
            ExpectOutput("first\nsecond\nmain\n"),
        ),
    ),
    Case(
        "a pod is pending while its init containers run",
        pod(sh("exit 0"), initContainers=[sh("sleep 0.3", name="first"), sh("exit 0", name="second")]),
        (
            ExpectStatus(
                {
                    "phase": "Pending",
                    "initContainerStatuses": [
                        {"name": "first", "state": RUNNING, "ready": False},
                        {"name": "second", "state": waiting("PodInitializing")},
                    ],
                    "containerStatuses": [{"name": "main", "state": waiting("PodInitializing")}],
                    "conditions": [
                        condition(
                            "Initialized",
                            "False",
                            reason="ContainersNotInitialized",
                            message="containers with incomplete status: [first second]",
                        )
                    ],
                }
            ),
            ExpectStatus({"conditions": [condition("Initialized", "True")]}),
            succeeded(),
        ),
    ),
    Case(
        "a failed init container fails a pod with restartPolicy Never",
        pod(sh("exit 0"), initContainers=[sh("exit 7", name="first"), sh("exit 0", name="second")]),
        (
            failed(
                initContainerStatuses=[
                    {"name": "first", "state": terminated(7, "Error"), "ready": False},
                    {"name": "second", "state": waiting("PodInitializing")},
                ],
                containerStatuses=[{"name": "main", "state": waiting("PodInitializing"), "restartCount": 0}],
            ),
        ),
    ),
    Case(
        "a failed init container is restarted while the pod stays pending",
        pod(sh("exit 0"), initContainers=[sh("exit 7", name="first")], restartPolicy="Always"),
        (
            ExpectStatus(
                {
                    "phase": "Pending",
                    "initContainerStatuses": [
                        {"name": "first", "state": waiting("CrashLoopBackOff"), "restartCount": 1, "lastState": terminated(7, "Error")}
                    ],
                }
            ),
            ExpectStatus({"phase": "Pending", "initContainerStatuses": [{"name": "first", "restartCount": 2}]}),
        ),
    ),
    Case(
        "an init container that succeeded is not restarted with any restartPolicy",
        pod(sh("sleep 60"), initContainers=[sh("exit 0", name="first")], restartPolicy="Always"),
        (
            ExpectStatus(
                {
                    "phase": "Running",
                    "initContainerStatuses": [{"name": "first", "restartCount": 0, "state": terminated(0, "Completed"), "ready": True}],
                }
            ),
        ),
    ),
    Case(
        "a sidecar starts before the main containers and does not keep the pod running",
        pod(
            sh("cat /state/side", volumeMounts=[{"name": "state", "mountPath": "/state"}]),
            initContainers=[
                sh(
                    f"echo here > /state/side; {_TRAP}",
                    name="side",
                    restartPolicy="Always",
                    volumeMounts=[{"name": "state", "mountPath": "/state"}],
                    startupProbe={"exec": {"command": ["cat", "/state/side"]}, "periodSeconds": 1},
                ),
            ],
            volumes=[{"name": "state", "emptyDir": {}}],
        ),
        (
            succeeded(initContainerStatuses=[{"name": "side", "state": terminated(0, "Completed")}]),
            ExpectOutput("here\n"),
            ExpectOutput("ready\nbye\n", "side"),
        ),
    ),
    Case(
        "a sidecar that exits is restarted even with restartPolicy Never",
        pod(
            sh("sleep 60"),
            # It exits once. Otherwise it could restart again before the main container runs.
            initContainers=[
                sh(
                    "[ -e /state/restarted ] && exec sleep 60; touch /state/restarted",
                    name="side",
                    restartPolicy="Always",
                    volumeMounts=[{"name": "state", "mountPath": "/state"}],
                )
            ],
            volumes=[{"name": "state", "emptyDir": {}}],
        ),
        (
            ExpectStatus(
                {
                    "phase": "Running",
                    "initContainerStatuses": [{"name": "side", "restartCount": 1, "lastState": terminated(0, "Completed")}],
                }
            ),
        ),
    ),
)

TERMINATION = (
    Case(
        "a deleted pod gets SIGTERM, and its final status is written before the deletion",
        pod(sh(_TRAP), terminationGracePeriodSeconds=30),
        (
            ExpectStatus(main(state=RUNNING)),
            WaitForOutput(),
            DeletePod(),
            ExpectDeleted({"phase": "Succeeded", **main(state=terminated(0, "Completed"))}),
            ExpectEvent({"reason": "Killing", "type": "Normal", "message": "Stopping container main"}),
        ),
    ),
    Case(
        "a pod that ignores SIGTERM is killed after its grace period",
        pod(sh(_IGNORE_TERM), terminationGracePeriodSeconds=1),
        (
            ExpectStatus(main(state=RUNNING)),
            WaitForOutput(),
            DeletePod(),
            ExpectDeleted({"phase": "Failed", **main(state=terminated(137, "Error"))}),
        ),
    ),
    Case(
        "a deletion may shorten the grace period of the pod",
        pod(sh(_IGNORE_TERM), terminationGracePeriodSeconds=600),
        (
            ExpectStatus(main(state=RUNNING)),
            WaitForOutput(),
            DeletePod(1),
            ExpectDeleted({"phase": "Failed", **main(state=terminated(137, "Error"))}),
        ),
    ),
    Case(
        "a second deletion may shorten the grace period",
        pod(sh(_IGNORE_TERM), terminationGracePeriodSeconds=600),
        (
            ExpectStatus(main(state=RUNNING)),
            WaitForOutput(),
            DeletePod(),
            DeletePod(1),
            ExpectDeleted({"phase": "Failed", **main(state=terminated(137, "Error"))}),
        ),
    ),
    Case(
        "a deleted pod with restartPolicy Always is not restarted",
        pod(sh(_TRAP), restartPolicy="Always"),
        (
            ExpectStatus(main(state=RUNNING)),
            WaitForOutput(),
            DeletePod(),
            ExpectDeleted({"phase": "Succeeded", **main(restartCount=0, state=terminated(0, "Completed"))}),
        ),
    ),
    Case(
        "a forced deletion is immediate",
        pod(sh(_TRAP)),
        (ExpectStatus(main(state=RUNNING)), WaitForOutput(), DeletePod(0), ExpectDeleted(main(state=RUNNING))),
    ),
    Case(
        "a pod in restart back-off can be deleted and keeps its last termination",
        pod(sh("exit 1"), restartPolicy="Always"),
        (
            ExpectStatus(main(state=waiting("CrashLoopBackOff"), restartCount=2)),
            DeletePod(),
            ExpectDeleted({"phase": "Failed", **main(state=terminated(1, "Error"))}),
        ),
    ),
    Case(
        "a pod can be deleted while its init container runs",
        pod(sh("exit 0"), initContainers=[sh(_TRAP, name="first")]),
        (
            ExpectStatus({"initContainerStatuses": [{"name": "first", "state": RUNNING}]}),
            WaitForOutput(container="first"),
            DeletePod(),
            ExpectDeleted({"initContainerStatuses": [{"name": "first", "state": terminated(0, "Completed")}]}),
        ),
    ),
    Case(
        "preStop runs before the signal",
        pod(
            sh(
                f"trap 'echo signal >> /state/order; {_COPY_ORDER}; exit 0' TERM; {_WAIT}",
                lifecycle={"preStop": {"exec": {"command": ["sh", "-c", "sleep 0.2; echo hook >> /state/order"]}}},
                volumeMounts=[{"name": "state", "mountPath": "/state"}],
            ),
            volumes=[{"name": "state", "emptyDir": {}}],
        ),
        (
            ExpectStatus(main(state=RUNNING)),
            WaitForOutput(),
            DeletePod(),
            ExpectDeleted(main(state=terminated(0, "Completed", message="hook\nsignal\n"))),
        ),
    ),
    Case(
        "stopSignal selects the signal that stops a container",
        pod(sh(f"trap 'exit 0' USR1; {_WAIT}", lifecycle={"stopSignal": "SIGUSR1"}), os={"name": "linux"}),
        (ExpectStatus(main(state=RUNNING)), WaitForOutput(), DeletePod(), ExpectDeleted(main(state=terminated(0, "Completed")))),
    ),
    Case(
        "a preStop sleep delays the signal",
        pod(
            sh(
                "trap 'exit 9' TERM; echo ready; (sleep 0.5; touch /state/done) & until [ -e /state/done ]; do sleep 0.05; done",
                lifecycle={"preStop": {"sleep": {"seconds": 2}}},
                volumeMounts=[{"name": "state", "mountPath": "/state"}],
            ),
            volumes=[{"name": "state", "emptyDir": {}}],
        ),
        (ExpectStatus(main(state=RUNNING)), WaitForOutput(), DeletePod(), ExpectDeleted(main(state=terminated(0, "Completed")))),
    ),
    Case(
        "a failed preStop hook is recorded, and the container is stopped",
        pod(sh(_TRAP, lifecycle={"preStop": {"exec": {"command": ["false"]}}})),
        (
            ExpectStatus(main(state=RUNNING)),
            WaitForOutput(),
            DeletePod(),
            ExpectDeleted(main(state=terminated(0, "Completed"))),
            ExpectEvent({"reason": "FailedPreStopHook", "type": "Warning", "message": "PreStopHook failed"}),
        ),
    ),
    Case(
        "a preStop hook that hangs is aborted after the grace period",
        pod(
            sh(
                f"trap 'exit 0' TERM; {_WAIT}",
                lifecycle={"preStop": {"exec": {"command": ["sleep", "600"]}}},
            ),
            terminationGracePeriodSeconds=1,
        ),
        (ExpectStatus(main(state=RUNNING)), WaitForOutput(), DeletePod(), ExpectDeleted(main(state=terminated(0, "Completed")))),
    ),
    Case(
        "a pod that exceeds its active deadline fails with a reason",
        pod(sh(_TRAP), activeDeadlineSeconds=3, restartPolicy="OnFailure"),
        (
            ExpectStatus(main(state=RUNNING)),
            ExpectStatus(
                {
                    "phase": "Failed",
                    "reason": "DeadlineExceeded",
                    "message": "Pod was active on the node longer than the specified deadline",
                    **main(state=terminated(0, "Completed")),
                }
            ),
            ExpectEvent({"reason": "DeadlineExceeded", "type": "Normal"}),
        ),
    ),
    Case(
        "sidecars are stopped after the main containers in reverse order",
        pod(
            sh(
                f"trap 'echo main >> /state/order; exit 0' TERM; {_WAIT}",
                volumeMounts=[{"name": "state", "mountPath": "/state"}],
            ),
            initContainers=[
                sh(
                    f"trap 'echo one >> /state/order; {_COPY_ORDER}; exit 0' TERM; {_WAIT}",
                    name="one",
                    restartPolicy="Always",
                    volumeMounts=[{"name": "state", "mountPath": "/state"}],
                ),
                sh(
                    f"trap 'echo two >> /state/order; exit 0' TERM; {_WAIT}",
                    name="two",
                    restartPolicy="Always",
                    volumeMounts=[{"name": "state", "mountPath": "/state"}],
                ),
            ],
            volumes=[{"name": "state", "emptyDir": {}}],
        ),
        (
            ExpectStatus({"phase": "Running", "conditions": [condition("Ready", "True")]}),
            WaitForOutput(),
            WaitForOutput(container="one"),
            WaitForOutput(container="two"),
            DeletePod(),
            ExpectDeleted({"initContainerStatuses": [{"name": "one", "state": terminated(0, "Completed", message="main\ntwo\none\n")}]}),
        ),
    ),
)

SCHEDULING = (
    Case(
        "a pod that does not fit stays pending with the insufficient resources",
        pod(sh("exit 0", resources={"limits": {"nvidia.com/gpu": "9"}})),
        (
            ExpectStatus(
                {
                    "phase": "Pending",
                    "containerStatuses": ABSENT,
                    "conditions": [
                        condition(
                            "PodScheduled",
                            "False",
                            reason="Unschedulable",
                            message=re.compile(
                                r"^0/1 nodes are available: 1 Insufficient nvidia.com/gpu\. .*"
                                r"preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling\.$"
                            ),
                        )
                    ],
                }
            ),
            ExpectEvent(
                {
                    "reason": "FailedScheduling",
                    "type": "Warning",
                    "message": re.compile("1 Insufficient nvidia.com/gpu"),
                    "source": {"component": "default-scheduler"},
                }
            ),
        ),
    ),
    Case(
        "a pod that selects another node stays pending",
        pod(sh("exit 0"), nodeSelector={"disk": "fast"}),
        (
            ExpectStatus(
                {
                    "conditions": [
                        condition(
                            "PodScheduled",
                            "False",
                            reason="Unschedulable",
                            message=re.compile(r"1 node\(s\) didn't match Pod's node affinity/selector"),
                        )
                    ]
                }
            ),
        ),
    ),
    Case(
        "a pod that fits is scheduled, with the usual events",
        pod(sh("exit 0", resources={"limits": {"nvidia.com/gpu": "1"}})),
        (
            succeeded(conditions=[condition("PodScheduled", "True", reason=ABSENT)]),
            ExpectEvent(
                {"reason": "Scheduled", "type": "Normal", "message": re.compile("^Successfully assigned default/case-.* to dlop-local$")}
            ),
            ExpectEvent(
                {
                    "reason": "Pulled",
                    "message": re.compile('^Container image "shell" already present on machine'),
                    "involvedObject": {"fieldPath": "spec.containers{main}"},
                }
            ),
            ExpectEvent({"reason": "Created", "message": "Container created", "source": {"component": "kubelet", "host": "dlop-local"}}),
            ExpectEvent({"reason": "Started", "message": "Container started"}),
        ),
    ),
)

CASES = INIT + TERMINATION + SCHEDULING
