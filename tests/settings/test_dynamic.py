"""Settings altered while a broker runs."""

import pytest

from barnabas.settings.broker import load_broker_settings
from barnabas.settings.describe import BrokerLayers
from barnabas.settings.dynamic import with_dynamic_configs

BROKER = """\
process.roles=broker
node.id=1
controller.listener.names=CONTROLLER
controller.quorum.voters=101@127.0.0.1:9192
listeners=PLAINTEXT://127.0.0.1:9092
max.connections=10
log.retention.hours=1
"""


@pytest.mark.feature("MB-20")
def test_the_stronger_layer_counts_and_the_rest_stays() -> None:
    file, _ = load_broker_settings(BROKER, "b")
    layers = BrokerLayers(
        file.raw,
        {"max.connections": "20", "log.retention.ms": "5000", "num.replica.fetchers": "2"},
        {"num.replica.fetchers": "4"},
    )
    now, passed_over = with_dynamic_configs(file, layers)
    assert passed_over == []
    assert (now.max_connections, now.num_replica_fetchers, now.node_id) == (20, 4, 1)
    assert now.topic_defaults.retention_ms == 5000
    assert file.topic_defaults.retention_ms == 3600 * 1000
    assert with_dynamic_configs(file, BrokerLayers(file.raw))[0] == file


@pytest.mark.feature("MB-20")
def test_a_value_that_does_not_fit_is_reported_and_ignored() -> None:
    file, _ = load_broker_settings(BROKER, "b")
    layers = BrokerLayers(file.raw, {"max.connections": "many", "node.id": "9", "from.the.future": "1"})
    now, passed_over = with_dynamic_configs(file, layers)
    assert passed_over == ["max.connections=many: not a whole number; allowed: 0 or more"]
    assert (now.max_connections, now.node_id) == (10, 1)


@pytest.mark.feature("MB-20")
def test_limits_of_single_addresses_follow() -> None:
    key = "max.connections.per.ip.overrides"
    file, _ = load_broker_settings(f"{BROKER}{key}=10.0.0.7:5\n", "b")
    now, passed_over = with_dynamic_configs(file, BrokerLayers(file.raw, {key: "10.0.0.8:3,host:4"}))
    assert (now.max_connections_per_ip_overrides, passed_over) == ({"10.0.0.8": 3, "host": 4}, [])
    now, passed_over = with_dynamic_configs(file, BrokerLayers(file.raw, {key: "host"}))
    assert now.max_connections_per_ip_overrides == {"10.0.0.7": 5} and key in passed_over[0]
