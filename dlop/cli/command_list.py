"""All commands. It imports none of them, so that `dlop --help` stays fast."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CommandInfo:
    """The module of a command, its help text, and its functions in the module."""

    module: str
    summary: str
    main: str = "main"
    parser: str = "parser"


DEFAULT_COMMAND = "run"
COMMANDS = {
    "run": CommandInfo("run", "Run the operator (default command)"),
    "get": CommandInfo("get", "Show jobs of all kinds, and Crons"),
    "describe": CommandInfo("describe", "Show details of a job or a Cron: replicas, pending reasons, last failure and history"),
    "logs": CommandInfo("logs", "Print the logs of a job's replicas"),
    "tensorboard": CommandInfo("tensorboard", "Open the TensorBoard of a job in a browser"),
    "submit": CommandInfo("submit", "Create jobs from files, and optionally follow them"),
    "wait": CommandInfo("wait", "Wait for a job to succeed, fail, finish, run or be deleted"),
    "scale": CommandInfo("scale", "Set the number of replicas of a job's roles"),
    "suspend": CommandInfo("suspend", "Suspend jobs: delete their pods and keep the jobs"),
    "resume": CommandInfo("suspend", "Resume suspended jobs", main="resume_main", parser="resume_parser"),
    "delete": CommandInfo("delete", "Delete jobs with their pods and services"),
    "local": CommandInfo("local", "Run jobs on this machine without a cluster"),
    "render": CommandInfo("render", "Print the pods and services of a job without creating them"),
    "crds": CommandInfo("manifests", "Print the custom resource definitions", main="crds_main", parser="crds_parser"),
    "manifests": CommandInfo("manifests", "Print or write the objects of a deployment: CRDs, RBAC and the operator"),
    "install": CommandInfo("install", "Install or update the CRDs in the cluster"),
    "uninstall": CommandInfo("install", "Delete the CRDs and all jobs from the cluster", main="uninstall_main", parser="uninstall_parser"),
    "deploy": CommandInfo("deploy", "Deploy the operator to the cluster"),
    "undeploy": CommandInfo(
        "deploy",
        "Delete the operator from the cluster; jobs, CRDs and the namespace are kept",
        main="undeploy_main",
        parser="undeploy_parser",
    ),
    "new-framework": CommandInfo("new_framework", "Generate a new framework: a class, an example and a test"),
    "completion": CommandInfo("completion", "Print a shell completion script"),
    "version": CommandInfo("version", "Print the version"),
}
