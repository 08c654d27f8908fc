"""Flags and variables of KubeDL are supported, or rejected with an error that names the alternative."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest

from dlop.compat.kubedl.flags import KINDS, KUBEDL, LEGACY_FLAGS, LEGACY_VARIABLES
from dlop.compat.kubeflow.flags import KUBEFLOW
from dlop.frameworks.registry import load_registry
from dlop.operator.flags import LegacyNotice, add_arguments, normalize_dashes, read_settings
from dlop.operator.settings import Settings, SettingsError, list_settings, with_framework_flags

SETTINGS = with_framework_flags(load_registry().flags)
FLAGS = (
    *("controller-metrics-addr", "metrics-addr", "enable-leader-election", "gang-scheduler-name", "max-reconciles", "model-image-builder"),
    *("hostnetwork-port-range", "workloads", "kubectl-delivery-image", "region", "event-storage", "meta-storage", "feature-gates"),
    "launcher-runs-workloads",
)
"""All flags of the last commit."""
VALUES = {
    "enable-leader-election": "true",
    "launcher-runs-workloads": "true",
    "hostnetwork-port-range": "20000-30000",
    "feature-gates": "JobCoordinator=false,HostNetWithHeadlessSvc=true",
    "workloads": "auto",
}


def read(*arguments: str, **environ: str) -> tuple[Settings, list[LegacyNotice]]:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add_arguments(parser, SETTINGS)
    return read_settings(vars(parser.parse_args(normalize_dashes(arguments))), environ, SETTINGS)


def settings(*arguments: str, **environ: str) -> Settings:
    return read(*arguments, **environ)[0]


def kinds(*names: str) -> tuple[str, ...]:
    return tuple(f"{name}.training.kubedl.io" for name in names)


def test_every_flag_of_kubedl_is_accepted() -> None:
    assert {legacy.name for legacy in LEGACY_FLAGS if not legacy.is_rejected} == set(FLAGS)
    for name in FLAGS:
        settings(f"--{name}={VALUES.get(name, '1')}")


def test_the_arguments_of_a_kubedl_deployment_work_unchanged() -> None:
    actual, notices = read(
        *("--workloads=TFJob,PyTorchJob,XDLJob,-XDLJob", "--max-reconciles=4", "--enable-leader-election=false", "--metrics-addr=8443"),
        *("--controller-metrics-addr=:8088", "--gang-scheduler-name=kube-batch", "--hostnetwork-port-range=20000-30000"),
        *("--feature-gates=DAGScheduling=true,JobCoordinator=false", "--model-image-builder=kaniko", "--meta-storage=mysql"),
    )
    expected: dict[str, Any] = {
        "kinds": kinds("TFJob", "PyTorchJob"),
        "workers": 8,
        "leader_election": False,
        "metrics_bind_address": ":8443",
        "gang_scheduler_name": "kube-batch",
        "host_port_range": "20000-30000",
    }
    assert actual.model_dump(exclude_defaults=True, mode="json") == SETTINGS.model_validate(expected).model_dump(
        exclude_defaults=True, mode="json"
    )
    assert [notice.name for notice in notices] == [
        *("--workloads", "--max-reconciles", "--enable-leader-election", "--hostnetwork-port-range", "--controller-metrics-addr"),
        *("--metrics-addr", "--feature-gates", "--model-image-builder", "--meta-storage"),
    ]


def test_a_workload_is_a_kind_of_training_kubedl_io() -> None:
    registry = load_registry()
    selected = registry.select(settings("--workloads=*").kinds)
    assert {kind.job_type.kind for kind in selected} == set(KINDS)
    assert {kind.job_type.group for kind in selected} == {"training.kubedl.io"}
    assert {kind.job_type.kind for kind in registry if kind.job_type.group == "training.kubedl.io"} == set(KINDS)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("auto", KINDS),
        ("*", KINDS),
        ("tfjob, XGBoostJob", ("TFJob", "XGBoostJob")),
        ("*,-XDLJob", tuple(kind for kind in KINDS if kind != "XDLJob")),
        ("auto,-Notebook", KINDS),
        ("-TFJob", KINDS[1:]),
        ("TFJob,MarsJob,-marsjob", ("TFJob",)),
    ],
)
def test_workloads_are_listed_and_disabled(value: str, expected: tuple[str, ...]) -> None:
    assert settings(f"--workloads={value}").kinds == kinds(*expected)
    assert settings(WORKLOADS_ENABLE=value).kinds == kinds(*expected)


@pytest.mark.parametrize("flag", ["--workloads", "-workloads"])
@pytest.mark.parametrize(("value", "expected"), [("-TFJob", KINDS[1:]), ("-TFJob,*,-PyTorchJob", KINDS[2:]), ("XDLJob", ("XDLJob",))])
def test_the_value_of_a_flag_may_be_the_next_argument_even_if_it_starts_with_a_dash(
    flag: str, value: str, expected: tuple[str, ...]
) -> None:
    actual = settings(flag, value, "-max-reconciles", "2")
    assert (actual.kinds, actual.workers) == (kinds(*expected), 2 * len(expected))


@pytest.mark.parametrize("following", ["--max-reconciles=2", "-max-reconciles=2", "--workers=2", ""])
def test_a_flag_is_not_the_value_of_the_one_before(following: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        settings("--workloads", *([following] if following else []))
    assert "argument --workloads: expected one argument" in capsys.readouterr().err


def test_a_switch_does_not_take_the_next_argument() -> None:
    actual = settings("-enable-leader-election", "-workloads", "-TFJob")
    assert (actual.leader_election, actual.kinds) == (True, kinds(*KINDS[1:]))


def test_the_flag_takes_precedence_over_the_variable_and_the_name_of_dlop_over_both() -> None:
    assert settings("--workloads=auto", WORKLOADS_ENABLE="TFJob").kinds == kinds(*KINDS)
    assert settings(WORKLOADS_ENABLE="TFJob", DLOP_KINDS="mxjobs.fioravanzo.org").kinds == ("mxjobs.fioravanzo.org",)


def test_workloads_schemes_and_kinds_are_combined() -> None:
    actual = settings("--workloads=TFJob", "--enable-scheme=MPIJob", "--kinds=mxjobs.fioravanzo.org").kinds
    assert actual == ("mxjobs.fioravanzo.org", "MPIJob.kubeflow.org", "TFJob.training.kubedl.io")


def test_reconciles_are_per_kind_and_workers_are_for_all_kinds() -> None:
    assert settings("--max-reconciles=3").workers == 3 * len(KINDS)
    assert settings("--max-reconciles=3", "--workloads=TFJob").workers == 3
    assert settings("--max-reconciles=3", "--workers=5").workers == 5


@pytest.mark.parametrize(
    ("value", "expected"),
    [("20000-30000", "20000-30000"), ("20000+500", "20000-20500"), ("60000+10000", "60000-65535"), ("2222", "2222-2222")],
)
def test_a_range_of_ports_has_the_notations_of_kubernetes(value: str, expected: str) -> None:
    assert settings(f"--hostnetwork-port-range={value}").host_port_range == expected


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--controller-metrics-addr=:8088",), ":8088"),
        (("--controller-metrics-addr=0",), "off"),
        (("--metrics-addr=8443",), ":8443"),
        (("--metrics-addr=8443", "--metrics-bind-address=:9"), ":9"),
    ],
)
def test_all_metrics_are_on_one_port(arguments: tuple[str, ...], expected: str) -> None:
    assert settings(*arguments).metrics_bind_address == expected


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("--workloads=RingJob", "--workloads: invalid value 'RingJob': must be one of TFJob, PyTorchJob"),
        ("--workloads=TFJob,Notebook", "--workloads: invalid value 'Notebook': dlop does not run this kind; remove it from the list"),
        ("--workloads=TFJob,-TFJob", "--workloads: invalid value 'TFJob,-TFJob': must leave at least one kind; available: TFJob"),
        ("--workloads=-*", "--workloads: invalid value '-*': must leave at least one kind"),
        ("--max-reconciles=0", "--max-reconciles: invalid value '0': must be an integer of at least 1"),
        ("--metrics-addr=:8443", "--metrics-addr: invalid value ':8443': must be a port; use --metrics-bind-address for an address"),
        ("--hostnetwork-port-range=many", "--hostnetwork-port-range: invalid value 'many': must be a range of ports, like 20000-30000"),
        ("--hostnetwork-port-range=30000-20000", "--hostnetwork-port-range: invalid value '30000-20000': must be a range of ports between"),
        ("--hostnetwork-port-range=0", "--hostnetwork-port-range: invalid value '0': must be a range of ports between 1 and 65535"),
        (
            "--feature-gates=DAGScheduling=false",
            "--feature-gates: invalid value 'DAGScheduling=false': dlop always behaves as with DAGSched",
        ),
        (
            "--feature-gates=Magic=true",
            "--feature-gates: invalid value 'Magic=true': must be GATE=true or GATE=false; gates: GangScheduling",
        ),
        ("--feature-gates=JobCoordinator", "--feature-gates: invalid value 'JobCoordinator': must be GATE=true or GATE=false"),
    ],
)
def test_an_invalid_value_is_reported_with_the_legacy_name(argument: str, message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        settings(argument)
    assert str(caught.value).startswith(message)


def test_an_invalid_variable_is_reported_with_its_name() -> None:
    with pytest.raises(SettingsError, match="WORKLOADS_ENABLE: invalid value 'RingJob'"):
        settings(WORKLOADS_ENABLE="RingJob")


def test_a_flag_of_both_operators_is_one_of_dlop_and_a_variable_of_both_is_the_same() -> None:
    own = {flag for setting in list_settings(SETTINGS) for flag in setting.flags}
    shared = {flag.flag for flag in KUBEDL.flags} & {flag.flag for flag in KUBEFLOW.flags}
    assert shared == {"--gang-scheduler-name"}
    assert shared <= own
    variables = {variable.name: variable for variable in KUBEFLOW.variables}
    assert all(variables.get(variable.name, variable) == variable for variable in KUBEDL.variables)


def test_the_page_documents_every_legacy_flag_and_variable() -> None:
    page = (Path(__file__).parents[3] / "manifests" / "kubedl" / "README.md").read_text()
    table = page.partition("<!-- flags of KubeDL: generated by hack/generate -->")[2].partition("<!-- end -->")[0]
    assert all(f"`{name}`" in table for name in (*(legacy.flag for legacy in LEGACY_FLAGS), *(legacy.name for legacy in LEGACY_VARIABLES)))


@pytest.mark.parametrize(("value", "expected"), [("=true", True), ("", True), ("=false", False)])
def test_launchers_run_workloads_unless_the_flag_is_false(value: str, expected: bool) -> None:
    assert settings().model_dump()["mpi_launcher_runs_workloads"] is True
    assert settings(f"--launcher-runs-workloads{value}").model_dump()["mpi_launcher_runs_workloads"] is expected
