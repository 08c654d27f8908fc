"""`dlop deploy -- FLAGS`: flags of the deployed operator."""

from __future__ import annotations

import pytest

from dlop.cli.deploy import operator_flags, parser
from dlop.cli.errors import UsageError
from dlop.cli.main import main
from dlop.cli.run import framework_references
from dlop.cli.run import parser as run_parser
from dlop.deploy.deployment import DeployOptions, deployment
from dlop.frameworks.registry import load_registry
from dlop.operator.settings import with_framework_flags


def test_flags_after_the_dashes_are_passed_to_the_operator() -> None:
    options = parser().parse_args(["--image", "dlop:1", "--", "--gang-scheduler-name", "volcano", "--workers=8"])
    flags = operator_flags(options.flags, load_registry(), permission_sets=("gang",))
    (container,) = deployment(DeployOptions(flags=flags))["spec"]["template"]["spec"]["containers"]
    assert container["args"] == ["run", "--gang-scheduler-name", "volcano", "--workers=8"]


def test_flag_names_of_the_kubeflow_operator_are_accepted() -> None:
    assert operator_flags(["--controller-threads=4", "--leader-elect"], load_registry()) == ("--controller-threads=4", "--leader-elect")


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--workers=many", "--workers: invalid value 'many': must be an integer"),
        ("--monitoring-port=1", "use --metrics-bind-address=:PORT"),
        ("--bind-address=:9090", "--bind-address is not supported after --: remove it"),
        ("--metrics-bind-address=:8080", "--metrics-from NAMESPACE before -- gives access to the metrics"),
        ("--namespaces=team", "use --watch-namespace NAME before --"),
        ("--namespace=team", "--namespace is not supported after --: use --watch-namespace NAME before --"),
        ("-enable-scheme=TFJob", "--enable-scheme is not supported after --: use --kinds KINDS before --"),
        ("--leader-election-id=mine", "--leader-election-id is not supported after --: remove it"),
        ("--pytorch-init-container-template-file=/etc/a.yaml", "mount it in the output of `dlop manifests`"),
        ("--gang-scheduler-name=volcano", "--gang-scheduler-name needs permissions for PodGroups: add --with gang before --"),
        ("--force-deletion=node-down", "--force-deletion node-down needs read access to nodes: add --with nodes before --"),
        ("--autoscaler", "--autoscaler needs read access to nodes: add --with nodes before --"),
    ],
)
def test_invalid_and_unsupported_flags_are_rejected(flag: str, message: str) -> None:
    with pytest.raises(UsageError) as raised:
        operator_flags([flag], load_registry())
    assert message in str(raised.value)


def test_the_autoscaler_is_rejected_for_an_operator_that_does_not_watch_all_namespaces() -> None:
    assert operator_flags(["--autoscaler"], load_registry(), permission_sets=("nodes",)) == ("--autoscaler",)
    with pytest.raises(UsageError, match="--autoscaler needs the pods of all namespaces"):
        operator_flags(["--autoscaler"], load_registry(), permission_sets=("nodes",), namespaces=("team",))


FRAMEWORK = "tests.unit.operator.ring_flags:FlaggedJob"


def test_flags_of_a_framework_are_accepted_together_with_the_framework() -> None:
    assert operator_flags(["--ring-size=7"], load_registry([FRAMEWORK])) == ("--ring-size=7",)
    with pytest.raises(UsageError, match="unrecognized arguments: --ring-size=7"):
        operator_flags(["--ring-size=7"], load_registry())
    with pytest.raises(UsageError, match="--ring-order-file is not supported after --: the pod has no such file"):
        operator_flags(["--ring-order-file=/etc/order"], load_registry([FRAMEWORK]))


@pytest.mark.parametrize("arguments", [["--framework", FRAMEWORK], [f"--frameworks={FRAMEWORK}"], []])
def test_dlop_run_loads_frameworks_before_it_parses_their_flags(arguments: list[str]) -> None:
    environ = {} if arguments else {"DLOP_FRAMEWORKS": FRAMEWORK}
    references = framework_references([*arguments, "--ring-size", "7", "--workers=2", "--help"], environ)
    assert references == (FRAMEWORK,)
    model = with_framework_flags(load_registry(references).flags)
    assert run_parser(model).parse_args([*arguments, "--ring-size", "7"]).ring_size == "7"


def test_a_framework_that_cannot_be_loaded_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--framework", "no_such_module:Job"]) == 1
    assert "cannot import module 'no_such_module'" in capsys.readouterr().err


def test_the_help_lists_the_flags_of_the_framework_in_the_same_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["run", "--framework", FRAMEWORK, "--help"])
    assert "--ring-order-file VALUE" in capsys.readouterr().out
