"""`any_cluster`: each test that asks for it runs on our cluster, and again on Apache Kafka 4.3.1.

    async def test_mine(any_cluster: AnyCluster) -> None:
        topic = any_cluster.create_topic("mine", partitions=3)
        async with Producer(bootstrap_servers=any_cluster.bootstrap_servers) as producer: ...

Each of the two is started once in a run. Such tests are `compat` tests by themselves; without Java those on Apache
Kafka are skipped.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from barnabas.cluster.ports import free_base_port
from tests.compat.apache import ApacheKafka
from tests.compat.available import kafka_libs
from tests.compat.client.any_cluster import APACHE_KAFKA, BARNABAS, AnyCluster
from tests.compat.client.secured_kafka import PORTS, SecuredKafka, secured_kafka
from tests.compat.running import QUICK_GROUPS, RunningCluster

_KINDS = [pytest.param(kind, marks=[pytest.mark.compat, pytest.mark.client(kind)]) for kind in (BARNABAS, APACHE_KAFKA)]


LONGEST_TEST_SECONDS = 60


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The half of a test that runs on Apache Kafka is nightly if the test is marked so."""
    for item in items:
        kind = getattr(item, "callspec", None) and item.callspec.params.get("kind_of_cluster")  # type: ignore[attr-defined]
        if kind == APACHE_KAFKA and item.get_closest_marker("nightly_on_kafka"):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(autouse=True)
def nothing_hangs(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test that waits for ever fails, and says where; the others still have their turn."""
    marker = request.node.get_closest_marker("timeout")
    seconds = LONGEST_TEST_SECONDS if marker is None else int(marker.args[0])

    def give_up(*_: object) -> None:
        raise TimeoutError(f"this test takes longer than {seconds} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(seconds)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="session")
def apache_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AnyCluster]:
    libs = kafka_libs()
    assert libs is not None
    base_port = free_base_port((0, 1))
    data = tmp_path_factory.mktemp("apache-kafka")
    node = ApacheKafka(libs, data, (base_port, base_port + 1), QUICK_GROUPS, levels={"share.version": 1})
    node.start()
    yield AnyCluster(APACHE_KAFKA, (node.port,))
    node.stop()


@pytest.fixture(scope="session", params=_KINDS)
def kind_of_cluster(request: pytest.FixtureRequest) -> str:
    kind: str = request.param
    return kind


@pytest.fixture(scope="session")
def secured(kind_of_cluster: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    """One node with TLS, SASL and ACLs, ours or Apache Kafka, with the same file of settings."""
    base_port = free_base_port(tuple(range(len(PORTS) + 1)))
    libs = kafka_libs() if kind_of_cluster == APACHE_KAFKA else None
    with secured_kafka(libs, tmp_path_factory.mktemp("secured"), base_port) as node:
        yield node


@pytest.fixture
def any_cluster(kind_of_cluster: str, request: pytest.FixtureRequest) -> AnyCluster:
    """Ours, which must not have logged a mistake of its own after the test, or Apache Kafka."""
    if kind_of_cluster == APACHE_KAFKA:
        theirs: AnyCluster = request.getfixturevalue("apache_kafka")
        return theirs
    ours: RunningCluster = request.getfixturevalue("cluster")
    return AnyCluster(BARNABAS, tuple(broker.port for broker in ours.layout.brokers))
