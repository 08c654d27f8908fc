"""Cases: commands, variables, config maps, secrets, the downward API, volumes, images."""

from __future__ import annotations

import re
from typing import Any

from dlop.kube.resources import CONFIG_MAPS
from dlop.kube.types import JsonObject
from tests.embedded.kubelet_cases import (
    RUNNING,
    Case,
    CreateObject,
    ExpectEvent,
    ExpectOutput,
    ExpectStatus,
    PatchObject,
    config_map,
    main,
    pod,
    secret,
    sh,
    succeeded,
    waiting,
)


def _env(**values: str) -> list[JsonObject]:
    return [{"name": name, "value": value} for name, value in values.items()]


def _from(**sources: Any) -> list[JsonObject]:
    return [{"name": name, "valueFrom": source} for name, source in sources.items()]


def _field(path: str) -> JsonObject:
    return {"fieldRef": {"fieldPath": path}}


def _volume(name: str, **source: Any) -> JsonObject:
    return {"name": name, **source}


_MOUNTED = [{"name": "it", "mountPath": "/it"}]

COMMANDS = (
    Case(
        "args follow the command",
        pod({"name": "main", "image": "shell", "command": ["echo", "one"], "args": ["two", "three four"]}),
        (succeeded(), ExpectOutput("one two three four\n")),
    ),
    Case(
        "args without a command follow the entry point of the image",
        pod({"name": "main", "image": "echo-image", "args": ["of", "it"]}),
        (succeeded(), ExpectOutput("the image says of it\n")),
    ),
    Case(
        "without command and args the entry point of the image runs",
        pod({"name": "main", "image": "echo-image"}),
        (succeeded(), ExpectOutput("the image says\n")),
    ),
    Case(
        "a command replaces the entry point of the image",
        pod({"name": "main", "image": "echo-image", "command": ["echo", "mine"]}),
        (succeeded(), ExpectOutput("mine\n")),
    ),
    Case(
        "variables of the image are set unless the pod overrides them",
        pod(sh("echo $COLOUR $SHAPE", image="echo-image", env=_env(SHAPE="round"))),
        (succeeded(), ExpectOutput("red round\n")),
    ),
    Case(
        "$(NAME) is expanded in command and args",
        pod({"name": "main", "image": "shell", "command": ["echo", "$(A)"], "args": ["<$(B)>"], "env": _env(A="x y", B="z")}),
        (succeeded(), ExpectOutput("x y <z>\n")),
    ),
    Case(
        "an unresolvable reference is unchanged, and a double dollar sign is one dollar sign",
        pod({"name": "main", "image": "shell", "command": ["echo", "$(NOBODY)", "$$(A)", "$$$(A)", "$A"], "env": _env(A="x")}),
        (succeeded(), ExpectOutput("$(NOBODY) $(A) $x $A\n")),
    ),
    Case(
        "variables of the image are not expanded in commands",
        pod({"name": "main", "image": "echo-image", "command": ["echo", "$(COLOUR)"]}),
        (succeeded(), ExpectOutput("$(COLOUR)\n")),
    ),
    Case("workingDir sets the working directory", pod(sh("pwd", workingDir="/usr")), (succeeded(), ExpectOutput("/usr\n"))),
    Case(
        "output without a final newline is not lost",
        pod(sh("printf 'no newline'")),
        (succeeded(), ExpectOutput("no newline")),
    ),
    Case(
        "an unknown image without a command cannot be pulled",
        pod({"name": "main", "image": "unknown:1"}),
        (
            ExpectStatus({"phase": "Pending", **main(state=waiting("ErrImagePull", message=re.compile("--image unknown:1=PATH")))}),
            ExpectStatus(main(state=waiting("ImagePullBackOff", message=re.compile('^Back-off pulling image "unknown:1"')))),
            ExpectEvent({"reason": "Failed", "type": "Warning", "message": re.compile('^Failed to pull image "unknown:1"')}),
            ExpectEvent({"reason": "BackOff", "message": 'Back-off pulling image "unknown:1"'}),
        ),
    ),
)

