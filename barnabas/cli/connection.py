"""Options that name the cluster and the client settings, shared by all commands that connect."""

from __future__ import annotations

import difflib
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from barnabas.cli.options import DEFAULT_DATA, Bootstrap, Data, bootstrap_from
from barnabas.cluster.errors import WrongArgument

if TYPE_CHECKING:
    from barnabas.client.security_settings import SecuritySettings

ClientConfig = Annotated[
    Path | None,
    typer.Option(
        "--command-config",
        "--client-config",
        metavar="FILE",
        envvar="BARNABAS_CLIENT_CONFIG",
        show_envvar=False,
        help="Properties file with client settings under Kafka's names, e.g. security.protocol.",
    ),
]
Properties = Annotated[
    list[str] | None,
    typer.Option("-X", "--property", metavar="NAME=VALUE", help="Client setting, e.g. linger.ms=50; repeatable."),
]
SchemaRegistry = Annotated[
    str | None,
    typer.Option(
        "--schema-registry",
        metavar="URL",
        envvar="BARNABAS_SCHEMA_REGISTRY",
        show_envvar=False,
        help="Address of the schema registry, for avro, json-schema and protobuf.",
    ),
]
Timeout = Annotated[
    float, typer.Option("--timeout", metavar="SECONDS", min=0.001, help="Time limit for the cluster to answer.")
]
AsJson = Annotated[bool, typer.Option("--json", "-J", help="Print JSON.")]


ADMIN_CONFIG = Path("security/admin/client.properties")
ADMIN_SSL_CONFIG = Path("security/admin/client-ssl.properties")
"""In the directory of a secure local cluster. The second works before there are users with passwords."""


@dataclass(frozen=True)
class Connection:
    """Bootstrap servers and client settings of one command."""

    bootstrap: Bootstrap = None
    data: Data = DEFAULT_DATA
    client_config: ClientConfig = None
    properties: Properties = None
    timeout: Timeout = 15.0

    @property
    def timeout_ms(self) -> int:
        return round(self.timeout * 1000)

    @property
    def is_local(self) -> bool:
        """Whether the bootstrap servers are those of the local cluster in `data`."""
        return self.bootstrap is None and (
            self.client_config is None or "bootstrap_servers" not in self._of_file()
        )

    @property
    def config_file(self) -> Path | None:
        """The file with client settings: the given one, or that of the administrator of a secure local cluster."""
        if self.client_config is not None or self.bootstrap is not None:
            return self.client_config
        own = self.data / ADMIN_CONFIG
        return own if own.exists() else None

    def bootstrap_addresses(self) -> list[tuple[str, int]]:
        """Raises `WrongArgument`."""
        in_file = self._of_file().get("bootstrap_servers")
        return bootstrap_from(in_file if self.bootstrap is None else self.bootstrap, self.data)

    def settings(self, known: Collection[str], **own: Any) -> dict[str, Any]:
        """Settings for a client that has the settings `known`, by precedence: -X, then `own` unless None, then the
        file. Settings that only other kinds of clients have are ignored. Raises `WrongArgument`.
        """
        given = self._of_file()
        settings: dict[str, Any] = {name: value for name, value in given.items() if name in known}
        settings |= {name: value for name, value in own.items() if value is not None}
        for text in self.properties or []:
            name, equals, value = text.partition("=")
            name = _snake(name.strip())
            if not equals or not name:
                raise WrongArgument(f"-X {text}: not NAME=VALUE, as in -X linger.ms=50")
            if name in known:
                settings[name] = value.strip()
            elif name not in (every := _every_setting()):
                raise WrongArgument(f"-X {text}: no such client setting{_near(name, every)}")
        if self.bootstrap is not None or "bootstrap_servers" not in settings:
            addresses = bootstrap_from(self.bootstrap, self.data)
            settings["bootstrap_servers"] = tuple(_address(host, port) for host, port in addresses)
        settings.setdefault("client_id", "barnabas-cli")
        return settings

    def security(self) -> SecuritySettings:
        """How connections are secured, for what is no client of its own. Raises `WrongArgument`."""
        from barnabas.client.errors import ConfigException
        from barnabas.client.security_settings import SecuritySettings

        given = self.settings(SecuritySettings.model_fields)
        try:
            return SecuritySettings.of({name: given[name] for name in SecuritySettings.model_fields if name in given})
        except ConfigException as error:
            raise WrongArgument(str(error.message)) from None

    def _of_file(self) -> dict[str, str]:
        file = self.config_file
        if file is None:
            return {}
        from barnabas.settings.errors import SettingsError
        from barnabas.settings.properties import parse_properties

        try:
            found = parse_properties(file.read_text(), str(file))
        except OSError as error:
            raise WrongArgument(f"--command-config {file}: {error.strerror}") from None
        except (SettingsError, UnicodeDecodeError) as error:
            raise WrongArgument(f"--command-config {file}: {error}") from None
        return {_snake(name): value for name, (value, _line) in found.items()}


def _every_setting() -> Collection[str]:
    """Settings of producers, consumers and admin clients."""
    from barnabas.client.admin.settings import AdminSettings
    from barnabas.client.consumer.settings import ConsumerSettings
    from barnabas.client.producer.settings import ProducerSettings

    return {*ProducerSettings.model_fields, *ConsumerSettings.model_fields, *AdminSettings.model_fields}


_OF_SERIALIZERS = ("basic_auth_", "bearer_auth_")
"""Beginnings of names that Java's serializers have without the prefix `schema.registry.`."""


def _snake(name: str) -> str:
    snake = name.replace(".", "_").replace("-", "_")
    return f"schema_registry_{snake}" if snake.startswith(_OF_SERIALIZERS) else snake


def _near(name: str, known: Collection[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {near[0].replace('_', '.')}?" if near else ""


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
