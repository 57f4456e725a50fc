"""Stories of our client through a proxy in the same process."""

from __future__ import annotations

import re
import socket
import threading

import pytest

import barnabas
from barnabas import sync
from barnabas.cluster.errors import ClusterError, WrongArgument
from barnabas.cluster.ports import is_free
from barnabas.dev.embedded import EmbeddedServers
from barnabas.fault_proxy.embedded import ProxiedServers


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


def test_a_lost_answer_leaves_its_effect(barnabas_broker: EmbeddedServers, barnabas_topic: str) -> None:
    with barnabas.proxy(to=barnabas_broker) as proxy:
        rule = proxy.fail("Produce", drop="response", times=1)
        with sync.Producer(
            bootstrap_servers=proxy, enable_idempotence=False, retries=0, request_timeout_ms=300
        ) as producer:
            with pytest.raises(barnabas.errors.TimeoutException):
                producer.send(barnabas_topic, b"written, and not known")
            assert producer.send(barnabas_topic, b"the next one").offset == 1
        assert rule.struck == 1


def test_a_cut_is_not_noticed_until_it_heals(barnabas_broker: EmbeddedServers, barnabas_topic: str) -> None:
    with barnabas.proxy(to=barnabas_broker) as proxy, sync.Producer(bootstrap_servers=proxy) as producer:
        assert producer.send(barnabas_topic, b"before").offset == 0
        proxy.cut()
        with sync.Producer(bootstrap_servers=barnabas_broker) as beside:
            assert beside.send(barnabas_topic, b"beside the proxy").offset == 1
        sent = threading.Thread(target=producer.send, args=(barnabas_topic, b"late"))
        sent.start()
        sent.join(0.3)
        assert sent.is_alive()
        proxy.heal()
        sent.join(20)
        assert not sent.is_alive()
        assert producer.send(barnabas_topic, b"after").offset == 3


def test_rules_that_did_nothing_are_logged_at_the_end(
    barnabas_broker: EmbeddedServers, caplog: pytest.LogCaptureFixture
) -> None:
    with barnabas.proxy(to=barnabas_broker) as proxy:
        proxy.add("EndTxn error=INVALID_TXN_STATE")
    assert [each.message for each in caplog.records] == [
        "rule 1 never matched a request: EndTxn error=INVALID_TXN_STATE"
    ]


def test_the_fixture_stands_before_the_broker(barnabas_proxy: ProxiedServers, barnabas_topic: str) -> None:
    barnabas_proxy.fail("Produce", error="CORRUPT_MESSAGE", times=1)
    with sync.Producer(bootstrap_servers=barnabas_proxy) as producer:
        assert producer.send(barnabas_topic, b"again").offset == 0


def test_a_name_of_a_host_is_given_to_clients(barnabas_broker: EmbeddedServers) -> None:
    with (
        barnabas.proxy(to=barnabas_broker, advertise="localhost") as proxy,
        sync.Admin(bootstrap_servers=proxy) as admin,
    ):
        assert [node.host for node in admin.describe_cluster().nodes] == ["localhost"]


def test_bad_arguments_are_named(barnabas_broker: EmbeddedServers) -> None:
    for arguments, reason in (
        ({"to": "kafka:port"}, "--to must be host:port; got 'kafka:port'"),
        ({"to": barnabas_broker, "listen": "host"}, "--listen must be PORT or HOST:PORT"),
        ({"to": barnabas_broker, "config": {"security.protocol": "SSH"}}, "security_protocol must be PLAINTEXT, SSL"),
        ({"to": barnabas_broker, "config": "/does/not/exist"}, "/does/not/exist: No such file or directory"),
    ):
        with pytest.raises(WrongArgument, match=re.escape(reason)), barnabas.proxy(**arguments):  # type: ignore[arg-type]
            pass
    with barnabas.proxy(to=barnabas_broker) as proxy:
        with pytest.raises(WrongArgument, match=r"eror is unknown; did you mean error\?"):
            proxy.fail("Produce", eror="NOT_LEADER_OR_FOLLOWER")
        with pytest.raises(WrongArgument, match="rules are none; got 7"):
            proxy.remove(7)
        with pytest.raises(ClusterError, match=r"broker must be one of 1 \(127.0.0.1:\d+\); got '9'"):
            proxy.cut(broker=9)
        with pytest.raises(WrongArgument, match="link: loss must be less than 1; got 2"):
            proxy.link(loss=2)


def test_a_port_that_is_taken_is_named(barnabas_broker: EmbeddedServers) -> None:
    port = barnabas_broker.rpartition(":")[2]
    reason = f"cannot listen on 127.0.0.1, port {port}: Address already in use; --listen 0 takes any free ports"
    with pytest.raises(ClusterError, match=reason), barnabas.proxy(to=barnabas_broker, listen=int(port)):
        pass


def test_a_cluster_that_is_away_is_named() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        with (
            pytest.raises(ClusterError, match=rf"the cluster does not answer: 127.0.0.1:{port}: .*refused"),
            barnabas.proxy(to=f"127.0.0.1:{port}"),
        ):
            pass


def test_a_cluster_that_is_just_starting_is_awaited() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]

        def answer() -> None:
            bound.listen()
            connection, _ = bound.accept()
            connection.close()

        # The first attempt is refused; the timer only decides which of the later ones is not.
        starting = threading.Timer(0.3, answer)
        starting.start()
        with pytest.raises(ClusterError) as failed, barnabas.proxy(to=f"127.0.0.1:{port}"):
            pass
        starting.join()
    assert "refused" not in str(failed.value)


def test_a_target_of_another_protocol_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def answer() -> None:
            connection, _ = server.accept()
            connection.recv(1000)
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            connection.recv(1000)
            connection.close()

        speaker = threading.Thread(target=answer)
        speaker.start()
        with (
            pytest.raises(ClusterError, match=rf"the cluster does not answer: 127.0.0.1:{port}: handshake .* failed"),
            barnabas.proxy(to=f"127.0.0.1:{port}"),
        ):
            pass
        speaker.join(10)


def test_a_proxy_leaves_no_thread_and_no_port(barnabas_broker: EmbeddedServers) -> None:
    with barnabas.proxy(to=barnabas_broker) as proxy:
        port = int(proxy.rpartition(":")[2])
        running = {each for each in threading.enumerate() if each.name == "barnabas"}
        with sync.Admin(bootstrap_servers=proxy) as admin:
            admin.describe_cluster()
    assert is_free(port)
    assert sum(each.is_alive() for each in running) == len(running) - 1
