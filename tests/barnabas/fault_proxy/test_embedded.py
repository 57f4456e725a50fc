"""Stories of our client through a proxy in the same process."""

from __future__ import annotations

import pytest

import barnabas
from barnabas import sync
from barnabas.dev.embedded import EmbeddedServers


def test_a_producer_writes_in_spite_of_errors_that_pass(barnabas_broker: EmbeddedServers, barnabas_topic: str) -> None:
    with barnabas.proxy(to=barnabas_broker) as proxy:
        rule = proxy.fail("Produce", error="NOT_LEADER_OR_FOLLOWER", times=2)
        with sync.Producer(bootstrap_servers=proxy) as producer:
            assert producer.send(barnabas_topic, b"order").offset == 0
        assert (rule.matched, rule.struck) == (2, 2)
        with sync.Admin(bootstrap_servers=proxy) as admin:
            [node] = admin.describe_cluster().nodes
            assert f"{node.host}:{node.port}" == proxy


def test_an_error_that_stays_reaches_the_application(barnabas_broker: EmbeddedServers, barnabas_topic: str) -> None:
    with barnabas.proxy(to=barnabas_broker) as proxy:
        proxy.fail("Produce", topic=barnabas_topic, error="TOPIC_AUTHORIZATION_FAILED")
        with (
            sync.Producer(bootstrap_servers=proxy) as producer,
            pytest.raises(barnabas.errors.TopicAuthorizationException),
        ):
            producer.send(barnabas_topic, b"order")
        [rule] = proxy.rules
        proxy.remove(rule)
        with sync.Producer(bootstrap_servers=proxy) as producer:
            assert producer.send(barnabas_topic, b"order").offset == 0
