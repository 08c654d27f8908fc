"""Cases: commands, variables, config maps, secrets, the downward API, volumes, images."""

from __future__ import annotations

import re
from typing import Any

from dlop.kube.resources import CONFIG_MAPS
from dlop.kube.types import JsonObject
from tests.embedded.kubelet_cases import (
    RUNNING,
    Case,
    Creates,
    Hears,
    Patches,
    Says,
    Sees,
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
        (succeeded(), Says("one two three four\n")),
    ),
    Case(
        "args alone follow the image's own entry point",
        pod({"name": "main", "image": "talker", "args": ["of", "it"]}),
        (succeeded(), Says("the image says of it\n")),
    ),
    Case(
        "without command and args the image's own entry point runs",
        pod({"name": "main", "image": "talker"}),
        (succeeded(), Says("the image says\n")),
    ),
    Case(
        "a command replaces the image's own entry point altogether",
        pod({"name": "main", "image": "talker", "command": ["echo", "mine"]}),
        (succeeded(), Says("mine\n")),
    ),
    Case(
        "the image's own variables are there, unless the pod sets them",
        pod(sh("echo $COLOUR $SHAPE", image="talker", env=_env(SHAPE="round"))),
        (succeeded(), Says("red round\n")),
    ),
    Case(
        "variables are put into commands and args as $(NAME)",
        pod({"name": "main", "image": "shell", "command": ["echo", "$(A)"], "args": ["<$(B)>"], "env": _env(A="x y", B="z")}),
        (succeeded(), Says("x y <z>\n")),
    ),
    Case(
        "a reference to nothing stays as it is, and a doubled dollar is one",
        pod({"name": "main", "image": "shell", "command": ["echo", "$(NOBODY)", "$$(A)", "$$$(A)", "$A"], "env": _env(A="x")}),
        (succeeded(), Says("$(NOBODY) $(A) $x $A\n")),
    ),
    Case(
        "variables of the image are not put into commands",
        pod({"name": "main", "image": "talker", "command": ["echo", "$(COLOUR)"]}),
        (succeeded(), Says("$(COLOUR)\n")),
    ),
    Case("the working folder is the container's own", pod(sh("pwd", workingDir="/usr")), (succeeded(), Says("/usr\n"))),
    Case(
        "what was written without a last newline is not lost",
        pod(sh("printf 'no newline'")),
        (succeeded(), Says("no newline")),
    ),
    Case(
        "an image that nobody knows and no command: there is nothing to run",
        pod({"name": "main", "image": "stranger:1"}),
        (
            Sees({"phase": "Pending", **main(state=waiting("ErrImagePull", message=re.compile("--image stranger:1=PATH")))}),
            Sees(main(state=waiting("ImagePullBackOff", message=re.compile('^Back-off pulling image "stranger:1"')))),
            Hears({"reason": "Failed", "type": "Warning", "message": re.compile('^Failed to pull image "stranger:1"')}),
            Hears({"reason": "BackOff", "message": 'Back-off pulling image "stranger:1"'}),
        ),
    ),
)

