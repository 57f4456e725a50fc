"""The client's view of the cluster, and how it is kept fresh."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
import trio

from barnabas.client.cluster import Cluster, NoBrokerAvailable
from barnabas.client.cluster_settings import ClusterSettings
from barnabas.client.errors import UnsupportedVersionException
from barnabas.client.metadata import Leadership, TopicPartition
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse
from barnabas.runtime.channel import CallTimedOut, NotSent
from barnabas.runtime.simulated import Universe, make_world, run_simulation
from tests.barnabas.client.fake_cluster import FakeCluster, with_client
from tests.barnabas.client.plain_node import PORT, PlainNode, metadata

T0 = TopicPartition("t", 0)


def test_many_who_want_to_know_ask_once() -> None:
    async def story(fake: FakeCluster, cluster: Cluster, nursery: trio.Nursery) -> None:
        fake.create("t", 3)
        async with trio.open_nursery() as askers:
            for _ in range(20):
                askers.start_soon(cluster.partitions_count, "t", 1000)
        assert fake.seen.count(ApiKey.METADATA) <= 2
        assert cluster.leadership(T0) == Leadership(1, 0)
        assert sorted(cluster.nodes) == [1, 2, 3]
        assert cluster.topic_name(cluster.topic_id("t")) == "t"

    run_simulation(1, with_client, story)


def test_older_news_of_a_leader_is_dropped_and_a_new_life_of_the_topic_is_believed() -> None:
    async def story(fake: FakeCluster, cluster: Cluster, nursery: trio.Nursery) -> None:
        [partition] = fake.create("t")
        await cluster.refresh(["t"])
        assert cluster.learn_leader(T0, 2, 5)
        assert not cluster.learn_leader(T0, 3, 5)
        assert not cluster.learn_leader(T0, 9, 6), "an unknown node is no place to go"
        await cluster.refresh()
        assert cluster.leadership(T0) == Leadership(2, 5), "the broker that was asked lags behind"
        partition.leader, partition.epoch = 3, 6
        await cluster.refresh()
        assert cluster.leadership(T0) == Leadership(3, 6)
        fake.create("another")
        fake.create("t")
        await cluster.refresh()
        assert cluster.leadership(T0) == Leadership(1, 0)

    run_simulation(2, with_client, story)


def test_a_topic_is_waited_for_until_it_is_there() -> None:
    async def story(fake: FakeCluster, cluster: Cluster, nursery: trio.Nursery) -> None:
        async def create_later() -> None:
            await trio.sleep(1)
            fake.create("t", 2)

        nursery.start_soon(create_later)
        assert await cluster.partitions_count("t", 5000) == 2
        began = trio.current_time()
        with pytest.raises(KafkaError, match="UNKNOWN_TOPIC_OR_PARTITION"):
            await cluster.partitions_count("never", 1500)
        assert 1.4 < trio.current_time() - began < 1.7

    run_simulation(3, with_client, story)


def test_topics_that_a_client_may_see() -> None:
    async def story(fake: FakeCluster, cluster: Cluster, nursery: trio.Nursery) -> None:
        fake.create("t", 2)
        fake.create("u", 1)
        listed = await cluster.list_topics(1000)
        assert {topic: len(partitions) for topic, partitions in listed.items()} == {"t": 2, "u": 1}
        assert not cluster.topics, "to look at a topic is not to use it"
        [first, second] = await cluster.partitions_for("t", 1000)
        assert (first.leader, second.leader) == (cluster.nodes[1], cluster.nodes[2])

    run_simulation(4, with_client, story)


# Metadata over hours, and of whole clusters

SETTINGS = ClusterSettings(
    request_timeout_ms=1_000,
    retry_backoff_ms=100,
    socket_connection_setup_timeout_ms=500,
    metadata_max_age_ms=60_000,
    connections_max_idle_ms=40_000,
    metadata_recovery_rebootstrap_trigger_ms=30_000,
)

Scenario = Callable[["Scene"], Awaitable[None]]


class Scene:
    """Brokers b1 and b2, and a client with the bootstrap server `front`, a name of b1."""

    def __init__(self, universe: Universe, nursery: trio.Nursery) -> None:
        self.universe = universe
        self.nursery = nursery
        self.brokers = {1: "b1", 2: "b2"}
        self.known_topics = {"t": 1, "u": 1}
        self.nodes = [PlainNode({ApiKey.METADATA: self.metadata_response}) for _ in range(3)]

    def metadata_response(self, request: MetadataRequest) -> MetadataResponse:
        asked = list(self.known_topics) if request.topics is None else [topic.name for topic in request.topics]
        by_id = {name.encode().ljust(16, b"-"): name for name in self.known_topics}
        names = [name or by_id[topic.topic_id] for name, topic in zip(asked, request.topics or asked, strict=True)]
        return metadata(self.brokers, {name: self.known_topics[name] for name in names})

    def start(self, *names: str) -> None:
        for name in names:
            self.nodes[int(name[1]) - 1].start(self.nursery, self.universe, name)

    def open(self, settings: ClusterSettings = SETTINGS) -> Cluster:
        world = make_world("client", self.universe)
        return Cluster(world, self.nursery, [("front", PORT)], client_id="test", settings=settings)

    def asked(self) -> list[list[str] | None]:
        """The topics of all Metadata requests, in the order of time."""
        requests = sorted(
            [(when, message) for node in self.nodes for when, key, message in node.asked if key is ApiKey.METADATA],
            key=lambda each: each[0],
        )
        return [None if each.topics is None else [topic.name for topic in each.topics] for _, each in requests]


def stage(scenario: Scenario, seed: int = 1) -> None:
    async def story(universe: Universe) -> None:
        for name in ("b1", "b2", "b3"):
            universe.host(name)
        universe.fabric.names["front"] = "b1"
        with trio.fail_after(36_000):
            async with trio.open_nursery() as nursery:
                scene = Scene(universe, nursery)
                scene.start("b1", "b2")
                await trio.sleep(0.01)
                await scenario(scene)
                nursery.cancel_scope.cancel()

    run_simulation(seed, story)


@pytest.mark.feature("CL-01")
def test_when_no_known_broker_is_left_the_bootstrap_servers_are_asked_again() -> None:
    async def scenario(scene: Scene) -> None:
        cluster = scene.open()
        assert await cluster.refresh(["t"])
        for name in ("b1", "b2"):
            scene.universe.kill(name)
        scene.brokers = {7: "b3"}
        scene.start("b3")
        scene.universe.fabric.names["front"] = "b3"
        while not await cluster.refresh():
            await trio.sleep(0.1)
        assert list(cluster.nodes) == [7]
        assert cluster.leadership(T0) == Leadership(7, 3)

    stage(scenario)


@pytest.mark.feature("CL-01")
def test_without_recovery_the_bootstrap_servers_are_asked_once_only() -> None:
    async def scenario(scene: Scene) -> None:
        cluster = scene.open(replace(SETTINGS, metadata_recovery_strategy="none"))
        assert await cluster.refresh(["t"])
        for name in ("b1", "b2"):
            scene.universe.kill(name)
        scene.start("b3")
        scene.universe.fabric.names["front"] = "b3"
        for _ in range(50):
            assert not await cluster.refresh()
            await trio.sleep(1)
        with pytest.raises(NoBrokerAvailable, match="connection refused"):
            await cluster.call_any(MetadataRequest(topics=[]))

    stage(scenario)


@pytest.mark.feature("CL-01")
def test_brokers_that_do_not_respond_are_given_up() -> None:
    async def scenario(scene: Scene) -> None:
        cluster = scene.open()
        assert await cluster.refresh(["t"])
        scene.universe.fabric.names["front"] = "b3"
        scene.brokers = {3: "b3"}
        scene.start("b3")
        for node in scene.nodes[:2]:
            node.answers[ApiKey.METADATA] = lambda _: None
        began = trio.current_time()
        while not await cluster.refresh():
            await trio.sleep(0.1)
        assert 30 <= trio.current_time() - began < 35
        assert list(cluster.nodes) == [3]

    stage(scenario)


@pytest.mark.feature("CL-01")
def test_a_broker_may_send_its_clients_back_to_the_bootstrap_servers() -> None:
    async def scenario(scene: Scene) -> None:
        cluster = scene.open()
        assert await cluster.refresh(["t"])
        scene.universe.fabric.names["front"] = "b3"
        scene.brokers = {3: "b3"}
        scene.start("b3")
        await trio.sleep(0.1)
        for node in scene.nodes[:2]:
            node.answers[ApiKey.METADATA] = lambda _: MetadataResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED)
        # The bootstrap connection of old is still open, and leads to b1.
        scene.universe.kill("b1")
        await trio.sleep(0.1)
        assert await cluster.refresh()
        assert list(cluster.nodes) == [3]

    stage(scenario)


@pytest.mark.feature("CL-01")
def test_a_broker_that_knows_of_none_is_not_believed() -> None:
    async def scenario(scene: Scene) -> None:
        cluster = scene.open()
        assert await cluster.refresh(["t"])
        scene.brokers = {}
        assert not await cluster.refresh()
        assert list(cluster.nodes) == [1, 2]

    stage(scenario)


@pytest.mark.feature("PR-01")
def test_old_metadata_is_asked_for_again_by_itself() -> None:
    async def scenario(scene: Scene) -> None:
        cluster = scene.open()
        await cluster.refresh(["t"])
        scene.known_topics["t"] = 5
        scene.brokers = {1: "b1", 2: "b2", 3: "b3"}
        await trio.sleep(59)
        assert (await cluster.partitions_count("t", 0), list(cluster.nodes)) == (1, [1, 2])
        await trio.sleep(2)
        assert (await cluster.partitions_count("t", 0), list(cluster.nodes)) == (5, [1, 2, 3])
        await trio.sleep(600)
        assert 11 <= len(scene.asked()) <= 13

    stage(scenario)


@pytest.mark.feature("PR-01")
def test_topics_that_nobody_uses_are_not_asked_about_for_ever() -> None:
    async def scenario(scene: Scene) -> None:
        cluster = scene.open(replace(SETTINGS, metadata_max_idle_ms=100_000))
        await cluster.refresh(["t", "u"])
        for _ in range(30):
            await trio.sleep(10)
            assert cluster.leadership(T0) is not None
        assert scene.asked()[1] == ["t", "u"]
        assert scene.asked()[-1] == ["t"]
        assert cluster.leadership(TopicPartition("u", 0)) is None
        assert await cluster.partitions_count("u", 1000) == 1

    stage(scenario)


def test_a_new_topic_alone_is_asked_about() -> None:
    async def scenario(scene: Scene) -> None:
        cluster = scene.open()
        await cluster.refresh(["t"])
        await cluster.refresh(["u"])
        await cluster.refresh()
        assert scene.asked() == [["t"], ["u"], ["t", "u"]]

    stage(scenario)


def test_the_topics_of_a_cancelled_refresh_are_requested_by_the_next() -> None:
    async def scenario(scene: Scene) -> None:
        cluster = scene.open()
        await cluster.refresh()
        answers = []

        async def refresh(*topics: str) -> None:
            answers.append(await cluster.refresh(topics))

        with trio.move_on_after(0.000_1) as first:
            await cluster.refresh(["t"])
        assert first.cancelled_caught
        async with trio.open_nursery() as askers:
            scope = trio.CancelScope()

            async def impatient() -> None:
                with scope:
                    await refresh("t")

            askers.start_soon(impatient)
            await trio.sleep(0.000_1)
            askers.start_soon(refresh, "u")
            await trio.sleep(0.000_1)
            scope.cancel()
        assert answers == [True]
        assert cluster.leadership(T0) == Leadership(1, 3)
        assert cluster.leadership(TopicPartition("u", 0)) == Leadership(1, 3)

    stage(scenario)


def test_topics_are_found_by_their_ids() -> None:
    async def scenario(scene: Scene) -> None:
        cluster = scene.open()
        topic_id = b"u".ljust(16, b"-")
        assert cluster.topic_name(topic_id) is None
        assert await cluster.refresh(["u"])
        assert cluster.topic_name(topic_id) == "u"

    stage(scenario)


@pytest.mark.feature("CL-01")
def test_connections_that_nobody_needs_are_closed() -> None:
    async def scenario(scene: Scene) -> None:
        cluster = scene.open(replace(SETTINGS, metadata_max_age_ms=3_600_000))
        await cluster.refresh(["t"])
        await cluster.call(1, MetadataRequest(topics=[]))
        await cluster.call(2, MetadataRequest(topics=[]), line="another")
        for _ in range(10):
            await trio.sleep(15)
            await cluster.call(1, MetadataRequest(topics=[]))
        assert (len(scene.nodes[0].handshakes), len(scene.nodes[1].handshakes)) == (2, 1)
        assert [connection.connected for connection in cluster._every_connection()] == [False, True]
        await cluster.call(2, MetadataRequest(topics=[]), line="another")
        assert len(scene.nodes[1].handshakes) == 2

    stage(scenario)


@pytest.mark.feature("CL-01")
def test_a_node_that_moved_is_asked_where_it_is_now() -> None:
    async def scenario(scene: Scene) -> None:
        cluster = scene.open()
        await cluster.refresh(["t"])
        await cluster.call(2, MetadataRequest(topics=[]))
        scene.start("b3")
        scene.brokers = {1: "b1", 2: "b3"}
        await cluster.refresh()
        await cluster.call(2, MetadataRequest(topics=[]))
        assert len(scene.nodes[2].handshakes) == 1
        with pytest.raises(NotSent, match="broker 9 is unknown"):
            await cluster.call(9, MetadataRequest(topics=[]))

    stage(scenario)


@pytest.mark.feature("CL-01")
def test_old_brokers_are_distinguished_from_unreachable_ones() -> None:
    async def scenario(scene: Scene) -> None:
        cluster = scene.open()
        await cluster.refresh(["t"])
        with pytest.raises(UnsupportedVersionException, match="FindCoordinator"):
            await cluster.call_any(FindCoordinatorRequest(key="g"))
        with pytest.raises(UnsupportedVersionException, match="FindCoordinator"):
            await cluster.call(1, FindCoordinatorRequest(key="g"))

    stage(scenario)


@pytest.mark.feature("CL-01")
@pytest.mark.parametrize("line", ["", "coordinator"])
def test_a_broker_that_did_not_answer_on_one_connection_is_asked_last_on_every_other(line: str) -> None:
    async def scenario(scene: Scene) -> None:
        cluster = scene.open()
        await cluster.refresh(["t"])
        for node_id in scene.brokers:
            await cluster.call(node_id, MetadataRequest(topics=[]))
        scene.nodes[1].answers[ApiKey.METADATA] = lambda _: None
        with pytest.raises(CallTimedOut):
            await cluster.call(2, MetadataRequest(topics=[]), line=line)
        seen = len(scene.nodes[1].times(ApiKey.METADATA))
        for _ in range(10):
            await cluster.call_any(MetadataRequest(topics=[]))
        assert len(scene.nodes[1].times(ApiKey.METADATA)) == seen

        scene.nodes[1].answers[ApiKey.METADATA] = scene.metadata_response
        await trio.sleep(1)
        await cluster.call(2, MetadataRequest(topics=[]))
        for _ in range(30):
            await cluster.call_any(MetadataRequest(topics=[]))
        assert len(scene.nodes[1].times(ApiKey.METADATA)) > seen + 1, "it has answered since"

    stage(scenario)


def test_the_newest_features() -> None:
    async def scenario(scene: Scene) -> None:
        for node, (epoch, level) in zip(scene.nodes, [(5, 1), (9, 2), (0, 0)], strict=True):
            node.features, node.features_epoch = {"transaction.version": level}, epoch
        cluster = scene.open()
        assert cluster.features() == {}
        await cluster.refresh(["t"])
        assert cluster.features() == {"transaction.version": 1}
        await cluster.call(2, MetadataRequest(topics=[]))
        assert cluster.features() == {"transaction.version": 2}

    stage(scenario)


@pytest.mark.feature("CL-01")
def test_nothing_is_there_at_all() -> None:
    async def scenario(scene: Scene) -> None:
        for name in ("b1", "b2"):
            scene.universe.kill(name)
        cluster = scene.open()
        began = trio.current_time()
        with pytest.raises(KafkaError, match="REQUEST_TIMED_OUT"):
            await cluster.partitions_count("t", 3000)
        with pytest.raises(KafkaError, match="REQUEST_TIMED_OUT"):
            await cluster.list_topics(3000)
        assert trio.current_time() - began < 6.5

    stage(scenario)
