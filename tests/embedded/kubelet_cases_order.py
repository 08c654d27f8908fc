"""Cases: init containers, sidecars, deadlines, termination, scheduling."""

from __future__ import annotations

import re

from tests.embedded.kubelet_cases import (
    RUNNING,
    Case,
    Deletes,
    Gone,
    Hears,
    Says,
    Sees,
    Speaks,
    condition,
    ended,
    failed,
    main,
    pod,
    sh,
    succeeded,
    waiting,
)
from tests.embedded.node_world import ABSENT

_WAIT = "echo ready; while :; do sleep 0.05; done"
_TRAP = f"trap 'echo bye; exit 0' TERM; {_WAIT}"
_DEAF = f"trap '' TERM; {_WAIT}"
_TELL = "cp /state/order /dev/termination-log"

INIT = (
    Case(
        "init containers run one after the other, before the others",
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
                    {"name": "first", "ready": True, "state": ended(0, "Completed"), "started": False},
                    {"name": "second", "ready": True, "state": ended(0, "Completed")},
                ]
            ),
            Says("first\nsecond\nmain\n"),
        ),
    ),
    Case(
        "while init containers run, the pod is pending and the others wait for it to be initialized",
        pod(sh("exit 0"), initContainers=[sh("sleep 0.3", name="first"), sh("exit 0", name="second")]),
        (
            Sees(
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
            Sees({"conditions": [condition("Initialized", "True")]}),
            succeeded(),
        ),
    ),
    Case(
        "a failing init container fails a pod that never restarts, and nothing else runs",
        pod(sh("exit 0"), initContainers=[sh("exit 7", name="first"), sh("exit 0", name="second")]),
        (
            failed(
                initContainerStatuses=[
                    {"name": "first", "state": ended(7, "Error"), "ready": False},
                    {"name": "second", "state": waiting("PodInitializing")},
                ],
                containerStatuses=[{"name": "main", "state": waiting("PodInitializing"), "restartCount": 0}],
            ),
        ),
    ),
    Case(
        "a failing init container is tried again, if the pod restarts, and the pod stays pending",
        pod(sh("exit 0"), initContainers=[sh("exit 7", name="first")], restartPolicy="Always"),
        (
            Sees(
                {
                    "phase": "Pending",
                    "initContainerStatuses": [
                        {"name": "first", "state": waiting("CrashLoopBackOff"), "restartCount": 1, "lastState": ended(7, "Error")}
                    ],
                }
            ),
            Sees({"phase": "Pending", "initContainerStatuses": [{"name": "first", "restartCount": 2}]}),
        ),
    ),
    Case(
        "an init container that succeeds is not restarted, whatever the pod's policy",
        pod(sh("sleep 60"), initContainers=[sh("exit 0", name="first")], restartPolicy="Always"),
        (
            Sees(
                {
                    "phase": "Running",
                    "initContainerStatuses": [{"name": "first", "restartCount": 0, "state": ended(0, "Completed"), "ready": True}],
                }
            ),
        ),
    ),
    Case(
        "a sidecar starts before the containers, runs beside them, and does not keep the pod from ending",
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
        (succeeded(initContainerStatuses=[{"name": "side", "state": ended(0, "Completed")}]), Says("here\n"), Says("ready\nbye\n", "side")),
    ),
    Case(
        "a sidecar that ends is started again, though the pod never restarts",
        pod(sh("sleep 60"), initContainers=[sh("sleep 0.1", name="side", restartPolicy="Always")]),
        (Sees({"phase": "Running", "initContainerStatuses": [{"name": "side", "restartCount": 1, "lastState": ended(0, "Completed")}]}),),
    ),
)

