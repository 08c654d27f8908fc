"""Whole installations: every object of an operator that works, in the order in which they are to be created."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from dlop.api.crd import Kind
from dlop.deploy import deployment, rbac
from dlop.deploy.deployment import DeployOptions
from dlop.deploy.permission_sets import KindWithOptionalRights, rights_named
from dlop.kube.types import JsonObject


class InstalledKind(Kind, rbac.KindWithRights, KindWithOptionalRights, Protocol):
    """What has to be known of a class of jobs to install it. `dlop.DLJob` is one."""


def operator(kinds: Sequence[InstalledKind], chosen: DeployOptions) -> list[JsonObject]:
    """The operator and its rights, without the namespace that it stands in and without definitions.

    Raises:
        UnknownRightsError: rights were chosen that there are not.
    """
    if chosen.watched_namespaces:
        rights = rbac.in_namespaces(kinds, chosen.account, chosen.watched_namespaces)
    else:
        rights = [*rbac.cluster_wide(kinds, chosen.account), *rbac.for_users(kinds)]
    rights += rbac.given(rights_named(chosen.rights, kinds), chosen.account, chosen.watched_namespaces)
    account = deployment.service_account(chosen.account)
    return [account, *rights, deployment.metrics_service(chosen), deployment.deployment(chosen)]
