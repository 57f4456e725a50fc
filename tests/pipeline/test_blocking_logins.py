"""Blocking clients, as Spark's workers have them, log in by OAUTHBEARER with the trio client's exchanges."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from barnabas.pipeline.blocking_cluster import BlockingCluster
from barnabas.pipeline.cluster_access import ClusterAccess
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.sasl.jwt_claims import encode_unsecured
from barnabas.runtime.real import real_world
from barnabas.runtime.sasl.mechanisms import SaslPorts
from barnabas.runtime.sasl.provider_mechanisms import ProviderMechanisms
from barnabas.settings.oauth import UNSECURED_TOKENS
from tests.runtime.sasl.provider import Provider, running
from tests.runtime.sasl.test_oauth_client import response
from tests.runtime.sasl_listener import TOPIC, SaslServer

pytestmark = pytest.mark.feature("PL-01", "SE-05")

OAUTH = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.client.credentials.client.id": "spark",
    "sasl.oauthbearer.client.credentials.client.secret": "sesame",
    "sasl.login.retry.backoff.max.ms": "100",
}


def token(name: str, seconds: int = 3600) -> str:
    now = int(time.time())
    return encode_unsecured({"sub": name, "iat": now - 60, "exp": now + seconds})


@contextmanager
def serving() -> Iterator[tuple[SaslServer, int]]:
    """A listener with OAUTHBEARER, in a thread with an event loop of its own. It needs no keys: it is ready at once."""
    started = threading.Event()
    place: dict[str, Any] = {}

    async def serve() -> None:
        world = real_world()
        values = {"sasl.enabled.mechanisms": "OAUTHBEARER", UNSECURED_TOKENS: "true"}
        providers = ProviderMechanisms(world)
        ports = SaslPorts(world.chance.randbytes, servers=providers.servers)
        server = SaslServer(world, values, ports=ports)
        listener = await world.network.listen("127.0.0.1", 0)
        place.update(server=server, port=listener.port, loop=trio.lowlevel.current_trio_token(), stop=trio.Event())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(providers.run)
            nursery.start_soon(server.serve, listener)
            started.set()
            await place["stop"].wait()
            nursery.cancel_scope.cancel()

    thread = threading.Thread(target=trio.run, args=(serve,))
    thread.start()
    assert started.wait(20)
    try:
        yield place["server"], place["port"]
    finally:
        trio.from_thread.run_sync(place["stop"].set, trio_token=place["loop"])
        thread.join()


@pytest.fixture
def provider() -> Iterator[Provider]:
    with running(Provider()) as running_provider:
        yield running_provider


def access(port: int, values: dict[str, str]) -> ClusterAccess:
    return ClusterAccess.of_options(f"127.0.0.1:{port}", {f"kafka.{key}": text for key, text in values.items()})


def test_a_token_of_the_provider_serves_all_connections(provider: Provider) -> None:
    provider.responses = [response(token("alice"))]
    with serving() as (server, port):
        values = {**OAUTH, "sasl.oauthbearer.token.endpoint.url": provider.url("token")}
        with BlockingCluster(access(port, values)) as cluster:
            assert TOPIC in cluster.metadata().topics
            first = cluster.connection(1)
            first.close()
            assert TOPIC in cluster.metadata().topics
            assert cluster.connection(1) is not first
        assert set(server.principals) == {"User:alice"}
        assert len(provider.token_requests) == 1


def test_a_token_comes_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(token("bob"))
    with serving() as (server, port):
        values = {**OAUTH, "sasl.oauthbearer.token.endpoint.url": path.as_uri()}
        with BlockingCluster(access(port, values)) as cluster:
            assert TOPIC in cluster.metadata().topics
        assert set(server.principals) == {"User:bob"}


def test_a_token_that_nobody_accepts_and_a_provider_without_tokens_are_one_line(provider: Provider) -> None:
    provider.responses = [response(token("alice", -10)), (401, b"")]
    with serving() as (server, port):
        values = {**OAUTH, "sasl.oauthbearer.token.endpoint.url": provider.url("token")}
        for problem in ("invalid_token", "status 401"):
            with pytest.raises(KafkaError, match=problem) as caught:
                BlockingCluster(access(port, values), retry_timeout_ms=2_000).metadata()
            assert "sesame" not in str(caught.value) and "\n" not in str(caught.value)
        assert not server.principals