TERMINATION = (
    Case(
        "a deleted pod is asked to end, and its last status is told before it is gone",
        pod(sh(_TRAP), terminationGracePeriodSeconds=30),
        (
            Sees(main(state=RUNNING)),
            Speaks(),
            Deletes(),
            Gone({"phase": "Succeeded", **main(state=ended(0, "Completed"))}),
            Hears({"reason": "Killing", "type": "Normal", "message": "Stopping container main"}),
        ),
    ),
    Case(
        "a pod that does not listen is killed after its grace period",
        pod(sh(_DEAF), terminationGracePeriodSeconds=1),
        (Sees(main(state=RUNNING)), Speaks(), Deletes(), Gone({"phase": "Failed", **main(state=ended(137, "Error"))})),
    ),
    Case(
        "a deletion may give less grace than the pod asks for",
        pod(sh(_DEAF), terminationGracePeriodSeconds=600),
        (Sees(main(state=RUNNING)), Speaks(), Deletes(1), Gone({"phase": "Failed", **main(state=ended(137, "Error"))})),
    ),
    Case(
        "a second deletion may cut the grace period short",
        pod(sh(_DEAF), terminationGracePeriodSeconds=600),
        (Sees(main(state=RUNNING)), Speaks(), Deletes(), Deletes(1), Gone({"phase": "Failed", **main(state=ended(137, "Error"))})),
    ),
    Case(
        "a pod that restarts always is not restarted when it is deleted",
        pod(sh(_TRAP), restartPolicy="Always"),
        (Sees(main(state=RUNNING)), Speaks(), Deletes(), Gone({"phase": "Succeeded", **main(restartCount=0, state=ended(0, "Completed"))})),
    ),
    Case(
        "a pod that is forced away is gone at once",
        pod(sh(_TRAP)),
        (Sees(main(state=RUNNING)), Speaks(), Deletes(0), Gone(main(state=RUNNING))),
    ),
    Case(
        "a pod that waits for its restart can be deleted, and its last end is told",
        pod(sh("exit 1"), restartPolicy="Always"),
        (
            Sees(main(state=waiting("CrashLoopBackOff"), restartCount=2)),
            Deletes(),
            Gone({"phase": "Failed", **main(state=ended(1, "Error"))}),
        ),
    ),
    Case(
        "a pod can be deleted while its init container runs",
        pod(sh("exit 0"), initContainers=[sh(_TRAP, name="first")]),
        (
            Sees({"initContainerStatuses": [{"name": "first", "state": RUNNING}]}),
            Speaks(container="first"),
            Deletes(),
            Gone({"initContainerStatuses": [{"name": "first", "state": ended(0, "Completed")}]}),
        ),
    ),
    Case(
        "preStop runs before the signal",
        pod(
            sh(
                f"trap 'echo signal >> /state/order; {_TELL}; exit 0' TERM; {_WAIT}",
                lifecycle={"preStop": {"exec": {"command": ["sh", "-c", "sleep 0.2; echo hook >> /state/order"]}}},
                volumeMounts=[{"name": "state", "mountPath": "/state"}],
            ),
            volumes=[{"name": "state", "emptyDir": {}}],
        ),
        (Sees(main(state=RUNNING)), Speaks(), Deletes(), Gone(main(state=ended(0, "Completed", message="hook\nsignal\n")))),
    ),
    Case(
        "a container may choose the signal that it is stopped with",
        pod(sh(f"trap 'exit 0' USR1; {_WAIT}", lifecycle={"stopSignal": "SIGUSR1"}), os={"name": "linux"}),
        (Sees(main(state=RUNNING)), Speaks(), Deletes(), Gone(main(state=ended(0, "Completed")))),
    ),
    Case(
        "a preStop that sleeps gives the container that time",
        pod(
            sh(
                "trap 'exit 9' TERM; echo ready; (sleep 0.5; touch /state/done) & until [ -e /state/done ]; do sleep 0.05; done",
                lifecycle={"preStop": {"sleep": {"seconds": 2}}},
                volumeMounts=[{"name": "state", "mountPath": "/state"}],
            ),
            volumes=[{"name": "state", "emptyDir": {}}],
        ),
        (Sees(main(state=RUNNING)), Speaks(), Deletes(), Gone(main(state=ended(0, "Completed")))),
    ),
    Case(
        "a preStop that fails is told, and the container is stopped all the same",
        pod(sh(_TRAP, lifecycle={"preStop": {"exec": {"command": ["false"]}}})),
        (
            Sees(main(state=RUNNING)),
            Speaks(),
            Deletes(),
            Gone(main(state=ended(0, "Completed"))),
            Hears({"reason": "FailedPreStopHook", "type": "Warning", "message": "PreStopHook failed"}),
        ),
    ),
    Case(
        "a preStop that never ends is given up after the grace period",
        pod(
            sh(
                f"trap 'exit 0' TERM; {_WAIT}",
                lifecycle={"preStop": {"exec": {"command": ["sleep", "600"]}}},
            ),
            terminationGracePeriodSeconds=1,
        ),
        (Sees(main(state=RUNNING)), Speaks(), Deletes(), Gone(main(state=ended(0, "Completed")))),
    ),
    Case(
        "a pod that is active for too long has failed, and says why",
        pod(sh(_TRAP), activeDeadlineSeconds=3, restartPolicy="OnFailure"),
        (
            Sees(main(state=RUNNING)),
            Sees(
                {
                    "phase": "Failed",
                    "reason": "DeadlineExceeded",
                    "message": "Pod was active on the node longer than the specified deadline",
                    **main(state=ended(0, "Completed")),
                }
            ),
            Hears({"reason": "DeadlineExceeded", "type": "Normal"}),
        ),
    ),
    Case(
        "sidecars end after the containers, in reverse order",
        pod(
            sh(
                f"trap 'echo main >> /state/order; exit 0' TERM; {_WAIT}",
                volumeMounts=[{"name": "state", "mountPath": "/state"}],
            ),
            initContainers=[
                sh(
                    f"trap 'echo one >> /state/order; {_TELL}; exit 0' TERM; {_WAIT}",
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
            Sees({"phase": "Running", "conditions": [condition("Ready", "True")]}),
            Speaks(),
            Speaks(container="one"),
            Speaks(container="two"),
            Deletes(),
            Gone({"initContainerStatuses": [{"name": "one", "state": ended(0, "Completed", message="main\ntwo\none\n")}]}),
        ),
    ),
)

SCHEDULING = (
    Case(
        "a pod that asks for more than there is stays pending, and says what is missing",
        pod(sh("exit 0", resources={"limits": {"nvidia.com/gpu": "9"}})),
        (
            Sees(
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
            Hears(
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
        "a pod that wants another node stays pending",
        pod(sh("exit 0"), nodeSelector={"disk": "fast"}),
        (
            Sees(
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
        "a pod that fits is assigned, and its containers are told of",
        pod(sh("exit 0", resources={"limits": {"nvidia.com/gpu": "1"}})),
        (
            succeeded(conditions=[condition("PodScheduled", "True", reason=ABSENT)]),
            Hears(
                {"reason": "Scheduled", "type": "Normal", "message": re.compile("^Successfully assigned default/case-.* to dlop-local$")}
            ),
            Hears(
                {
                    "reason": "Pulled",
                    "message": re.compile('^Container image "shell" already present on machine'),
                    "involvedObject": {"fieldPath": "spec.containers{main}"},
                }
            ),
            Hears({"reason": "Created", "message": "Container created", "source": {"component": "kubelet", "host": "dlop-local"}}),
            Hears({"reason": "Started", "message": "Container started"}),
        ),
    ),
)

CASES = INIT + TERMINATION + SCHEDULING
