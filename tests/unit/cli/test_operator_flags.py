"""`dlop deploy -- FLAGS`: flags of the deployed operator."""

from __future__ import annotations

import pytest

from dlop.cli.deploy import operator_flags, parser
from dlop.cli.errors import UsageError
from dlop.deploy.deployment import DeployOptions, deployment


def test_flags_after_the_dashes_are_passed_to_the_operator() -> None:
    options = parser().parse_args(["--image", "dlop:1", "--", "--gang-scheduler-name", "volcano", "--workers=8"])
    (container,) = deployment(DeployOptions(flags=operator_flags(options.flags, permission_sets=("gang",))))["spec"]["template"]["spec"][
        "containers"
    ]
    assert container["args"] == ["run", "--gang-scheduler-name", "volcano", "--workers=8"]


def test_flag_names_of_the_kubeflow_operator_are_accepted() -> None:
    assert operator_flags(["--controller-threads=4", "--leader-elect"]) == ("--controller-threads=4", "--leader-elect")


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--workers=many", "--workers: invalid value 'many': must be an integer"),
        ("--monitoring-port=1", "use --metrics-bind-address=:PORT"),
        ("--bind-address=:9090", "--bind-address is not supported after --: remove it"),
        ("--metrics-bind-address=:8080", "expect probes and metrics on port 8080"),
        ("--namespaces=team", "use --watch-namespace NAME before --"),
        ("--namespace=team", "--namespace is not supported after --: use --watch-namespace NAME before --"),
        ("-enable-scheme=TFJob", "--enable-scheme is not supported after --: use --kinds KINDS before --"),
        ("--leader-election-id=mine", "--leader-election-id is not supported after --: remove it"),
        ("--pytorch-init-container-template-file=/etc/a.yaml", "mount it in the output of `dlop manifests`"),
        ("--gang-scheduler-name=volcano", "use --with gang before --"),
    ],
)
def test_invalid_and_unsupported_flags_are_rejected(flag: str, message: str) -> None:
    with pytest.raises(UsageError) as raised:
        operator_flags([flag])
    assert message in str(raised.value)
