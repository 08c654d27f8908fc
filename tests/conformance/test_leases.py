"""Leases, as leader election uses them."""

from __future__ import annotations

import asyncio

import pytest

from dlop.kube.errors import BadRequestError, ConflictError, InvalidError
from dlop.kube.resources import LEASES
from tests.conformance.bodies import lease
from tests.conformance.support import Api, refused, version_of


async def test_a_lease_keeps_times_to_the_microsecond(api: Api) -> None:
    body = lease("a")
    body["spec"] |= {"acquireTime": "2026-01-01T00:00:00.000001Z", "renewTime": "2026-01-01T00:00:01.500000Z", "leaseTransitions": 2}
    created = await api.create(LEASES, body)
    assert created["spec"] == body["spec"]


async def test_a_lease_is_renewed_by_replacing_the_version_that_was_read(api: Api) -> None:
    found = await api.create(LEASES, lease("a"))
    for second in range(3):
        spec = found["spec"] | {"renewTime": f"2026-01-01T00:00:0{second}.000000Z"}
        renewed = await api.replace(LEASES, found | {"spec": spec})
        assert version_of(renewed) > version_of(found)
        found = renewed


async def test_two_candidates_for_an_expired_lease_do_not_both_get_it(api: Api) -> None:
    expired = await api.create(LEASES, lease("a", "gone"))
    attempts = [api.replace(LEASES, expired | {"spec": {"holderIdentity": who, "leaseDurationSeconds": 15}}) for who in ("x", "y")]
    answers = await asyncio.gather(*attempts, return_exceptions=True)
    assert sum(isinstance(answer, ConflictError) for answer in answers) == 1


async def test_a_lease_that_is_released_has_no_holder(api: Api) -> None:
    found = await api.create(LEASES, lease("a"))
    released = await api.replace(LEASES, found | {"spec": {"holderIdentity": "", "leaseDurationSeconds": 1}})
    assert released["spec"] == {"holderIdentity": "", "leaseDurationSeconds": 1}


@pytest.mark.parametrize("seconds", [0, -1])
async def test_a_lease_lasts_longer_than_nothing(api: Api, seconds: int) -> None:
    body = lease("a")
    body["spec"]["leaseDurationSeconds"] = seconds
    error = await refused(api.create(LEASES, body), InvalidError)
    message = f"Invalid value: {seconds}: must be greater than 0"
    assert error.causes == [{"reason": "FieldValueInvalid", "message": message, "field": "spec.leaseDurationSeconds"}]
    assert error.details["group"] == "coordination.k8s.io"


async def test_a_time_that_is_none_is_a_bad_request(api: Api) -> None:
    body = lease("a")
    body["spec"]["renewTime"] = "garbage"
    error = await refused(api.create(LEASES, body), BadRequestError)
    assert str(error).startswith('Lease in version "v1" cannot be handled as a Lease: parsing time "garbage"')
