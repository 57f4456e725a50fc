"""Settings of `__remote_log_metadata`."""

from __future__ import annotations

import pytest

from barnabas.settings.broker import load_broker_settings
from barnabas.settings.errors import SettingsError
from barnabas.settings.remote_metadata import RemoteMetadataSettings

pytestmark = pytest.mark.feature("TS-04")

KEY = "remote.log.metadata.topic.num.partitions"


def test_defaults_are_those_of_kafka() -> None:
    assert RemoteMetadataSettings.of({}) == RemoteMetadataSettings(50, 3, -1, 2, 120_000)


def test_keys_have_the_prefix_of_the_plug_in() -> None:
    assert RemoteMetadataSettings.of({f"rlmm.config.{KEY}": "7", KEY: "8"}).num_partitions == 7
    own = {"remote.log.metadata.manager.impl.prefix": "mine.", f"mine.{KEY}": "9", f"rlmm.config.{KEY}": "7"}
    assert RemoteMetadataSettings.of(own).num_partitions == 9


@pytest.mark.parametrize(
    ("name", "text", "allowed"),
    [
        ("topic.num.partitions", "0", "1 or more"),
        ("topic.replication.factor", "few", "1 or more"),
        ("topic.retention.ms", "0", "1 or more or -1"),
        ("consume.wait.ms", "-1", "0 or more"),
    ],
)
def test_other_values_are_refused_with_the_key_as_it_is_written(name: str, text: str, allowed: str) -> None:
    key = f"rlmm.config.remote.log.metadata.{name}"
    with pytest.raises(SettingsError) as refused:
        RemoteMetadataSettings.of({key: text})
    assert key in str(refused.value)
    assert text in str(refused.value)
    assert allowed in str(refused.value)


def test_a_wrong_value_is_refused_at_the_start_if_tiered_storage_is_on() -> None:
    text = """process.roles=broker
node.id=1
controller.listener.names=CONTROLLER
controller.quorum.bootstrap.servers=localhost:9093
rlmm.config.remote.log.metadata.topic.min.isr=none
"""
    load_broker_settings(text, "node.properties")
    with pytest.raises(SettingsError) as refused:
        load_broker_settings(text, "node.properties", {"remote.log.storage.system.enable": "true"})
    assert "node.properties line 5" in str(refused.value)
