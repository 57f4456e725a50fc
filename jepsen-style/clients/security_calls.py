"""Calls about rights: an administrator changes them, and any user is tried at one broker, so that it is known which
broker decided.

A user's requests go over connections of that user: the password is looked at when one is opened, and not again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import trio

from barnabas import Admin
from barnabas.client.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AclResourceType,
    PatternType,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from barnabas.client.security import channel_security
from barnabas.client.security_settings import SecuritySettings
from barnabas.protocol.errors import ErrorCode, KafkaError, error_code
from barnabas.protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from barnabas.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)
from barnabas.protocol.schema import Message
from barnabas.runtime.channel import AuthenticationFailed, Channel, ChannelError, NotSent
from barnabas.runtime.world import World
from clients.barnabas_errors import definite_errors, errors_of_change, name_of
from clients.client import ClientError, ClientSettings
from clients.trials import TRIALS
from rights import Acl, Login, Tried

MECHANISM = "SCRAM-SHA-256"
LEAST_ITERATIONS = 4096
"""Those of a user's first password; each later one has one more, so that it is known which one a broker has."""
ADMINISTRATOR = ""
"""Stands for the user that the client's own settings log in."""


class SecurityCalls:
    """The `Security` of one client. One call at a time."""

    def __init__(self, world: World, nursery: trio.Nursery, settings: ClientSettings, changing: Admin) -> None:
        """`changing` asks once."""
        self._world = world
        self._nursery = nursery
        self._settings = settings
        self._changing = changing
        self._channels: dict[tuple[str, str], Channel] = {}
        """By address and user."""
        self._addresses = settings.bootstrap_servers.split(",")

    @property
    def brokers(self) -> int:
        return len(self._addresses)

    # ---- changes

    async def create_acl(self, acl: Acl) -> None:
        with errors_of_change():
            await self._changing.create_acls(_binding(acl))

    async def delete_acl(self, acl: Acl) -> None:
        with errors_of_change():
            await self._changing.delete_acls(_binding(acl).to_filter())

    async def set_password(self, user: str, version: int) -> None:
        password, iterations = _password(user, version), LEAST_ITERATIONS + version
        change = UserScramCredentialUpsertion(user, ScramMechanism.SCRAM_SHA_256, password, iterations)
        with errors_of_change():
            await self._changing.alter_user_scram_credentials([change])

    async def delete_user(self, user: str) -> None:
        change = UserScramCredentialDeletion(user, ScramMechanism.SCRAM_SHA_256)
        with errors_of_change():
            await self._changing.alter_user_scram_credentials([change])

    # ---- one broker

    def node(self, turn: int) -> str:
        """Address of the broker whose turn it is."""
        return self._addresses[turn % self.brokers]

    async def acls_at(self, turn: int, beginning: str) -> list[Acl]:
        """The ACLs of resources whose names begin so, as one broker knows them."""
        every = DescribeAclsRequest(
            resource_type_filter=AclResourceType.ANY,
            pattern_type_filter=PatternType.ANY,
            operation=AclOperation.ANY,
            permission_type=AclPermissionType.ANY,
            resource_name_filter=None,
            principal_filter=None,
            host_filter=None,
        )
        with _errors_of_reading():
            answer: DescribeAclsResponse = await self._ask(turn, ADMINISTRATOR, every)
            _raise_if(answer.error_code)
        return sorted(
            _acl(resource, acl)
            for resource in answer.resources
            for acl in resource.acls
            if resource.resource_name.startswith(beginning)
        )

    async def version_at(self, turn: int, user: str) -> int | None:
        """Version of the user's password, as one broker knows it; None if it knows none."""
        asked = DescribeUserScramCredentialsRequest(users=[UserName(name=user)])
        with _errors_of_reading():
            answer: DescribeUserScramCredentialsResponse = await self._ask(turn, ADMINISTRATOR, asked)
            _raise_if(answer.error_code)
            [result] = answer.results
            if result.error_code == ErrorCode.RESOURCE_NOT_FOUND:
                return None
            _raise_if(result.error_code)
        [credential] = result.credential_infos
        iterations: int = credential.iterations
        return iterations - LEAST_ITERATIONS

    async def log_in(self, turn: int, login: Login) -> None:
        """Over a connection of its own."""
        channel = self._open(self.node(turn), login)
        try:
            with _errors_of_reading():
                await channel.connect(timeout_ms=self._settings.request_timeout_ms)
        finally:
            channel.close()

    async def attempt(self, turn: int, user: str, tried: Tried) -> None:
        trial = TRIALS[tried.action]
        try:
            with definite_errors():
                answer = await self._ask(turn, user, trial.request(tried.name), trial.version)
                code = error_code(trial.code(answer))
                if code not in trial.passed:
                    raise KafkaError(code)
        except AuthenticationFailed as error:
            raise ClientError(name_of(error.error), str(error), definite=True) from error
        except NotSent as error:
            raise ClientError("TimeoutException", str(error), definite=True) from error
        except ChannelError as error:
            raise ClientError("TimeoutException", str(error), definite=False) from error

    def close(self) -> None:
        for channel in self._channels.values():
            channel.close()

    # ---- inside

    async def _ask(self, turn: int, user: str, request: Message, version: int | None = None) -> Any:
        address = self.node(turn)
        channel = self._channels.get((address, user))
        if channel is None:
            channel = self._channels[address, user] = self._open(address, Login(user, 0))
        return await channel.call(request, timeout_ms=self._settings.request_timeout_ms, version=version)

    def _open(self, address: str, login: Login) -> Channel:
        host, _, port = address.rpartition(":")
        security = channel_security(SecuritySettings.of(self._security_of(login)), self._world)
        settings = self._settings
        return Channel(
            self._world, self._nursery, host, int(port), client_id=settings.client_id, security=security
        )

    def _security_of(self, login: Login) -> Mapping[str, str]:
        if login.user == ADMINISTRATOR:
            return self._settings.security
        kept = {name: value for name, value in self._settings.security.items() if name != "sasl_jaas_config"}
        return kept | {
            "sasl_mechanism": MECHANISM,
            "sasl_plain_username": login.user,
            "sasl_plain_password": _password(*login),
        }


def _password(user: str, version: int) -> str:
    return f"{user}-{version}"


def _binding(acl: Acl) -> AclBinding:
    return AclBinding(
        AclResourceType[acl.resource],
        acl.name,
        f"User:{acl.user}",
        AclOperation[acl.operation],
        AclPermissionType[acl.permission],
        pattern_type=PatternType[acl.pattern],
    )


def _acl(resource: DescribeAclsResource, acl: AclDescription) -> Acl:
    return Acl(
        AclResourceType(resource.resource_type).name,
        PatternType(resource.pattern_type).name,
        resource.resource_name,
        acl.principal.removeprefix("User:"),
        AclOperation(acl.operation).name,
        AclPermissionType(acl.permission_type).name,
    )


@contextmanager
def _errors_of_reading() -> Iterator[None]:
    try:
        with definite_errors():
            yield
    except AuthenticationFailed as error:
        raise ClientError(name_of(error.error), str(error), definite=True) from error
    except ChannelError as error:
        raise ClientError("TimeoutException", str(error), definite=True) from error


def _raise_if(code: int) -> None:
    if code != ErrorCode.NONE:
        raise KafkaError(error_code(code))
