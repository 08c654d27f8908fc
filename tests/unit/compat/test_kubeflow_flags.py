"""Flags and variables of the Kubeflow training operator are supported, or rejected with an error that names the alternative."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest

from dlop.compat.kubeflow.flags import KINDS, LEGACY_FLAGS, LEGACY_VARIABLES
from dlop.frameworks.registry import load_registry
from dlop.operator.flags import LegacyNotice, add_arguments, normalize_dashes, read_settings
from dlop.operator.settings import Settings, SettingsError, with_framework_flags

SETTINGS = with_framework_flags(load_registry().flags)
FLAGS_OF_1_9 = (
    *("metrics-bind-address", "health-probe-bind-address", "leader-elect", "leader-election-id", "enable-scheme", "gang-scheduler-name"),
    *("namespace", "controller-threads", "kube-api-qps", "kube-api-burst", "kubeconfig", "mpi-kubectl-delivery-image"),
    *("pytorch-init-container-image", "pytorch-init-container-template-file", "pytorch-init-container-max-tries"),
    *("webhook-server-port", "webhook-service-name", "webhook-secret-name"),
    *("zap-devel", "zap-encoder", "zap-log-level", "zap-stacktrace-level", "zap-time-encoding"),
)
"""All flags of release 1.9.4, including those of its logging library."""


def read(*arguments: str, **environ: str) -> tuple[Settings, list[LegacyNotice]]:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add_arguments(parser, SETTINGS)
    return read_settings(vars(parser.parse_args(normalize_dashes(arguments))), environ, SETTINGS)


def settings(*arguments: str, **environ: str) -> Settings:
    return read(*arguments, **environ)[0]


def test_every_flag_of_the_kubeflow_operator_is_accepted() -> None:
    assert {legacy.name for legacy in LEGACY_FLAGS if not legacy.is_rejected} == set(FLAGS_OF_1_9)
    values = {"enable-scheme": "TFJob", "leader-elect": "true", "zap-devel": "true", "zap-encoder": "json", "zap-log-level": "info"}
    for name in FLAGS_OF_1_9:
        settings(f"--{name}={values.get(name, '1')}")


def test_the_arguments_of_a_kubeflow_deployment_work_unchanged() -> None:
    actual, notices = read(
        *("--enable-scheme=tfjob", "--enable-scheme=PYTORCHJOB", "-leader-elect", "--leader-election-id=training", "-namespace=team"),
        *("--gang-scheduler-name=volcano", "--controller-threads=4", "--kube-api-qps=100", "--kube-api-burst=200", "--zap-log-level=2"),
        *("--webhook-server-port=9443", "--mpi-kubectl-delivery-image=example.org/kubectl:1"),
    )
    expected: dict[str, Any] = {
        "kinds": ("TFJob.kubeflow.org", "PyTorchJob.kubeflow.org"),
        "leader_election": True,
        "lease_name": "training",
        "namespaces": ("team",),
        "gang_scheduler_name": "volcano",
        "workers": 8,
        "kube_api_qps": 100.0,
        "kube_api_burst": 200,
        "log_level": "debug",
        "mpi_kubectl_delivery_image": "example.org/kubectl:1",
    }
    assert actual.model_dump(exclude_defaults=True, mode="json") == SETTINGS.model_validate(expected).model_dump(
        exclude_defaults=True, mode="json"
    )
    assert [notice.name for notice in notices] == [
        *("--enable-scheme", "--controller-threads", "--leader-elect", "--leader-election-id", "--webhook-server-port", "--zap-log-level"),
    ]


def test_a_scheme_is_a_kind_of_kubeflow_org() -> None:
    registry = load_registry()
    selected = registry.select(settings(*(f"--enable-scheme={kind}" for kind in KINDS)).kinds)
    assert {kind.job_type.kind for kind in selected} == set(KINDS)
    assert {kind.job_type.group for kind in selected} == {"kubeflow.org"}
    assert {kind.job_type.kind for kind in registry if kind.job_type.group == "kubeflow.org"} == set(KINDS)


def test_schemes_and_kinds_are_combined() -> None:
    actual = settings("--enable-scheme=TFJob", "--kinds=mxjobs.fioravanzo.org", DLOP_KINDS="ringjobs.example.org")
    assert actual.kinds == ("mxjobs.fioravanzo.org", "TFJob.kubeflow.org")


def test_controller_threads_are_per_kind_and_workers_are_for_all_kinds() -> None:
    assert settings("--controller-threads=3").workers == 3 * len(KINDS)
    assert settings("--controller-threads=3", "--enable-scheme=TFJob", "--enable-scheme=tfjob").workers == 3
    assert settings("--controller-threads=3", "--workers=5").workers == 5


def test_flags_take_precedence_over_variables_and_names_of_dlop_over_legacy_names() -> None:
    assert settings(KUBEFLOW_NAMESPACE="old").namespaces == ("old",)
    assert settings(KUBEFLOW_NAMESPACE="old", DLOP_NAMESPACES="new").namespaces == ("new",)
    assert settings("--namespace=flag", KUBEFLOW_NAMESPACE="old", DLOP_NAMESPACES="new").namespaces == ("flag",)
    assert settings("--leader-election-id=old", DLOP_LEASE_NAME="new").lease_name == "old"
    assert settings("--leader-election-id=old", "--lease-name=new").lease_name == "new"


def test_an_empty_namespace_means_all_namespaces() -> None:
    assert settings("--namespace=").namespaces == ()
    assert settings(KUBEFLOW_NAMESPACE="").namespaces == ()


def test_the_variables_of_the_kubeflow_operator_are_supported() -> None:
    actual, notices = read(KUBEFLOW_NAMESPACE="team", MY_POD_NAMESPACE="kubeflow", CUSTOM_CLUSTER_DOMAIN="example.org")
    assert (actual.namespaces, actual.lease_namespace, actual.cluster_domain) == (("team",), "kubeflow", "example.org")
    assert [notice.name for notice in notices] == [legacy.name for legacy in LEGACY_VARIABLES]


@pytest.mark.parametrize(
    ("level", "expected"), [("debug", "debug"), ("info", "info"), ("error", "error"), ("panic", "error"), ("1", "debug"), ("5", "debug")]
)
def test_log_levels_are_converted(level: str, expected: str) -> None:
    assert settings(f"--zap-log-level={level}").log_level == expected


@pytest.mark.parametrize(("arguments", "expected"), [((), None), (("--leader-elect",), True), (("--leader-elect=false",), False)])
def test_a_boolean_flag_is_unset_true_or_false(arguments: tuple[str, ...], expected: bool | None) -> None:
    assert settings(*arguments).leader_election is expected


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("--enable-scheme=RingJob", "--enable-scheme: invalid value 'RingJob': must be one of TFJob, PyTorchJob"),
        ("--controller-threads=many", "--controller-threads: invalid value 'many': must be an integer"),
        ("--controller-threads=0", "--controller-threads: invalid value '0': must be an integer of at least 1"),
        ("--leader-elect=maybe", "--leader-elect: invalid value 'maybe': must be true or false"),
        ("--zap-encoder=xml", "--zap-encoder: invalid value 'xml': must be "),
        ("--zap-log-level=loud", "--zap-log-level: invalid value 'loud': must be debug, info or error"),
        ("--kube-api-qps=fast", "--kube-api-qps: invalid value 'fast': must be a number"),
        ("--enable-gang-scheduling", "--enable-gang-scheduling is not supported: use --gang-scheduler-name=volcano"),
        ("--monitoring-port=9443", "--monitoring-port is not supported: use --metrics-bind-address=:PORT"),
    ],
)
def test_an_invalid_value_is_reported_with_the_legacy_name(argument: str, message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        settings(argument)
    assert str(caught.value).startswith(message)


def test_without_legacy_names_there_are_no_notices() -> None:
    assert read("--namespace=team", "--workers=3", DLOP_LEASE_NAME="x")[1] == []


def test_the_readme_documents_every_legacy_flag_and_variable() -> None:
    page = (Path(__file__).parents[3] / "manifests" / "kubeflow" / "README.md").read_text()
    table = page.partition("<!-- legacy flags: generated by hack/generate -->")[2].partition("<!-- end -->")[0]
    assert all(f"`{name}`" in table for name in (*(legacy.flag for legacy in LEGACY_FLAGS), *(legacy.name for legacy in LEGACY_VARIABLES)))
