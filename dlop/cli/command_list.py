"""The commands that there are. Nothing of them is imported here: help must come at once."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Command:
    """One command: the module that has its `main` and its `parser`, and what help says of it."""

    module: str
    summary: str
    main: str = "main"
    parser: str = "parser"


DEFAULT_COMMAND = "run"
COMMANDS = {
    "run": Command("run", "run the operator (the default)"),
    "get": Command("get", "show jobs of all kinds in one table"),
    "describe": Command("describe", "tell all about a job: what happened, what it waits for, how it failed"),
    "logs": Command("logs", "print what the replicas of a job have written, across restarts"),
    "submit": Command("submit", "create jobs, and stay with them if you like"),
    "wait": Command("wait", "wait until a job has succeeded, failed, or runs"),
    "scale": Command("scale", "give roles of a job other numbers of replicas"),
    "suspend": Command("suspend", "end the pods of a job and keep the job"),
    "resume": Command("suspend", "resume a suspended job", main="resume", parser="resume_parser"),
    "delete": Command("delete", "delete jobs, with their pods and services"),
    "local": Command("local", "run jobs on this machine, without a cluster"),
    "render": Command("render", "print the pods and services that a job would get, without a cluster"),
    "crds": Command("crds", "print the custom resource definitions"),
    "manifests": Command("manifests", "print or write all that a deployment needs: definitions, rights, the operator"),
    "install": Command("install", "bring the custom resource definitions into the cluster"),
    "uninstall": Command("uninstall", "take them out of the cluster, with all jobs"),
    "deploy": Command("deploy", "run the operator in the cluster"),
    "undeploy": Command("undeploy", "end it; jobs, definitions and the namespace stay"),
    "new-framework": Command("new_framework", "write a new framework: a class, an example and a test"),
    "completion": Command("completion", "print a script that lets a shell complete commands and flags"),
    "version": Command("version", "print the version"),
}
