"""Token requests of service accounts."""

from __future__ import annotations

import base64
import json

from dlop.kube.errors import InvalidError, NotFoundError
from tests.conformance.service_accounts import create_account, create_token_request
from tests.conformance.support import Api, expect_error, over_https

pytestmark = over_https(reason="a token is sent in a request header")


async def test_a_token_contains_its_account_audience_and_lifetime(api: Api) -> None:
    metadata = (await create_account(api))["metadata"]
    request = await create_token_request(api, expirationSeconds=1200, audiences=["vault"])
    assert (request["kind"], request["spec"]["audiences"], request["spec"]["expirationSeconds"]) == ("TokenRequest", ["vault"], 1200)
    payload = request["status"]["token"].split(".")[1]
    claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    assert (claims["sub"], claims["aud"]) == (f"system:serviceaccount:{api.namespace}:bot", ["vault"])
    assert claims["exp"] - claims["iat"] == 1200
    assert claims["kubernetes.io"]["serviceaccount"] == {"name": "bot", "uid": metadata["uid"]}


async def test_a_token_expires_after_an_hour_by_default(api: Api) -> None:
    await create_account(api)
    assert (await create_token_request(api))["spec"]["expirationSeconds"] == 3600


async def test_a_token_for_less_than_ten_minutes_is_rejected(api: Api) -> None:
    await create_account(api)
    error = await expect_error(create_token_request(api, expirationSeconds=60), InvalidError)
    assert "spec.expirationSeconds: Invalid value: 60: may not specify a duration less than 10 minutes" in str(error)


async def test_a_token_of_a_missing_account_is_not_found(api: Api) -> None:
    await expect_error(create_token_request(api), NotFoundError)
