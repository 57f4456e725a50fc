"""Every client reads what every other wrote, compressed in every way, and none of it was touched on the way."""

from __future__ import annotations

import pytest

from barnabas.protocol.records.batch import iterate_batches
from tests.compat.available import lacking
from tests.compat.foreign import CODECS, AioKafka, Client, Confluent, JavaConsole, KafkaPython, Kcat, Seen, Sent
from tests.compat.java import Java
from tests.compat.running import RunningCluster

pytestmark = pytest.mark.compat

NAMES = ("kcat", "confluent-kafka", "kafka-python", "aiokafka", "java")
RECORDS_PER_RUN = 40


def make_client(name: str, cluster: RunningCluster, request: pytest.FixtureRequest) -> Client:
    bootstrap = cluster.bootstrap_servers
    match name:
        case "kcat":
            return Kcat(bootstrap)
        case "confluent-kafka":
            return Confluent(bootstrap)
        case "kafka-python":
            return KafkaPython(bootstrap)
        case "aiokafka":
            return AioKafka(bootstrap)
    java: Java = request.getfixturevalue("java")
    return JavaConsole(java)


def records_of(producer: str, codec: str) -> list[Sent]:
    """Long enough that compression pays, and all different."""
    return [
        Sent(f"{producer}/{number}", f"{codec} by {producer}, number {number}: " + "the same again, " * 8)
        for number in range(RECORDS_PER_RUN)
    ]


class Mixture:
    """One partition into which every client writes with every codec, each when it is first asked for."""

    def __init__(self, cluster: RunningCluster) -> None:
        self._cluster = cluster
        self.topic = cluster.create_topic("mixture")
        self.expected: list[Seen] = []
        self.codecs: list[str] = []
        """By offset."""
        self._writers: dict[str, None] = {}

    def let_write(self, client: Client) -> None:
        if client.name in self._writers:
            return
        self._writers[client.name] = None
        for codec in CODECS:
            records = records_of(client.name, codec)
            client.produce(self.topic, records, codec)
            first = len(self.expected)
            self.expected += [Seen(first + place, *record) for place, record in enumerate(records)]
            self.codecs += [codec] * len(records)

    def codecs_on(self, broker: str) -> list[str]:
        """Codecs of the batches in the broker's file, by offset."""
        (segment,) = self._cluster.partition_directory(broker, self.topic, 0).glob("*.log")
        found: list[str] = []
        for _position, header in iterate_batches(segment.read_bytes()):
            assert header.base_offset == len(found)
            found += [CODECS[header.compression]] * (header.last_offset - header.base_offset + 1)
        return found


@pytest.fixture(scope="module")
def mixture(shared_cluster: RunningCluster) -> Mixture:
    return Mixture(shared_cluster)


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.client(name)) for name in NAMES])
@pytest.mark.feature("PF-20", "PF-11", "PF-12", "CL-01", "PR-01", "PR-10")
def test_a_client_writes_with_every_codec(
    name: str, mixture: Mixture, cluster: RunningCluster, request: pytest.FixtureRequest
) -> None:
    mixture.let_write(make_client(name, cluster, request))
    for node in cluster.layout.brokers:
        assert mixture.codecs_on(node.name) == mixture.codecs


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.client(name)) for name in NAMES])
@pytest.mark.feature("PF-20", "PF-11", "PF-12", "CL-01", "ST-14", "ST-20")
def test_a_client_reads_what_all_clients_wrote(
    name: str, mixture: Mixture, cluster: RunningCluster, request: pytest.FixtureRequest
) -> None:
    for writer in NAMES:
        if not lacking(writer):
            mixture.let_write(make_client(writer, cluster, request))
    client = make_client(name, cluster, request)
    assert client.consume(mixture.topic, len(mixture.expected)) == mixture.expected
