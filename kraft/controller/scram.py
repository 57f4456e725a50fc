"""Core: changes of SCRAM credentials of users (KIP-554).

A client sends a salted password; the log gets the two keys that follow from it, and from which nobody can log in.
"""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.kraft.controller.state import ControllerResult, ControllerState, Steps
from barnabas.kraft.metadata.features import SCRAM_SINCE
from barnabas.kraft.metadata.image import MetadataImage
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from barnabas.protocol.messages.metadata_log import RemoveUserScramCredentialRecord, UserScramCredentialRecord
from barnabas.protocol.sasl.scram_credentials import (
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    SCRAM_MECHANISMS_BY_TYPE,
    ScramMechanism,
    credential_of_salted_password,
)
from barnabas.protocol.schema import Message
from barnabas.runtime.decisions import DecisionKind, cut

MAX_SECRET_BYTES = 1024
"""Longest salt and longest salted password. The latter has 32 or 64 bytes."""

Change = ScramCredentialDeletion | ScramCredentialUpsertion


def alter_user_scram_credentials(
    state: ControllerState, request: AlterUserScramCredentialsRequest, version: int
) -> Steps[ControllerResult[AlterUserScramCredentialsResponse]]:
    """Set and delete credentials: one change of each user, whatever its mechanism."""
    changes: dict[str, Change] = {}
    errors: dict[str, KafkaError] = {}
    asked: list[Change] = [*request.deletions, *request.upsertions]
    for change in asked:
        if change.name not in errors:
            try:
                _check(state.image, change, changes)
            except KafkaError as error:
                changes.pop(change.name, None)
                errors[change.name] = error
            else:
                changes[change.name] = change
        if state.pace.is_full():
            yield None
    records: list[Message] = []
    for change in changes.values():
        records.append(_record(change))
        _note(state, change)
        if state.pace.is_full():
            yield None
    return ControllerResult(_response(changes, errors), records)


def _check(image: MetadataImage, change: Change, changes: Mapping[str, Change]) -> None:
    """Raises KafkaError unless the change may be made after `changes` of the same request."""
    if change.name in changes:
        raise KafkaError(
            ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request"
        )
    if image.features.metadata_version < SCRAM_SINCE:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "The current metadata.version does not support SCRAM")
    if not change.name:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if change.mechanism not in SCRAM_MECHANISMS_BY_TYPE:
        raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if isinstance(change, ScramCredentialDeletion):
        if (change.name, change.mechanism) not in image.others.scram:
            raise KafkaError(
                ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist"
            )
        return
    if change.iterations < MIN_ITERATIONS:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if change.iterations > MAX_ITERATIONS:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    for what, secret in (("salt", change.salt), ("salted password", change.salted_password)):
        if not 0 < len(secret) <= MAX_SECRET_BYTES:
            raise KafkaError(
                ErrorCode.UNACCEPTABLE_CREDENTIAL,
                f"The {what} must have 1 to {MAX_SECRET_BYTES} bytes; got {len(secret)}",
            )


def _record(change: Change) -> Message:
    if isinstance(change, ScramCredentialDeletion):
        return RemoveUserScramCredentialRecord(name=change.name, mechanism=change.mechanism)
    mechanism = SCRAM_MECHANISMS_BY_TYPE[change.mechanism]
    return credential_record(change.name, mechanism, change.salted_password, (change.salt, change.iterations))


def credential_record(
    user: str, mechanism: ScramMechanism, salted: bytes, salt_and_iterations: tuple[bytes, int]
) -> UserScramCredentialRecord:
    """The record of a user's salted password."""
    made = credential_of_salted_password(mechanism, bytes(salted), *salt_and_iterations)
    return UserScramCredentialRecord(
        name=user,
        mechanism=mechanism.type,
        salt=made.salt,
        stored_key=made.stored_key,
        server_key=made.server_key,
        iterations=made.iterations,
    )


def _note(state: ControllerState, change: Change) -> None:
    done = "deleted" if isinstance(change, ScramCredentialDeletion) else "set"
    user = cut(f"user {change.name}")
    state.notes.note(
        DecisionKind.LIFECYCLE,
        user,
        f"the {SCRAM_MECHANISMS_BY_TYPE[change.mechanism].name} credential of {user} is {done}",
        cause=f"{cut(str(state.asked.by))} asked for it",
    )


def _response(changes: Mapping[str, Change], errors: Mapping[str, KafkaError]) -> AlterUserScramCredentialsResponse:
    results = [AlterUserScramCredentialsResult(user=user, error_message=None) for user in changes]
    for user, error in errors.items():
        results.append(
            AlterUserScramCredentialsResult(user=user, error_code=error.code, error_message=error.message)
        )
    return AlterUserScramCredentialsResponse(results=results)
