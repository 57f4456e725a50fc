"""Mechanisms of a running listener, and users of PLAIN, change by dynamic configs (KIP-226): stories of one broker."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping

import pytest
import trio

from barnabas.broker.parts import BrokerParts
from barnabas.cluster.simulated import BROKER_PORT
from barnabas.kraft.metadata.image import BROKER_RESOURCE
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from barnabas.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.protocol.messages.metadata import MetadataRequest
from barnabas.runtime.channel import AuthenticationFailed, Channel, NotSent
from barnabas.runtime.sasl.authenticator import SaslChannelSecurity
from barnabas.runtime.sasl.mechanisms import SaslPorts, client_mechanism
from barnabas.runtime.sasl.options import ClientSaslOptions
from tests.broker.apis.rig import Rig, Story, play

pytestmark = pytest.mark.feature("SE-04", "AD-02")

OWN = "listener.name.clients."
USERS = f"{OWN}plain.sasl.jaas.config"
ENABLED = f"{OWN}sasl.enabled.mechanisms"
PORTS = {"CLIENTS": BROKER_PORT + 11, "NODES": BROKER_PORT + 12}
SET, DELETE = 0, 1


def jaas(more: str = "", **passwords: str) -> str:
    users = " ".join(f'user_{name}="{password}"' for name, password in passwords.items())
    return f"org.apache.kafka.common.security.plain.PlainLoginModule required {more} {users};"


NODE_LOGIN = jaas('username="node" password="n"', node="n")


def settings_of(name: str) -> Mapping[str, str]:
    values = {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,CLIENTS:SASL_PLAINTEXT,"
        "NODES:SASL_PLAINTEXT",
    }
    if name.startswith("controller"):
        return values
    listeners = ",".join(f"{each}://{name}:{port}" for each, port in {"PLAINTEXT": BROKER_PORT, **PORTS}.items())
    return {
        **values,
        "listeners": listeners,
        "inter.broker.listener.name": "NODES",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.enabled.mechanisms": "PLAIN",
        USERS: jaas(alice="a"),
        f"{OWN}plain.connections.max.reauth.ms": "2000",
        "listener.name.nodes.plain.sasl.jaas.config": NODE_LOGIN,
    }


def on_listeners(story: Story) -> None:
    play(story, 1, 1, settings_of)


def log_in(rig: Rig, user: str, password: str, mechanism: str = "PLAIN") -> Channel:
    """A connection of its own, that has not been dialled yet."""
    values = {"sasl.mechanism": mechanism, "sasl.username": user, "sasl.password": password}
    begin = client_mechanism(ClientSaslOptions.of(values), SaslPorts(rig.world.chance.randbytes))
    security = SaslChannelSecurity(begin)
    return Channel(rig.world, rig.nursery, "broker-1", PORTS["CLIENTS"], client_id="me", security=security)


async def ask(channel: Channel) -> None:
    answer = await channel.call(MetadataRequest(topics=[]), timeout_ms=5000)
    assert [it.node_id for it in answer.brokers] == [1]


async def alter(rig: Rig, changes: Mapping[str, str | None], node: int = 1) -> tuple[int, str]:
    """(error code, message) of a change; None restores the default. Returns when the broker has it."""
    configs = [
        AlterableConfig(name=name, config_operation=DELETE if value is None else SET, value=value)
        for name, value in changes.items()
    ]
    resource = AlterConfigsResource(resource_type=BROKER_RESOURCE, resource_name="1", configs=configs)
    result = (await rig.ask(node, IncrementalAlterConfigsRequest(resources=[resource]))).responses[0]
    if result.error_code == 0:
        await rig.until(lambda: _has(rig.broker(1), changes))
    return result.error_code, result.error_message or ""


def _has(broker: BrokerParts, changes: Mapping[str, str | None]) -> bool:
    applied = broker.metadata_log.applied_offset
    config = broker.metadata.image.config(BROKER_RESOURCE, "1")
    return all(config.get(name) == value for name, value in changes.items()) and applied >= broker.metadata.image.offset


async def refused(channel: Channel, reason: str = "SASL_AUTHENTICATION_FAILED") -> None:
    with pytest.raises(AuthenticationFailed, match=reason):
        await ask(channel)


def test_a_user_of_plain_is_added_without_a_restart_and_others_go_on() -> None:
    async def story(rig: Rig) -> None:
        alice = log_in(rig, "alice", "a")
        await ask(alice)
        await refused(log_in(rig, "carol", "c"))
        assert await alter(rig, {USERS: jaas(alice="a", carol="c")}) == (0, "")
        await ask(log_in(rig, "carol", "c"))
        await ask(log_in(rig, "alice", "a"))
        await ask(alice)

    on_listeners(story)


def test_a_mechanism_is_added_and_taken_away() -> None:
    async def story(rig: Rig) -> None:
        await set_scram_password(rig, "dave", "d")
        await refused(log_in(rig, "dave", "d", "SCRAM-SHA-256"), "UNSUPPORTED_SASL_MECHANISM")
        assert await alter(rig, {ENABLED: "PLAIN,SCRAM-SHA-256"}) == (0, "")
        dave = log_in(rig, "dave", "d", "SCRAM-SHA-256")
        await ask(dave)
        await ask(log_in(rig, "alice", "a"))
        assert await alter(rig, {ENABLED: None}) == (0, "")
        await refused(log_in(rig, "dave", "d", "SCRAM-SHA-256"), "UNSUPPORTED_SASL_MECHANISM")
        await ask(dave)

    on_listeners(story)


BAD: dict[str, tuple[Mapping[str, str | None], str]] = {
    "no JAAS configuration": (
        {USERS: "user_alice=a"},
        "listener CLIENTS: plain.sasl.jaas.config: the class of the login module must be followed by one of required,"
        " requisite, sufficient, optional: character 11",
    ),
    "another login module": (
        {USERS: "org.apache.kafka.common.security.scram.ScramLoginModule required;"},
        "listener CLIENTS: plain.sasl.jaas.config must be of the login module"
        " org.apache.kafka.common.security.plain.PlainLoginModule; got"
        " org.apache.kafka.common.security.scram.ScramLoginModule",
    ),
    "an unknown mechanism": (
        {ENABLED: "PLAIN,NOPE"},
        "listener CLIENTS: the mechanism NOPE cannot be enabled on a running listener; restart the node",
    ),
    "no mechanism": ({ENABLED: ""}, "listener CLIENTS: sasl.enabled.mechanisms must name a mechanism; it is empty"),
    "a mechanism with a task of its own": (
        {ENABLED: "OAUTHBEARER"},
        "listener CLIENTS: the mechanism OAUTHBEARER cannot be enabled on a running listener; restart the node",
    ),
    "the mechanism of brokers": (
        {"listener.name.nodes.sasl.enabled.mechanisms": "SCRAM-SHA-512"},
        "listener NODES: sasl.enabled.mechanisms must have PLAIN, by which brokers log in to each other; got"
        " SCRAM-SHA-512",
    ),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_value_that_a_listener_cannot_use_is_refused(kind: str) -> None:
    async def story(rig: Rig) -> None:
        changes, message = BAD[kind]
        assert await alter(rig, changes) == (ErrorCode.INVALID_REQUEST, message)
        assert rig.broker(1).metadata.image.config(BROKER_RESOURCE, "1") == {}
        await ask(log_in(rig, "alice", "a"))

    on_listeners(story)


def test_a_bad_value_that_came_by_a_controller_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def story(rig: Rig) -> None:
        with caplog.at_level(logging.ERROR):
            assert await alter(rig, {USERS: "hidden-secret"}, node=101) == (0, "")
        await ask(log_in(rig, "alice", "a"))
        assert await alter(rig, {USERS: jaas(carol="c")}) == (0, "")
        await ask(log_in(rig, "carol", "c"))

    on_listeners(story)
    [line] = [it.getMessage() for it in caplog.records if it.name == "barnabas.kraft.node_security"]
    assert line.startswith("listener CLIENTS: mechanisms and users stay, the altered ones cannot be used: plain.sasl")
    assert "hidden-secret" not in caplog.text


@pytest.mark.feature("SE-06")
def test_a_user_that_was_removed_cannot_renew_its_session() -> None:
    async def story(rig: Rig) -> None:
        alice = log_in(rig, "alice", "a")
        await ask(alice)
        assert await alter(rig, {USERS: jaas(carol="c")}) == (0, "")
        await ask(alice)
        await trio.sleep(2.5)
        with pytest.raises(NotSent):
            await ask(alice)
        await refused(alice)

    on_listeners(story)


def test_altered_users_hold_after_a_restart() -> None:
    async def story(rig: Rig) -> None:
        assert await alter(rig, {USERS: jaas(carol="c")}) == (0, "")
        await rig.cluster.stop("broker-1")
        rig.cluster.start("broker-1")
        await rig.until(lambda: rig.cluster.node_of(1).broker is not None)
        await ask(log_in(rig, "carol", "c"))
        await refused(log_in(rig, "alice", "a"))

    on_listeners(story)


def test_passwords_are_shown_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    async def story(rig: Rig) -> None:
        with caplog.at_level(logging.DEBUG):
            assert await alter(rig, {USERS: jaas(carol="hidden-secret")}) == (0, "")
        wanted = DescribeConfigsResource(resource_type=BROKER_RESOURCE, resource_name="1")
        request = DescribeConfigsRequest(resources=[wanted], include_synonyms=True)
        response = await rig.ask(1, request)
        [entry] = [it for it in response.results[0].configs if it.name == USERS]
        assert (entry.value, entry.is_sensitive, entry.config_source) == (None, True, 2)
        assert "hidden-secret" not in repr(response)

    on_listeners(story)
    assert "hidden-secret" not in caplog.text


async def set_scram_password(rig: Rig, user: str, password: str) -> None:
    salt = b"salt of a test"
    upsertion = ScramCredentialUpsertion(
        name=user,
        mechanism=1,
        iterations=4096,
        salt=salt,
        salted_password=hashlib.pbkdf2_hmac("sha256", password.encode(), salt, 4096),
    )
    response = await rig.ask(1, AlterUserScramCredentialsRequest(upsertions=[upsertion]))
    assert response.results[0].error_code == 0
    await rig.until(lambda: (user, 1) in rig.broker(1).metadata.image.others.scram)
