"""Core: the bootstrap servers of a cluster together with the settings that secure connections to it.

Spark's options for a secured cluster are those of Spark's own Kafka source: `kafka.security.protocol`,
`kafka.sasl.jaas.config`, `kafka.ssl.truststore.location` and so on.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from barnabas.client.errors import ConfigException
from barnabas.client.security_names import SecurityOptions
from barnabas.pipeline.addresses import parse_bootstrap
from barnabas.pipeline.errors import WrongUse

PREFIX = "kafka."
OPTION_OF = {
    name: PREFIX + name.replace("_", ".")
    for name in SecurityOptions.__annotations__
    if name != "sasl_login_callback_handler_class"
}
"""Setting to the option of Spark that sets it. A token function cannot be an option, which is text."""
SECURITY_OPTIONS = tuple(OPTION_OF.values())


@dataclass(frozen=True, slots=True)
class ClusterAccess:
    """Servers and security settings. It is sent to executors, secrets included."""

    servers: str
    """HOST:PORT,…"""
    security: Mapping[str, str] = field(default_factory=dict, repr=False)
    """By Kafka's keys. They were checked, as `SecuritySettings`."""

    @classmethod
    def of_options(cls, servers: str, options: Mapping[str, str]) -> ClusterAccess:
        """From Spark's options, whose names are in any case. WrongUse for an invalid one."""
        parse_bootstrap(servers)
        given = {name.lower(): value for name, value in options.items()}
        settings = {name: given[option] for name, option in OPTION_OF.items() if option in given}
        if not settings:
            return cls(servers)
        # Executors do not load it.
        from barnabas.client.security_settings import SecuritySettings

        try:
            return cls(servers, SecuritySettings.of(settings).given_values())
        except ConfigException as error:
            raise WrongUse(_with_option_names(str(error.message))) from None

    @property
    def options(self) -> dict[str, str]:
        """The options of a reader or a writer for this cluster."""
        return {f"{PREFIX}bootstrap.servers": self.servers} | {
            PREFIX + key: value for key, value in self.security.items() if PREFIX + key in SECURITY_OPTIONS
        }

    @property
    def encrypts(self) -> bool:
        return self._protocol in ("SSL", "SASL_SSL")

    @property
    def authenticates(self) -> bool:
        return self._protocol in ("SASL_PLAINTEXT", "SASL_SSL")

    @property
    def _protocol(self) -> str:
        return self.security.get("security.protocol", "PLAINTEXT")

    def __str__(self) -> str:
        return self.servers


Bootstrap = str | ClusterAccess
"""Servers of a cluster; without more, one that needs no security."""


def access_of(bootstrap: Bootstrap) -> ClusterAccess:
    """PipelineError unless the servers are HOST:PORT,…"""
    access = ClusterAccess(bootstrap) if isinstance(bootstrap, str) else bootstrap
    parse_bootstrap(access.servers)
    return access


def _with_option_names(line: str) -> str:
    named = re.sub(r"\b[a-z]+(_[a-z]+)+\b", lambda match: OPTION_OF.get(match[0], match[0]), line)
    return f"option {named}" if named.startswith(PREFIX) else named