VARIABLES = (
    Case(
        "a variable may refer to those before it, and not to those after it",
        pod(sh('echo "$B" "$C"', env=_env(A="1", B="$(A)2", C="$(D)", D="4"))),
        (succeeded(), Says("12 $(D)\n")),
    ),
    Case(
        "fields of the pod are variables",
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
        (succeeded(), Says(re.compile(r"^case-\d+ default dlop-local web two words default\n$"))),
        metadata={"labels": {"app": "web"}, "annotations": {"example.org/note": "two words"}},
    ),
    Case(
        "requests and limits are variables, in the units that are asked for",
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
        (succeeded(), Says("2 1500 1024 67108864\n")),
    ),
    Case(
        "without a limit the limit is what the node has",
        pod(sh("echo $CPU", env=_from(CPU={"resourceFieldRef": {"resource": "limits.cpu"}}))),
        (succeeded(), Says("1000\n")),
    ),
    Case(
        "keys of config maps and secrets are variables",
        pod(
            sh(
                "echo $COLOUR $TOKEN",
                env=_from(
                    COLOUR={"configMapKeyRef": {"name": "paint", "key": "colour"}}, TOKEN={"secretKeyRef": {"name": "key", "key": "token"}}
                ),
            )
        ),
        (succeeded(), Says("blue s3cret\n")),
        before=(config_map("paint", colour="blue"), secret("key", token="s3cret")),
    ),
    Case(
        "a config map that is missing keeps the container waiting until it is there",
        pod(sh("echo $LATE", env=_from(LATE={"configMapKeyRef": {"name": "late", "key": "word"}}))),
        (
            Sees({"phase": "Pending", **main(state=waiting("CreateContainerConfigError", message='configmap "late" not found'))}),
            Hears({"reason": "Failed", "type": "Warning", "message": 'Error: configmap "late" not found'}),
            Creates(CONFIG_MAPS, {"metadata": {"name": "late"}, "data": {"word": "better"}}),
            succeeded(**main(restartCount=0)),
            Says("better\n"),
        ),
    ),
    Case(
        "a secret that is missing keeps the container waiting",
        pod(sh("exit 0", env=_from(X={"secretKeyRef": {"name": "nowhere", "key": "x"}}))),
        (Sees(main(state=waiting("CreateContainerConfigError", message='secret "nowhere" not found'))),),
    ),
    Case(
        "a key that is missing keeps the container waiting",
        pod(sh("exit 0", env=_from(X={"configMapKeyRef": {"name": "keyless", "key": "x"}}))),
        (Sees(main(state=waiting("CreateContainerConfigError", message="couldn't find key x in ConfigMap default/keyless"))),),
        before=(config_map("keyless", y="1"),),
    ),
    Case(
        "what is optional may be missing",
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
        (succeeded(), Says("<unset><unset>\n")),
    ),
    Case(
        "all keys of a config map or secret are variables, with a prefix, and env outranks them",
        pod(
            sh(
                "echo $A $P_B $C",
                envFrom=[{"configMapRef": {"name": "many"}}, {"prefix": "P_", "secretRef": {"name": "more"}}],
                env=_env(C="mine"),
            )
        ),
        (succeeded(), Says("1 2 mine\n")),
        before=(config_map("many", A="1", C="theirs"), secret("more", B="2")),
    ),
    Case(
        "a pod on the host's network has the host's address",
        pod(sh('[ "$IP" = "$HOST" ]', env=_from(IP=_field("status.podIP"), HOST=_field("status.hostIP"))), hostNetwork=True),
        (succeeded(),),
    ),
    Case(
        "the host name of a pod is its name, or the one it asks for",
        pod(sh("echo $HOSTNAME"), hostname="custom"),
        (succeeded(), Says("custom\n")),
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
        (succeeded(), Says("hello\n")),
    ),
    Case(
        "a config map is a folder of files",
        pod(sh("cd /it && ls && cat one two", volumeMounts=_MOUNTED), volumes=[_volume("it", configMap={"name": "files"})]),
        (succeeded(), Says("one\ntwo\n12")),
        before=(config_map("files", one="1", two="2"),),
    ),
    Case(
        "of a config map some keys may be picked, under other paths and modes",
        pod(
            sh("cd /it && ls && cat deep/er && stat -L -c %a deep/er", volumeMounts=_MOUNTED),
            volumes=[_volume("it", configMap={"name": "picked", "items": [{"key": "one", "path": "deep/er", "mode": 0o600}]})],
        ),
        (succeeded(), Says("deep\n1\n600\n")),
        before=(config_map("picked", one="1\n", two="2"),),
    ),
    Case(
        "a secret is a folder of files",
        pod(
            sh("cat /it/token; stat -L -c %a /it/token", volumeMounts=_MOUNTED),
            volumes=[_volume("it", secret={"secretName": "vault", "defaultMode": 0o400})],
        ),
        (succeeded(), Says("hush\n400\n")),
        before=(secret("vault", token="hush\n"),),
    ),
    Case(
        "the downward API is a folder of files",
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
        (succeeded(), Says('app="web"\ntier="1"\n2')),
        metadata={"labels": {"tier": "1", "app": "web"}},
    ),
    Case(
        "a projected volume puts many sources into one folder",
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
        (succeeded(), Says("12default")),
        before=(config_map("part", x="1"), secret("part", x="2")),
    ),
    Case(
        "a volume whose config map is missing keeps the pod waiting until it is there",
        pod(sh("cat /it/word", volumeMounts=_MOUNTED), volumes=[_volume("it", configMap={"name": "tardy"})]),
        (
            Sees({"phase": "Pending", **main(state=waiting("ContainerCreating"))}),
            Hears(
                {
                    "reason": "FailedMount",
                    "type": "Warning",
                    "message": 'MountVolume.SetUp failed for volume "it" : configmap "tardy" not found',
                }
            ),
            Creates(CONFIG_MAPS, {"metadata": {"name": "tardy"}, "data": {"word": "there"}}),
            succeeded(),
            Says("there"),
        ),
    ),
    Case(
        "a config map that changes changes in the pods that have mounted it",
        pod(
            sh("until grep -q new /it/word; do sleep 0.05; done; ls /it", volumeMounts=_MOUNTED),
            volumes=[_volume("it", configMap={"name": "moving"})],
        ),
        (
            Sees(main(state=RUNNING)),
            Patches(CONFIG_MAPS, "moving", {"data": {"word": "new", "old": None, "more": "x"}}),
            succeeded(),
            Says("more\nword\n"),
        ),
        before=(config_map("moving", word="old", old="x"),),
    ),
    Case(
        "an optional config map that is missing is an empty folder",
        pod(sh("ls -A /it", volumeMounts=_MOUNTED), volumes=[_volume("it", configMap={"name": "nowhere", "optional": True})]),
        (succeeded(), Says("")),
    ),
    Case(
        "a host path is the host's own",
        pod(sh("test -x /it/sh", volumeMounts=_MOUNTED), volumes=[_volume("it", hostPath={"path": "/bin", "type": "Directory"})]),
        (succeeded(),),
    ),
    Case(
        "a host path of the wrong type cannot be mounted",
        pod(sh("exit 0", volumeMounts=_MOUNTED), volumes=[_volume("it", hostPath={"path": "/bin", "type": "File"})]),
        (
            Hears(
                {
                    "reason": "FailedMount",
                    "message": 'MountVolume.SetUp failed for volume "it" : hostPath type check failed: /bin is not a file',
                }
            ),
            Sees({"phase": "Pending"}),
        ),
    ),
    Case(
        "a part of a volume may be mounted alone, under a name made of variables",
        pod(
            sh("echo x > /it/file", volumeMounts=[{"name": "it", "mountPath": "/it", "subPathExpr": "of/$(WHO)"}], env=_env(WHO="me")),
            initContainers=[sh("mkdir -p /all/of/me", name="first", volumeMounts=[{"name": "it", "mountPath": "/all"}])],
            volumes=[_volume("it", emptyDir={})],
        ),
        (succeeded(),),
    ),
    Case(
        "the mounts of a container are told in its status",
        pod(sh("exit 0", volumeMounts=[{"name": "it", "mountPath": "/it", "readOnly": True}]), volumes=[_volume("it", emptyDir={})]),
        (succeeded(**main(volumeMounts=[{"name": "it", "mountPath": "/it", "readOnly": True, "recursiveReadOnly": "Disabled"}])),),
    ),
    Case(
        "a volume that needs a storage system keeps the pod waiting, and says why",
        pod(sh("exit 0", volumeMounts=_MOUNTED), volumes=[_volume("it", persistentVolumeClaim={"claimName": "disk"})]),
        (Hears({"reason": "FailedMount", "message": re.compile("persistentVolumeClaim")}), Sees({"phase": "Pending"})),
    ),
)

CASES = COMMANDS + VARIABLES + VOLUMES
