"""The flags and variables of Kubeflow's operator are understood, or refused with a sentence that says what to write."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest

from dlop.compat.kubeflow.flags import FLAGS, KINDS, VARIABLES
from dlop.frameworks.registry import load_registry
from dlop.operator.flags import Note, add_arguments, read_settings, with_two_dashes
from dlop.operator.settings import Settings, SettingsError

FLAGS_OF_1_9 = (
    *("metrics-bind-address", "health-probe-bind-address", "leader-elect", "leader-election-id", "enable-scheme", "gang-scheduler-name"),
    *("namespace", "controller-threads", "kube-api-qps", "kube-api-burst", "kubeconfig", "mpi-kubectl-delivery-image"),
    *("pytorch-init-container-image", "pytorch-init-container-template-file", "pytorch-init-container-max-tries"),
    *("webhook-server-port", "webhook-service-name", "webhook-secret-name"),
    *("zap-devel", "zap-encoder", "zap-log-level", "zap-stacktrace-level", "zap-time-encoding"),
)
"""All that the main program of release 1.9.4 has, and those of the log library that it has with it."""


def read(*words: str, **environ: str) -> tuple[Settings, list[Note]]:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add_arguments(parser)
    return read_settings(vars(parser.parse_args(with_two_dashes(words))), environ)


def settings(*words: str, **environ: str) -> Settings:
    return read(*words, **environ)[0]


def test_every_flag_of_the_old_operator_is_taken() -> None:
    assert {old.name for old in FLAGS if not old.is_refused} == set(FLAGS_OF_1_9)
    values = {"enable-scheme": "TFJob", "leader-elect": "true", "zap-devel": "true", "zap-encoder": "json", "zap-log-level": "info"}
    for name in FLAGS_OF_1_9:
        settings(f"--{name}={values.get(name, '1')}")


def test_the_arguments_of_an_old_deployment_start_dlop_unchanged() -> None:
    found, notes = read(
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
    assert found.model_dump(exclude_defaults=True, mode="json") == Settings.model_validate(expected).model_dump(
        exclude_defaults=True, mode="json"
    )
    assert [note.name for note in notes] == [
        *("--enable-scheme", "--controller-threads", "--leader-elect", "--leader-election-id", "--webhook-server-port", "--zap-log-level"),
    ]


def test_a_scheme_is_a_kind_of_kubeflow_and_of_nobody_else() -> None:
    registry = load_registry()
    chosen = registry.select(settings(*(f"--enable-scheme={kind}" for kind in KINDS)).kinds)
    assert {kind.job_type.kind for kind in chosen} == set(KINDS)
    assert {kind.job_type.group for kind in chosen} == {"kubeflow.org"}
    assert {kind.job_type.kind for kind in registry if kind.job_type.group == "kubeflow.org"} == set(KINDS)


def test_schemes_and_kinds_add_up() -> None:
    found = settings("--enable-scheme=TFJob", "--kinds=mxjobs.fioravanzo.org", DLOP_KINDS="ringjobs.example.org")
    assert found.kinds == ("mxjobs.fioravanzo.org", "TFJob.kubeflow.org")


def test_threads_are_for_each_kind_and_workers_for_all() -> None:
    assert settings("--controller-threads=3").workers == 3 * len(KINDS)
    assert settings("--controller-threads=3", "--enable-scheme=TFJob", "--enable-scheme=tfjob").workers == 3
    assert settings("--controller-threads=3", "--workers=5").workers == 5


def test_a_flag_goes_before_a_variable_and_a_name_of_dlop_before_an_old_one() -> None:
    assert settings(KUBEFLOW_NAMESPACE="old").namespaces == ("old",)
    assert settings(KUBEFLOW_NAMESPACE="old", DLOP_NAMESPACES="new").namespaces == ("new",)
    assert settings("--namespace=flag", KUBEFLOW_NAMESPACE="old", DLOP_NAMESPACES="new").namespaces == ("flag",)
    assert settings("--leader-election-id=old", DLOP_LEASE_NAME="new").lease_name == "old"
    assert settings("--leader-election-id=old", "--lease-name=new").lease_name == "new"


def test_an_empty_namespace_means_all_of_them() -> None:
    assert settings("--namespace=").namespaces == ()
    assert settings(KUBEFLOW_NAMESPACE="").namespaces == ()


def test_the_variables_of_the_old_operator_are_understood() -> None:
    found, notes = read(KUBEFLOW_NAMESPACE="team", MY_POD_NAMESPACE="kubeflow", CUSTOM_CLUSTER_DOMAIN="example.org")
    assert (found.namespaces, found.lease_namespace, found.cluster_domain) == (("team",), "kubeflow", "example.org")
    assert [note.name for note in notes] == [old.name for old in VARIABLES]


@pytest.mark.parametrize(
    ("level", "expected"), [("debug", "debug"), ("info", "info"), ("error", "error"), ("panic", "error"), ("1", "debug"), ("5", "debug")]
)
def test_levels_of_the_log_are_understood(level: str, expected: str) -> None:
    assert settings(f"--zap-log-level={level}").log_level == expected


@pytest.mark.parametrize(("words", "expected"), [((), None), (("--leader-elect",), True), (("--leader-elect=false",), False)])
def test_a_switch_can_be_left_out_or_given_either_way(words: tuple[str, ...], expected: bool | None) -> None:
    assert settings(*words).leader_election is expected


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("--enable-scheme=RingJob", "--enable-scheme is 'RingJob'; write one of TFJob, PyTorchJob"),
        ("--controller-threads=many", "--controller-threads is 'many'; write a whole number"),
        ("--controller-threads=0", "--controller-threads is '0'; write a whole number, at least 1"),
        ("--leader-elect=maybe", "--leader-elect is 'maybe'; write true or false"),
        ("--zap-encoder=xml", "--zap-encoder is 'xml'; write "),
        ("--zap-log-level=loud", "--zap-log-level is 'loud'; write debug, info or error"),
        ("--kube-api-qps=fast", "--kube-api-qps is 'fast'; write a number"),
        ("--enable-gang-scheduling", "--enable-gang-scheduling is from an older release: write --gang-scheduler-name=volcano"),
        ("--monitoring-port=9443", "--monitoring-port is from an older release: write --metrics-bind-address=:PORT"),
    ],
)
def test_what_makes_no_sense_is_told_by_its_old_name(word: str, sentence: str) -> None:
    with pytest.raises(SettingsError) as caught:
        settings(word)
    assert str(caught.value).startswith(sentence)


def test_who_uses_no_old_name_is_told_nothing() -> None:
    assert read("--namespace=team", "--workers=3", DLOP_LEASE_NAME="x")[1] == []


def test_the_readme_tells_what_becomes_of_each_of_them() -> None:
    readme = (Path(__file__).parents[3] / "README.md").read_text()
    table = readme.partition("<!-- old flags: made by hack/generate -->")[2].partition("<!-- end -->")[0]
    assert all(f"`{name}`" in table for name in (*(old.flag for old in FLAGS), *(old.name for old in VARIABLES)))
