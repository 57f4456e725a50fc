"""SCRAM credentials of users (KIP-554). Only salted hashes are sent; a cluster never returns them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from barnabas.client.admin.calls import Anywhere, Part, Question
from barnabas.client.admin.results import Results, changed, refusal
from barnabas.client.admin.routes import names_in
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages import alter_user_scram_credentials as altering
from barnabas.protocol.messages import describe_user_scram_credentials as describing
from barnabas.protocol.open_enums import OpenIntEnum
from barnabas.protocol.sasl.scram_credentials import SALT_BYTES, SCRAM_MECHANISMS_BY_TYPE, salted_password


class ScramMechanism(OpenIntEnum):
    UNKNOWN = 0
    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2


@dataclass(frozen=True, slots=True)
class ScramCredentialInfo:
    mechanism: ScramMechanism
    iterations: int


@dataclass(frozen=True, slots=True)
class UserScramCredentialUpsertion:
    """A user's password for one mechanism, new or replacing an old one."""

    user: str
    mechanism: ScramMechanism
    password: str = field(repr=False)
    iterations: int = 4096
    """4096 to 16384."""
    salt: bytes | None = None
    """None: a random one."""


@dataclass(frozen=True, slots=True)
class UserScramCredentialDeletion:
    user: str
    mechanism: ScramMechanism


class Scram(Part):
    """Methods for SCRAM credentials."""

    async def describe_user_scram_credentials(
        self, users: Iterable[str] | str | None = None
    ) -> Results[str, tuple[ScramCredentialInfo, ...]]:
        """Mechanisms for which users have passwords, by user name: of the given users, or of all with any.
        ResourceNotFoundException for one that has none.
        """
        named = None if users is None else names_in(users)

        def ask(_: int) -> describing.DescribeUserScramCredentialsRequest:
            wanted = None if named is None else [describing.UserName(name=name) for name in named]
            return describing.DescribeUserScramCredentialsRequest(users=wanted)

        def read(
            response: describing.DescribeUserScramCredentialsResponse,
        ) -> dict[str, tuple[ScramCredentialInfo, ...] | KafkaError] | KafkaError:
            return refusal(response.error_code, response.error_message, "users") or {
                it.user: refusal(it.error_code, it.error_message, f"user {it.user}")
                or tuple(
                    ScramCredentialInfo(ScramMechanism(each.mechanism), each.iterations) for each in it.credential_infos
                )
                for it in response.results
            }

        found = await self._calls.one("users", ask, read)
        left_out = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "the broker's response lacks users")
        return Results({name: found.get(name, left_out) for name in (found if named is None else named)})

    async def alter_user_scram_credentials(
        self,
        alterations: Iterable[UserScramCredentialUpsertion | UserScramCredentialDeletion],
        *,
        raise_errors: bool = True,
    ) -> Results[str, None]:
        """Set and delete passwords; all alterations of a user happen, or none. UnacceptableCredentialException,
        ResourceNotFoundException for a password that does not exist.
        """
        wanted: dict[str, list[UserScramCredentialUpsertion | UserScramCredentialDeletion]] = {}
        for it in alterations:
            wanted.setdefault(it.user, []).append(it)

        def ask(users: list[str], _: int) -> altering.AlterUserScramCredentialsRequest:
            each = [it for user in users for it in wanted[user]]
            return altering.AlterUserScramCredentialsRequest(
                deletions=[
                    altering.ScramCredentialDeletion(name=it.user, mechanism=it.mechanism)
                    for it in each
                    if isinstance(it, UserScramCredentialDeletion)
                ],
                upsertions=[self._salted(it) for it in each if isinstance(it, UserScramCredentialUpsertion)],
            )

        def read(
            response: altering.AlterUserScramCredentialsResponse, _: object
        ) -> Iterator[tuple[str, KafkaError | None]]:
            for it in response.results:
                yield it.user, refusal(it.error_code, it.error_message, f"user {it.user}")

        question = Question[str, None]("user", ask, read)
        return changed(await self._calls.ask(wanted, Anywhere(), question), raise_errors)

    def _salted(self, it: UserScramCredentialUpsertion) -> altering.ScramCredentialUpsertion:
        salt = it.salt if it.salt is not None else self._calls.cluster.world.chance.randbytes(SALT_BYTES)
        mechanism = SCRAM_MECHANISMS_BY_TYPE.get(it.mechanism)
        if mechanism is None:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_SASL_MECHANISM,
                f"user {it.user}: mechanism must be SCRAM_SHA_256 or SCRAM_SHA_512; got {it.mechanism!r}",
            )
        if it.iterations < 1:
            raise KafkaError(
                ErrorCode.UNACCEPTABLE_CREDENTIAL, f"user {it.user}: iterations must be at least 1; got {it.iterations}"
            )
        salted = salted_password(mechanism, it.password.encode(), salt, it.iterations)
        return altering.ScramCredentialUpsertion(
            name=it.user, mechanism=it.mechanism, iterations=it.iterations, salt=salt, salted_password=salted
        )
