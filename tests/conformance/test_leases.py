"""Leases, as leader election uses them."""

from __future__ import annotations

import asyncio

import pytest

from dlop.kube.errors import BadRequestError, ConflictError, InvalidError
from dlop.kube.resources import LEASES
from tests.conformance.bodies import lease
from tests.conformance.support import Api, expect_error, resource_version_of


async def test_a_lease_stores_microseconds(api: Api) -> None:
    body = lease("a")
    body["spec"] |= {"acquireTime": "2026-01-01T00:00:00.000001Z", "renewTime": "2026-01-01T00:00:01.500000Z", "leaseTransitions": 2}
    created = await api.create(LEASES, body)
    assert created["spec"] == body["spec"]


async def test_a_lease_is_renewed_by_replacing_it(api: Api) -> None:
    current = await api.create(LEASES, lease("a"))
    for second in range(3):
        spec = current["spec"] | {"renewTime": f"2026-01-01T00:00:0{second}.000000Z"}
        renewed = await api.replace(LEASES, current | {"spec": spec})
        assert resource_version_of(renewed) > resource_version_of(current)
        current = renewed


async def test_only_one_of_two_candidates_acquires_an_expired_lease(api: Api) -> None:
    expired = await api.create(LEASES, lease("a", "previous"))
    attempts = [
        api.replace(LEASES, expired | {"spec": {"holderIdentity": candidate, "leaseDurationSeconds": 15}}) for candidate in ("x", "y")
    ]
    results = await asyncio.gather(*attempts, return_exceptions=True)
    assert sum(isinstance(result, ConflictError) for result in results) == 1


async def test_a_released_lease_has_no_holder(api: Api) -> None:
    created = await api.create(LEASES, lease("a"))
    released = await api.replace(LEASES, created | {"spec": {"holderIdentity": "", "leaseDurationSeconds": 1}})
    assert released["spec"] == {"holderIdentity": "", "leaseDurationSeconds": 1}


@pytest.mark.parametrize("seconds", [0, -1])
async def test_the_duration_of_a_lease_must_be_positive(api: Api, seconds: int) -> None:
    body = lease("a")
    body["spec"]["leaseDurationSeconds"] = seconds
    error = await expect_error(api.create(LEASES, body), InvalidError)
    message = f"Invalid value: {seconds}: must be greater than 0"
    assert error.causes == [{"reason": "FieldValueInvalid", "message": message, "field": "spec.leaseDurationSeconds"}]
    assert error.details["group"] == "coordination.k8s.io"


async def test_an_invalid_time_is_a_bad_request(api: Api) -> None:
    body = lease("a")
    body["spec"]["renewTime"] = "garbage"
    error = await expect_error(api.create(LEASES, body), BadRequestError)
    assert str(error).startswith('Lease in version "v1" cannot be handled as a Lease: parsing time "garbage"')
