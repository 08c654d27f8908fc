"""Tokens of service accounts: asked for by the nodes, for the pods that want them."""

from __future__ import annotations

import base64
import json

from dlop.kube.errors import InvalidError, NotFoundError
from dlop.kube.resources import SERVICE_ACCOUNTS
from dlop.kube.types import JsonObject
from tests.conformance.support import Api, refused


def asked(**spec: object) -> JsonObject:
    return {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}


async def account(api: Api) -> JsonObject:
    return await api.create(SERVICE_ACCOUNTS, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "bot"}})


async def token(api: Api, **spec: object) -> JsonObject:
    return await api.create(SERVICE_ACCOUNTS, asked(**spec), name="bot", subresource="token")


async def test_a_token_says_whose_it_is_and_for_how_long(api: Api) -> None:
    metadata = (await account(api))["metadata"]
    answer = await token(api, expirationSeconds=1200, audiences=["somebody"])
    assert (answer["kind"], answer["spec"]["audiences"], answer["spec"]["expirationSeconds"]) == ("TokenRequest", ["somebody"], 1200)
    middle = answer["status"]["token"].split(".")[1]
    claims = json.loads(base64.urlsafe_b64decode(middle + "=" * (-len(middle) % 4)))
    assert (claims["sub"], claims["aud"]) == (f"system:serviceaccount:{api.namespace}:bot", ["somebody"])
    assert claims["exp"] - claims["iat"] == 1200
    assert claims["kubernetes.io"]["serviceaccount"] == {"name": "bot", "uid": metadata["uid"]}


async def test_a_token_lasts_for_an_hour_unless_something_else_is_said(api: Api) -> None:
    await account(api)
    assert (await token(api))["spec"]["expirationSeconds"] == 3600


async def test_a_token_for_less_than_ten_minutes_is_refused(api: Api) -> None:
    await account(api)
    error = await refused(token(api, expirationSeconds=60), InvalidError)
    assert "spec.expirationSeconds: Invalid value: 60: may not specify a duration less than 10 minutes" in str(error)


async def test_there_is_no_token_of_an_account_that_does_not_exist(api: Api) -> None:
    await refused(token(api), NotFoundError)
