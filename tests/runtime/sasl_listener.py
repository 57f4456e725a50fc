"""A small server behind SASL: it serves ApiVersions and Metadata, and notes who asked."""

from __future__ import annotations

from dataclasses import dataclass, field

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.api_versions import ApiVersionsResponse
from barnabas.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from barnabas.protocol.sasl.scram_credentials import SCRAM_MECHANISMS, ScramCredential, credential_of_password
from barnabas.runtime.call import Call
from barnabas.runtime.dispatch import Dispatcher
from barnabas.runtime.sasl.handlers import SASL_HANDLERS
from barnabas.runtime.sasl.mechanisms import SaslPorts, TokenCredential, server_mechanisms
from barnabas.runtime.sasl.options import SaslOptions
from barnabas.runtime.sasl.server import SaslListener
from barnabas.runtime.security import ListenerSecurity
from barnabas.runtime.server import Server, ServerLimits
from barnabas.runtime.world import Listener, World

PLAIN_JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required"
    ' username="alice" password="alice-secret" user_alice="alice-secret" user_bob="bob-secret";'
)
VALUES = {
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "plain.sasl.jaas.config": PLAIN_JAAS,
    "connection.failed.authentication.delay.ms": "20",
}
TOPIC = "secrets"


@dataclass
class Users:
    """The lookups of a listener."""

    credentials: dict[tuple[str, str], ScramCredential] = field(default_factory=dict)
    tokens: dict[str, TokenCredential] = field(default_factory=dict)

    def add(self, user: str, password: str) -> None:
        for name, mechanism in SCRAM_MECHANISMS.items():
            self.credentials[name, user] = credential_of_password(mechanism, password, f"salt of {user}".encode())

    def credential(self, mechanism: str, user: str) -> ScramCredential | None:
        return self.credentials.get((mechanism, user))


class SaslServer:
    """One listener of one server."""

    def __init__(
        self,
        world: World,
        values: dict[str, str] | None = None,
        users: Users | None = None,
        ports: SaslPorts | None = None,
        inner: ListenerSecurity | None = None,
    ) -> None:
        self.users = users or Users()
        if users is None:
            self.users.add("alice", "alice-secret")
        options = SaslOptions.of(VALUES | (values or {}))
        ports = ports or SaslPorts(world.chance.randbytes)
        mechanisms = server_mechanisms(options, self.users.credential, self.users.tokens.get, ports)
        self.security = SaslListener.of(world, options, mechanisms, inner)
        self.principals: list[str] = []
        """Principals of the requests for metadata."""
        self.token_authenticated: list[bool] = []
        self.produced = 0
        """Requests to produce, which get no answer."""
        self._address = ("", 0)
        self._dispatcher = Dispatcher(
            {
                ApiKey.API_VERSIONS: self._api_versions,
                ApiKey.METADATA: self._metadata,
                ApiKey.PRODUCE: self._produce,
                **SASL_HANDLERS,
            }
        )
        self.server = Server(world, self._dispatcher, ServerLimits())

    async def serve(self, listener: Listener, host: str = "127.0.0.1", *, secured: bool = True) -> None:
        self._address = (host, listener.port)
        security: ListenerSecurity | None = self.security if secured else None
        await self.server.serve(listener, "SASL_PLAINTEXT", security)

    def _produce(self, call: Call) -> None:
        """Sends no response, as with acks=0."""
        self.produced += 1
        call.answer_nothing()

    def _api_versions(self, call: Call) -> None:
        call.answer(ApiVersionsResponse(api_keys=self._dispatcher.advertised()))

    def _metadata(self, call: Call) -> None:
        self.principals.append(str(call.request.principal))
        self.token_authenticated.append(call.request.principal.token_authenticated)
        host, port = self._address
        partition = MetadataResponsePartition(partition_index=0, leader_id=1, replica_nodes=[1], isr_nodes=[1])
        call.answer(
            MetadataResponse(
                brokers=[MetadataResponseBroker(node_id=1, host=host, port=port)],
                controller_id=1,
                topics=[MetadataResponseTopic(name=TOPIC, partitions=[partition])],
            )
        )