VARIABLES = (
    Case(
        "a variable may refer to earlier variables only",
        pod(sh('echo "$B" "$C"', env=_env(A="1", B="$(A)2", C="$(D)", D="4"))),
        (succeeded(), ExpectOutput("12 $(D)\n")),
    ),
    Case(
        "variables may be fields of the pod",
        pod(
            sh(
                'echo "$NAME $NS $NODE $LABEL $NOTE $ACCOUNT"; [ "$IP" = "$IPS" ] && [ -n "$IP" ] && [ -n "$HOST" ] && [ -n "$UID_" ]',
                env=_from(
                    NAME=_field("metadata.name"),
                    NS=_field("metadata.namespace"),
                    NODE=_field("spec.nodeName"),
                    LABEL=_field("metadata.labels['app']"),
                    NOTE=_field("metadata.annotations['example.org/note']"),
                    ACCOUNT=_field("spec.serviceAccountName"),
                    IP=_field("status.podIP"),
                    IPS=_field("status.podIPs"),
                    HOST=_field("status.hostIP"),
                    UID_=_field("metadata.uid"),
                ),
            ),
            serviceAccountName="default",
        ),
        (succeeded(), ExpectOutput(re.compile(r"^case-\d+ default dlop-local web two words default\n$"))),
        metadata={"labels": {"app": "web"}, "annotations": {"example.org/note": "two words"}},
    ),
    Case(
        "variables may be requests and limits in units of the divisor",
        pod(
            sh(
                "echo $CPU $MILLI $MEMORY $REQUEST",
                resources={"requests": {"cpu": "250m", "memory": "64Mi"}, "limits": {"cpu": "1500m", "memory": "1Gi"}},
                env=_from(
                    CPU={"resourceFieldRef": {"resource": "limits.cpu"}},
                    MILLI={"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}},
                    MEMORY={"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}},
                    REQUEST={"resourceFieldRef": {"resource": "requests.memory"}},
                ),
            )
        ),
        (succeeded(), ExpectOutput("2 1500 1024 67108864\n")),
    ),
    Case(
        "a missing limit is the capacity of the node",
        pod(sh("echo $CPU", env=_from(CPU={"resourceFieldRef": {"resource": "limits.cpu"}}))),
        (succeeded(), ExpectOutput("1000\n")),
    ),
    Case(
        "variables may be keys of config maps and secrets",
        pod(
            sh(
                "echo $COLOUR $TOKEN",
                env=_from(
                    COLOUR={"configMapKeyRef": {"name": "paint", "key": "colour"}}, TOKEN={"secretKeyRef": {"name": "key", "key": "token"}}
                ),
            )
        ),
        (succeeded(), ExpectOutput("blue s3cret\n")),
        objects=(config_map("paint", colour="blue"), secret("key", token="s3cret")),
    ),
    Case(
        "a missing config map keeps the container waiting until it is created",
        pod(sh("echo $LATE", env=_from(LATE={"configMapKeyRef": {"name": "late", "key": "word"}}))),
        (
            ExpectStatus({"phase": "Pending", **main(state=waiting("CreateContainerConfigError", message='configmap "late" not found'))}),
            ExpectEvent({"reason": "Failed", "type": "Warning", "message": 'Error: configmap "late" not found'}),
            CreateObject(CONFIG_MAPS, {"metadata": {"name": "late"}, "data": {"word": "better"}}),
            succeeded(**main(restartCount=0)),
            ExpectOutput("better\n"),
        ),
    ),
    Case(
        "a missing secret keeps the container waiting",
        pod(sh("exit 0", env=_from(X={"secretKeyRef": {"name": "nowhere", "key": "x"}}))),
        (ExpectStatus(main(state=waiting("CreateContainerConfigError", message='secret "nowhere" not found'))),),
    ),
    Case(
        "a missing key keeps the container waiting",
        pod(sh("exit 0", env=_from(X={"configMapKeyRef": {"name": "keyless", "key": "x"}}))),
        (ExpectStatus(main(state=waiting("CreateContainerConfigError", message="couldn't find key x in ConfigMap default/keyless"))),),
        objects=(config_map("keyless", y="1"),),
    ),
    Case(
        "optional references may be missing",
        pod(
            sh(
                'echo "<${X-unset}><${Y-unset}>"',
                env=_from(
                    X={"configMapKeyRef": {"name": "nowhere", "key": "x", "optional": True}},
                    Y={"secretKeyRef": {"name": "nowhere", "key": "y", "optional": True}},
                ),
                envFrom=[{"configMapRef": {"name": "nowhere", "optional": True}}],
            )
        ),
        (succeeded(), ExpectOutput("<unset><unset>\n")),
    ),
    Case(
        "envFrom sets all keys with a prefix, and env overrides them",
        pod(
            sh(
                "echo $A $P_B $C",
                envFrom=[{"configMapRef": {"name": "many"}}, {"prefix": "P_", "secretRef": {"name": "more"}}],
                env=_env(C="mine"),
            )
        ),
        (succeeded(), ExpectOutput("1 2 mine\n")),
        objects=(config_map("many", A="1", C="theirs"), secret("more", B="2")),
    ),
    Case(
        "a pod on the host network has the address of the host",
        pod(sh('[ "$IP" = "$HOST" ]', env=_from(IP=_field("status.podIP"), HOST=_field("status.hostIP"))), hostNetwork=True),
        (succeeded(),),
    ),
    Case(
        "the hostname of a pod is its name or spec.hostname",
        pod(sh("echo $HOSTNAME"), hostname="custom"),
        (succeeded(), ExpectOutput("custom\n")),
    ),
)

VOLUMES = (
    Case(
        "an emptyDir is shared by the containers of a pod",
        pod(
            sh("while [ ! -e /it/word ]; do sleep 0.05; done; cat /it/word", volumeMounts=_MOUNTED),
            sh("echo hello > /there/new; mv /there/new /there/word", name="other", volumeMounts=[{"name": "it", "mountPath": "/there"}]),
            volumes=[_volume("it", emptyDir={})],
        ),
        (succeeded(), ExpectOutput("hello\n")),
    ),
    Case(
        "a config map volume contains a file for each key",
        pod(sh("cd /it && ls && cat one two", volumeMounts=_MOUNTED), volumes=[_volume("it", configMap={"name": "files"})]),
        (succeeded(), ExpectOutput("one\ntwo\n12")),
        objects=(config_map("files", one="1", two="2"),),
    ),
    Case(
        "items select keys of a config map with paths and modes",
        pod(
            sh("cd /it && ls && cat deep/er && stat -L -c %a deep/er", volumeMounts=_MOUNTED),
            volumes=[_volume("it", configMap={"name": "picked", "items": [{"key": "one", "path": "deep/er", "mode": 0o600}]})],
        ),
        (succeeded(), ExpectOutput("deep\n1\n600\n")),
        objects=(config_map("picked", one="1\n", two="2"),),
    ),
    Case(
        "a secret volume contains a file for each key",
        pod(
            sh("cat /it/token; stat -L -c %a /it/token", volumeMounts=_MOUNTED),
            volumes=[_volume("it", secret={"secretName": "vault", "defaultMode": 0o400})],
        ),
        (succeeded(), ExpectOutput("hush\n400\n")),
        objects=(secret("vault", token="hush\n"),),
    ),
    Case(
        "a downward API volume contains a file for each item",
        pod(
            sh("cat /it/labels; echo; cat /it/cpu", volumeMounts=_MOUNTED, resources={"limits": {"cpu": "2"}}),
            volumes=[
                _volume(
                    "it",
                    downwardAPI={
                        "items": [
                            {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}},
                            {"path": "cpu", "resourceFieldRef": {"containerName": "main", "resource": "limits.cpu"}},
                        ]
                    },
                )
            ],
        ),
        (succeeded(), ExpectOutput('app="web"\ntier="1"\n2')),
        metadata={"labels": {"tier": "1", "app": "web"}},
    ),
    Case(
        "a projected volume combines several sources",
        pod(
            sh("cat /it/a /it/b /it/name", volumeMounts=_MOUNTED),
            volumes=[
                _volume(
                    "it",
                    projected={
                        "sources": [
                            {"configMap": {"name": "part", "items": [{"key": "x", "path": "a"}]}},
                            {"secret": {"name": "part", "items": [{"key": "x", "path": "b"}]}},
                            {"downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
                        ]
                    },
                )
            ],
        ),
        (succeeded(), ExpectOutput("12default")),
        objects=(config_map("part", x="1"), secret("part", x="2")),
    ),
    Case(
        "a volume with a missing config map keeps the pod waiting until it is created",
        pod(sh("cat /it/word", volumeMounts=_MOUNTED), volumes=[_volume("it", configMap={"name": "tardy"})]),
        (
            ExpectStatus({"phase": "Pending", **main(state=waiting("ContainerCreating"))}),
            ExpectEvent(
                {
                    "reason": "FailedMount",
                    "type": "Warning",
                    "message": 'MountVolume.SetUp failed for volume "it" : configmap "tardy" not found',
                }
            ),
            CreateObject(CONFIG_MAPS, {"metadata": {"name": "tardy"}, "data": {"word": "there"}}),
            succeeded(),
            ExpectOutput("there"),
        ),
    ),
    Case(
        "a changed config map is updated in mounted volumes",
        pod(
            sh("until grep -q new /it/word; do sleep 0.05; done; ls /it", volumeMounts=_MOUNTED),
            volumes=[_volume("it", configMap={"name": "moving"})],
        ),
        (
            ExpectStatus(main(state=RUNNING)),
            PatchObject(CONFIG_MAPS, "moving", {"data": {"word": "new", "old": None, "more": "x"}}),
            succeeded(),
            ExpectOutput("more\nword\n"),
        ),
        objects=(config_map("moving", word="old", old="x"),),
    ),
    Case(
        "a missing optional config map is an empty directory",
        pod(sh("ls -A /it", volumeMounts=_MOUNTED), volumes=[_volume("it", configMap={"name": "nowhere", "optional": True})]),
        (succeeded(), ExpectOutput("")),
    ),
    Case(
        "a hostPath volume is the path of the host",
        pod(sh("test -x /it/sh", volumeMounts=_MOUNTED), volumes=[_volume("it", hostPath={"path": "/bin", "type": "Directory"})]),
        (succeeded(),),
    ),
    Case(
        "a hostPath volume of another type cannot be mounted",
        pod(sh("exit 0", volumeMounts=_MOUNTED), volumes=[_volume("it", hostPath={"path": "/bin", "type": "File"})]),
        (
            ExpectEvent(
                {
                    "reason": "FailedMount",
                    "message": 'MountVolume.SetUp failed for volume "it" : hostPath type check failed: /bin is not a file',
                }
            ),
            ExpectStatus({"phase": "Pending"}),
        ),
    ),
    Case(
        "subPathExpr mounts a part of a volume",
        pod(
            sh("echo x > /it/file", volumeMounts=[{"name": "it", "mountPath": "/it", "subPathExpr": "of/$(WHO)"}], env=_env(WHO="me")),
            initContainers=[sh("mkdir -p /all/of/me", name="first", volumeMounts=[{"name": "it", "mountPath": "/all"}])],
            volumes=[_volume("it", emptyDir={})],
        ),
        (succeeded(),),
    ),
    Case(
        "the mounts of a container are in its status",
        pod(sh("exit 0", volumeMounts=[{"name": "it", "mountPath": "/it", "readOnly": True}]), volumes=[_volume("it", emptyDir={})]),
        (succeeded(**main(volumeMounts=[{"name": "it", "mountPath": "/it", "readOnly": True, "recursiveReadOnly": "Disabled"}])),),
    ),
    Case(
        "an unsupported volume type keeps the pod waiting with an event",
        pod(sh("exit 0", volumeMounts=_MOUNTED), volumes=[_volume("it", persistentVolumeClaim={"claimName": "disk"})]),
        (ExpectEvent({"reason": "FailedMount", "message": re.compile("persistentVolumeClaim")}), ExpectStatus({"phase": "Pending"})),
    ),
)

CASES = COMMANDS + VARIABLES + VOLUMES
