"""One file for both roles of a node, as config/server.properties of Apache Kafka 4.3."""

from __future__ import annotations

import pytest

from barnabas.settings.combined import CombinedSettings, is_combined, load_combined_settings, roles_in
from barnabas.settings.errors import SettingsError

KAFKAS_EXAMPLE = """\
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""


def load(text: str = KAFKAS_EXAMPLE, **overrides: str) -> CombinedSettings:
    changed = {key.replace("_", "."): value for key, value in overrides.items()}
    return load_combined_settings(text, "server.properties", changed, hostname="this-host")[0]


def shown(listeners: list[object]) -> list[str]:
    return [str(each) for each in listeners]


def test_each_role_has_its_own_listeners() -> None:
    both = load()
    assert shown([*both.broker.listeners, *both.broker.advertised_listeners]) == [
        "PLAINTEXT://:9092",
        "PLAINTEXT://localhost:9092",
    ]
    assert shown([*both.controller.listeners, *both.controller.advertised_listeners]) == [
        "CONTROLLER://:9093",
        "CONTROLLER://localhost:9093",
    ]


def test_the_roles_share_directory_and_id() -> None:
    both = load()
    assert both.broker.metadata_directory == both.controller.metadata_directory == "/tmp/kraft-combined-logs"
    assert both.broker.node_id == both.controller.node_id == 1
    assert both.broker.is_combined


def test_a_controller_without_an_advertised_listener_advertises_this_host() -> None:
    both = load(advertised_listeners="PLAINTEXT://localhost:9092")
    assert shown([*both.controller.advertised_listeners]) == ["CONTROLLER://this-host:9093"]


def test_its_id_is_that_of_a_voter() -> None:
    assert load(controller_quorum_voters="1@localhost:9093").broker.controller_quorum_voters[0].id == 1
    with pytest.raises(SettingsError, match=r"node\.id"):
        load(controller_quorum_voters="2@localhost:9093")


def test_keys_that_either_role_acts_on_have_an_effect() -> None:
    both = load(auto_leader_rebalance_enable="false", broker_rack="r1")
    assert "auto.leader.rebalance.enable" not in both.broker.not_acted_on
    assert "broker.rack" not in both.broker.not_acted_on
    assert "num.io.threads" in both.broker.not_acted_on


@pytest.mark.parametrize(
    ("listeners", "problem"),
    [
        ("PLAINTEXT://:9092", "a combined node needs a listener of its controller named CONTROLLER"),
        ("CONTROLLER://:9093", "a combined node needs a listener of its broker"),
    ],
)
def test_both_roles_need_a_listener(listeners: str, problem: str) -> None:
    with pytest.raises(SettingsError, match=problem):
        load(listeners=listeners, advertised_listeners=listeners)


def test_roles_in_either_order() -> None:
    text = KAFKAS_EXAMPLE.replace("broker,controller", "controller , broker")
    assert is_combined(roles_in(text, "server.properties"))
    assert load(text).broker.is_combined
    assert roles_in(text, "server.properties", {"process.roles": "broker"}) == ["broker"]
