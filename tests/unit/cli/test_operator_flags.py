"""`dlop deploy -- FLAGS`: what an operator that is deployed can be started with."""

from __future__ import annotations

import pytest

from dlop.cli.deploy import operator_flags, parser
from dlop.cli.errors import UsageError
from dlop.deploy.deployment import DeployOptions, deployment


def test_what_comes_after_the_dashes_is_for_the_operator() -> None:
    options = parser().parse_args(["--image", "dlop:1", "--", "--gang-scheduler-name", "volcano", "--workers=8"])
    (container,) = deployment(DeployOptions(flags=operator_flags(options.flags, rights=("gang",))))["spec"]["template"]["spec"][
        "containers"
    ]
    assert container["args"] == ["run", "--gang-scheduler-name", "volcano", "--workers=8"]


def test_names_of_the_old_operator_are_as_good() -> None:
    assert operator_flags(["--controller-threads=4", "--leader-elect"]) == ("--controller-threads=4", "--leader-elect")


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("--workers=many", "--workers is 'many'; write a whole number"),
        ("--monitoring-port=1", "write --metrics-bind-address=:PORT"),
        ("--bind-address=:9090", "--bind-address cannot be given after the two dashes: leave it out"),
        ("--metrics-bind-address=:8080", "leave it out: probes and metrics are on port 8080"),
        ("--namespaces=team", "write --watch-namespace NAME before"),
        ("--namespace=team", "--namespace cannot be given after the two dashes: write --watch-namespace NAME before"),
        ("-enable-scheme=TFJob", "--enable-scheme cannot be given after the two dashes: write --kinds KINDS before"),
        ("--leader-election-id=mine", "--leader-election-id cannot be given after the two dashes: leave it out"),
        ("--pytorch-init-container-template-file=/etc/a.yaml", "mount it in what `dlop manifests` prints"),
        ("--gang-scheduler-name=volcano", "write --with gang before"),
    ],
)
def test_what_would_not_start_or_not_fit_is_refused_before_anything_is_changed(word: str, told: str) -> None:
    with pytest.raises(UsageError) as refusal:
        operator_flags([word])
    assert told in str(refusal.value)
