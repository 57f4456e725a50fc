"""Read the pages of simulated nodes."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from barnabas.runtime.world import ConnectionLost
from barnabas.testing.simulated import SimulatedClusterForTests

HTTP_PORT = 9292

Numbers = dict[tuple[str, str], float]
"""By name and labels (`partition=0,topic=flights`)."""


async def asked(cluster: SimulatedClusterForTests, node: str, path: str) -> str:
    """The body of a page."""
    connection = await cluster.world.network.dial(node, HTTP_PORT)
    rest = f"GET {path} HTTP/1.1\r\nConnection: close\r\n\r\n".encode()
    while rest:
        rest = rest[connection.send_now([rest]) :]
        if rest:
            await connection.wait_writable()
    received, buffer = bytearray(), bytearray(1 << 16)
    try:
        while True:
            count = await connection.receive_into(memoryview(buffer))
            received += buffer[:count]
    except ConnectionLost:
        connection.close()
    head, _, body = bytes(received).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200"), head
    return body.decode()


async def metrics(cluster: SimulatedClusterForTests, node: str) -> Numbers:
    found: Numbers = {}
    for family in text_string_to_metric_families(await asked(cluster, node, "/metrics")):
        assert family.documentation
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
            found[sample.name, labels] = sample.value
    return found
