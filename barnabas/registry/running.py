"""Runs a registry: its topic, its place in the group, its HTTP side."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import trio
from hypercorn.typing import Framework

from barnabas.client.admin.settings import AdminSettings
from barnabas.client.session import open_cluster
from barnabas.https import Https
from barnabas.registry.api import RegistryApi
from barnabas.registry.candidate import ElectionSettings, Identity
from barnabas.registry.election import Election
from barnabas.registry.forwarding import Forwarding
from barnabas.registry.http_side import HttpSide
from barnabas.registry.protoc import compile_files
from barnabas.registry.records import AVRO, JSON_SCHEMA, PROTOBUF
from barnabas.registry.schemas.avro import AvroSchema
from barnabas.registry.schemas.formats import Formats
from barnabas.registry.schemas.json_schema import JsonSchema
from barnabas.registry.schemas.protobuf import ProtobufSchema
from barnabas.registry.service import RegistryService
from barnabas.registry.store import TOPIC, TopicStore
from barnabas.runtime.http_token import HttpToken
from barnabas.runtime.process import host_name
from barnabas.web import serve_app

_EVERYWHERE = ("", "0.0.0.0", "::")


@dataclass(frozen=True, slots=True)
class RegistryOptions:
    """A registry as its user wants it."""

    listener: socket.socket
    host: str
    clients: Mapping[str, Any]
    """Keyword arguments of all clients of the cluster: bootstrap servers, security."""
    topic: str = TOPIC
    advertised_host: str = ""
    """The name that other registries reach it by; without it `host`, or the machine's name."""
    election: ElectionSettings = field(default_factory=ElectionSettings)
    token: HttpToken | None = None
    """Every request needs it; other registries of the group have the same. None: everybody may read and write."""
    https: Https | None = None
    """Serve HTTPS; other registries of the group do, too."""

    @property
    def scheme(self) -> str:
        return "http" if self.https is None else "https"

    @property
    def port(self) -> int:
        port: int = self.listener.getsockname()[1]
        return port

    @property
    def identity(self) -> Identity:
        own = host_name() if self.host in _EVERYWHERE else self.host
        return Identity(self.advertised_host or own, self.port, scheme=self.scheme)

    @property
    def url(self) -> str:
        """Its address for programs on this machine."""
        host = "127.0.0.1" if self.host in _EVERYWHERE else self.host
        return f"{self.scheme}://{_in_url(host)}:{self.port}"


@dataclass(frozen=True, slots=True)
class RunningRegistry:
    """A registry that answers."""

    url: str
    topic: str
    service: RegistryService


def formats() -> Formats:
    """All types of schemas."""
    return Formats(
        {AVRO: AvroSchema, JSON_SCHEMA: JsonSchema, PROTOBUF: lambda source: ProtobufSchema(source, compile_files)}
    )


async def run_registry(
    options: RegistryOptions, *, task_status: trio.TaskStatus[RunningRegistry] = trio.TASK_STATUS_IGNORED
) -> None:
    """Until cancelled; started when it answers. Raises `ClusterError` if its topic cannot be used."""
    url, identity = options.url, options.identity
    clients = {"client_id": "barnabas-registry", **options.clients}
    async with TopicStore(clients, options.topic) as store, open_cluster(AdminSettings.of(clients)) as cluster:
        election = Election(cluster, options.election, identity)
        service = RegistryService(store, formats(), election)
        forwarding = Forwarding(options.token, options.https)
        app = HttpSide(RegistryApi(service, forwarding.forward).answer, options.token)
        async with trio.open_nursery() as nursery:
            await nursery.start(store.run)
            await nursery.start(election.run)
            tls = None
            if options.https is not None:
                tls = options.https.server_context()
                nursery.start_soon(options.https.run)
            await nursery.start(serve_app, cast(Framework, app), options.listener, tls)
            task_status.started(RunningRegistry(url, options.topic, service))


def _in_url(host: str) -> str:
    try:
        return f"[{host}]" if ipaddress.ip_address(host).version == 6 else host
    except ValueError:
        return host
