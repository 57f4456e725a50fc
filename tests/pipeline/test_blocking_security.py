"""Security of blocking clients: what a worker of Spark loads, and settings that cannot be used."""

from __future__ import annotations

import subprocess
import sys

import pytest

from barnabas.pipeline.blocking_cluster import BlockingCluster
from barnabas.pipeline.cluster_access import ClusterAccess
from barnabas.pipeline.errors import WrongUse
from barnabas.protocol.errors import KafkaError

SECURED = {
    "kafka.security.protocol": "SASL_SSL",
    "kafka.sasl.mechanism": "SCRAM-SHA-512",
    "kafka.sasl.jaas.config": 'ScramLoginModule required username="a" password="sesame";',
}


@pytest.mark.feature("PL-01")
def test_a_secured_client_loads_no_event_loop() -> None:
    program = f"""
import sys
from barnabas.pipeline.blocking_cluster import BlockingCluster
from barnabas.pipeline.cluster_access import ClusterAccess
BlockingCluster(ClusterAccess.of_options("127.0.0.1:1", {SECURED!r})).close()
assert "trio" not in sys.modules
assert "cryptography" in sys.modules, "the certificates were read"
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"kafka.sasl.jaas.config": "sesame"}, "sasl.jaas.config"),
        ({"kafka.sasl.jaas.config": 'x.PlainLoginModule required password="sesame";'}, "ScramLoginModule"),
        ({"kafka.ssl.truststore.location": "/no/such/file"}, "/no/such/file"),
        ({"kafka.ssl.enabled.protocols": "SSLv3"}, "ssl.enabled.protocols"),
    ],
)
def test_settings_that_cannot_be_used_are_one_line(given: dict[str, str], line: str) -> None:
    with pytest.raises((WrongUse, KafkaError), match=line) as caught:
        BlockingCluster(ClusterAccess.of_options("127.0.0.1:1", SECURED | given))
    assert "\n" not in str(caught.value)
    assert "sesame" not in str(caught.value)
