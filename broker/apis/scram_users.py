"""DescribeUserScramCredentials (50): mechanisms and iterations of users, never a salt or a key (KIP-554)."""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.broker.metadata_cache import MetadataCache
from barnabas.kraft.metadata.image import MetadataImage
from barnabas.protocol.acls import AclOperation
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from barnabas.protocol.sasl.scram_credentials import SCRAM_MECHANISMS_BY_TYPE
from barnabas.runtime.dispatch import Call
from barnabas.runtime.meter import ANSWER_TOO_LARGE, Meter
from barnabas.runtime.server import Steps


def describe_user_scram_credentials(metadata: MetadataCache, call: Call) -> Steps:
    """The users that are named, or all that have a credential."""
    request: DescribeUserScramCredentialsRequest = call.message
    if not call.may_on_cluster(AclOperation.DESCRIBE):
        call.answer(_refused(request))
        return
    image = metadata.image
    times_named: Mapping[str, int] = _times_named(request) or dict.fromkeys((user for user, _ in image.others.scram), 1)
    response = DescribeUserScramCredentialsResponse(error_message=None)
    meter = Meter(call)
    for user, times in times_named.items():
        if meter.is_full:
            response.error_code = ANSWER_TOO_LARGE
            response.error_message = "the answer would be too large; ask for fewer users at a time"
            response.results = []
            break
        result = _described(image, user, times)
        response.results.append(result)
        meter.answer_grows(1 + len(result.credential_infos), len(user) + len(result.error_message or ""))
        if meter.step_ends():
            yield None
    call.answer(response)


def _refused(request: DescribeUserScramCredentialsRequest) -> DescribeUserScramCredentialsResponse:
    """The results name no user, as in Kafka."""
    code, message = ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "DescribeUserScramCredentials needs DESCRIBE on the cluster"
    return DescribeUserScramCredentialsResponse(
        error_code=code,
        error_message=message,
        results=[
            DescribeUserScramCredentialsResult(error_code=code, error_message=message) for _ in request.users or ()
        ],
    )


def _times_named(request: DescribeUserScramCredentialsRequest) -> dict[str, int]:
    times: dict[str, int] = {}
    for user in request.users or ():
        times[user.name] = times.get(user.name, 0) + 1
    return times


def _described(image: MetadataImage, user: str, times: int) -> DescribeUserScramCredentialsResult:
    result = DescribeUserScramCredentialsResult(user=user, error_message=None)
    if times > 1:
        result.error_code = ErrorCode.DUPLICATE_RESOURCE
        result.error_message = (
            f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
        )
        return result
    for mechanism in SCRAM_MECHANISMS_BY_TYPE:
        credential = image.others.scram.get((user, mechanism))
        if credential is not None:
            result.credential_infos.append(CredentialInfo(mechanism=mechanism, iterations=credential.iterations))
    if not result.credential_infos:
        result.error_code = ErrorCode.RESOURCE_NOT_FOUND
        result.error_message = f"Attempt to describe a user credential that does not exist: {user}"
    return result
