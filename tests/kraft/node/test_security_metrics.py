"""The metrics of a node's secured listeners, as a scrape of the node gathers them."""

from __future__ import annotations

import pytest

from barnabas.kraft.node_security import NodeSecurity, security_families
from barnabas.runtime.metrics import render
from barnabas.runtime.real import real_world
from barnabas.settings.broker import load_broker_settings
from tests.runtime.tls.stage import authority, certificate, values

BROKER = """\
process.roles=broker
node.id=1
controller.listener.names=CONTROLLER
controller.quorum.voters=101@127.0.0.1:9192
listener.security.protocol.map=CONTROLLER:PLAINTEXT,SSL:SSL
listeners=SSL://127.0.0.1:9092
inter.broker.listener.name=SSL
"""


@pytest.mark.feature("SE-02")
def test_a_listener_with_tls_counts_who_authenticated() -> None:
    stores = {key: value.replace("\n", "\\n") for key, value in values(certificate(), authority()).items()}
    text = BROKER + "".join(f"{key}={value}\n" for key, value in stores.items())
    settings, _ = load_broker_settings(text, "broker.properties")
    families = security_families([NodeSecurity(settings, real_world())])
    page = b"".join(part for family in families for part in render(family)).decode()
    assert 'kafka_server_socketservermetrics_successful_authentication_total{listener="SSL"} 0.0' in page
