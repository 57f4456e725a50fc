"""Turns the text of a properties file into the model of a node: unknown keys are warnings, wrong values errors.

Has the steps, not the rules: `definitions.py` checks values, `listeners.py` addresses, and `check` of the models rules
between keys.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from barnabas.settings.authorization import KEYS_OF_AUTHORIZER, authorization_fields
from barnabas.settings.connection_overrides import CONNECTION_OVERRIDES_KEY, connection_overrides
from barnabas.settings.definitions import closest_key, find_broker_key, is_plugin_key, without_listener
from barnabas.settings.errors import SettingsError
from barnabas.settings.host import KEYS_OF_HOSTS, host_fields
from barnabas.settings.listeners import (
    Listener,
    parse_endpoints,
    parse_listeners,
    parse_protocol_map,
    parse_voters,
    refuse_shared_ports,
)
from barnabas.settings.node import (
    ADVERTISED_AS_SEEN,
    BROKER_SCOPE,
    CLUSTER_SCOPE,
    HTTP_LISTENER,
    HTTP_TOKEN_FILE,
    LEAST_MEMORY_BYTES,
    LEGACY_CLIENTS,
    MEMORY_LIMIT,
    QUOTA_SCOPE,
    NodeSettings,
    acts_on,
    field_names,
)
from barnabas.settings.oauth import KEYS_OF_OAUTH
from barnabas.settings.object_store import KEYS_OF_STORE, store_settings
from barnabas.settings.properties import parse_properties
from barnabas.settings.topic import COMPACTED_TIERS

Node = TypeVar("Node", bound=NodeSettings)

BOTH_ROLES = ("broker", "controller")
"""`process.roles` of a combined node, in either order."""

_OWN_KEYS = KEYS_OF_STORE | {
    ADVERTISED_AS_SEEN,
    HTTP_LISTENER,
    HTTP_TOKEN_FILE,
    MEMORY_LIMIT,
    LEGACY_CLIENTS,
    QUOTA_SCOPE,
    COMPACTED_TIERS,
    *KEYS_OF_HOSTS,
}

OVERRIDE = "--set"
"""The source of an override in errors."""


@dataclass(frozen=True, slots=True)
class Source:
    """The text of a file, its name in errors, overrides, and the host name that is advertised by default."""

    text: str
    name: str
    overrides: Mapping[str, str]
    hostname: str


@dataclass(slots=True)
class _Keys:
    """The typed keys of one source, and the place of each."""

    source: Source
    raw: dict[str, str] = field(default_factory=dict)
    places: dict[str, tuple[str, int]] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def get(self, key: str, default: Any = None) -> Any:
        return self.values.get(key, default)

    def placed(self, error: SettingsError) -> SettingsError:
        """The error with the file and line of its key."""
        return error.at(*self.places.get(error.key, (self.source.name, 0)))


def load_node(model: type[Node], role: str, source: Source, *, combined: bool = False) -> tuple[Node, list[str]]:
    """The model of a node in `role`, and warnings. Raises `SettingsError` with its place.

    `combined`: the file of a node with both roles; each role has its own listeners of those in the file.
    """
    keys = _read(source)
    try:
        fields = _fields(model, keys, role, combined)
        node = model(**fields)
        return node, keys.warnings + node.check()
    except SettingsError as error:
        raise keys.placed(error) from None


def _read(source: Source) -> _Keys:
    keys = _Keys(source)
    for key, (text, line) in parse_properties(source.text, source.name).items():
        keys.raw[key], keys.places[key] = text, (source.name, line)
    for key, text in source.overrides.items():
        keys.raw[key], keys.places[key] = text, (OVERRIDE, 0)
    for key, text in keys.raw.items():
        if key in _OWN_KEYS or key in KEYS_OF_AUTHORIZER or without_listener(key) in KEYS_OF_OAUTH:
            continue
        definition = find_broker_key(key)
        if definition is None:
            if not is_plugin_key(key):
                keys.warnings.append(_unknown(key, keys.places[key]))
            continue
        try:
            keys.values[key] = definition.parse(text)
        except SettingsError as error:
            error.key = key
            raise keys.placed(error) from None
    return keys


def _unknown(key: str, place: tuple[str, int]) -> str:
    near = closest_key(key)
    source, line = place
    where = f"{source} line {line}" if line else source
    return f"{where}: {key}: not a key of Kafka 4.3" + (f"; did you mean {near}?" if near else "")


def _fields(model: type[NodeSettings], keys: _Keys, role: str, combined: bool) -> dict[str, Any]:
    """The arguments of the model: plain values as they are; addresses and lists that depend on each other are parsed
    here.
    """
    fields = {
        key.replace(".", "_"): value
        for key, value in keys.values.items()
        if key.replace(".", "_") in field_names(model) and value is not None
    }
    fields["raw"] = dict(keys.raw)
    fields["not_acted_on"] = sorted(key for key in keys.values if not acts_on(model, key))
    fields["node_id"] = _node_id(keys)
    fields["process_roles"] = _roles(keys, BOTH_ROLES if combined else (role,))
    fields["log_dirs"] = _log_dirs(keys)
    fields |= _listener_fields(keys, role)
    names = [listener.name for listener in fields["listeners"]]
    fields |= authorization_fields(
        keys.get("authorizer.class.name"),
        keys.raw,
        keys.get("early.start.listeners"),
        names,
        fields["controller_listener_names"],
    )
    if combined:
        fields |= _listeners_of_role(fields, role, keys.source.hostname)
    if role == "broker":
        fields["inter_broker_listener_name"] = _inter_broker_listener(keys, fields)
        fields["remote_store"] = store_settings(keys.raw)
        fields |= host_fields(keys.raw, fields["listener_security_protocol_map"], names)
    fields["controller_quorum_voters"] = parse_voters(keys.get("controller.quorum.voters", []))
    fields["controller_quorum_bootstrap_servers"] = parse_endpoints(
        "controller.quorum.bootstrap.servers", keys.get("controller.quorum.bootstrap.servers", [])
    )
    fields["max_connections_per_ip_overrides"] = connection_overrides(keys.get(CONNECTION_OVERRIDES_KEY) or "")
    if keys.raw.get(HTTP_LISTENER, "").strip():
        [fields["http_listener"]] = parse_endpoints(HTTP_LISTENER, [keys.raw[HTTP_LISTENER].strip()])
    fields["http_token_file"] = keys.raw.get(HTTP_TOKEN_FILE, "").strip() or None
    if keys.raw.get(MEMORY_LIMIT, "").strip():
        fields["memory_limit_bytes"] = _memory_limit(keys.raw[MEMORY_LIMIT].strip())
    if keys.raw.get(QUOTA_SCOPE, "").strip():
        fields["quota_scope"] = _quota_scope(keys.raw[QUOTA_SCOPE].strip())
    if keys.raw.get(LEGACY_CLIENTS, "").strip():
        fields["legacy_clients_enable"] = _switch(LEGACY_CLIENTS, keys.raw[LEGACY_CLIENTS].strip())
    if keys.raw.get(COMPACTED_TIERS, "").strip():
        fields["remote_storage_compacted_enable"] = _switch(COMPACTED_TIERS, keys.raw[COMPACTED_TIERS].strip())
    fields["advertised_as_seen"] = _seen_listeners(keys.raw.get(ADVERTISED_AS_SEEN, ""), names)
    return fields


def _switch(key: str, text: str) -> bool:
    if text not in ("true", "false"):
        raise SettingsError("not a switch", key, text, "true or false")
    return text == "true"


def _seen_listeners(text: str, names: Collection[str]) -> list[str]:
    listed = [each.strip() for each in text.split(",") if each.strip()]
    for name in listed:
        if name not in names:
            raise SettingsError("not the name of a listener", ADVERTISED_AS_SEEN, name, ", ".join(names))
    return listed


def _quota_scope(text: str) -> str:
    if text not in (BROKER_SCOPE, CLUSTER_SCOPE):
        raise SettingsError("not a scope of quotas", QUOTA_SCOPE, text, f"{BROKER_SCOPE} or {CLUSTER_SCOPE}")
    return text


def _memory_limit(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < LEAST_MEMORY_BYTES:
        raise SettingsError("not a size in bytes", MEMORY_LIMIT, text, f"{LEAST_MEMORY_BYTES} or more")
    return int(text)


def _node_id(keys: _Keys) -> int:
    node_id, broker_id = keys.get("node.id"), keys.get("broker.id", -1)
    if node_id is None and broker_id < 0:
        raise SettingsError("must be set", "node.id", allowed="0 or more")
    if node_id is not None and broker_id not in (-1, node_id):
        raise SettingsError("differs from node.id", "broker.id", str(broker_id), str(node_id))
    return int(broker_id if node_id is None else node_id)


def _roles(keys: _Keys, wanted: Sequence[str]) -> list[str]:
    roles = keys.get("process.roles")
    allowed = ",".join(wanted)
    if roles is None:
        raise SettingsError("must be set", "process.roles", allowed=allowed)
    if sorted(roles) == sorted(BOTH_ROLES) != sorted(wanted):
        error = "the file of a combined node; `barnabas node` runs it"
        raise SettingsError(error, "process.roles", ",".join(roles), allowed)
    if sorted(roles) != sorted(wanted):
        error = f"the file of a {' and '.join(wanted)} must have this role"
        raise SettingsError(error, "process.roles", ",".join(roles), allowed)
    return list(roles)


def _log_dirs(keys: _Keys) -> list[str]:
    key = "log.dirs" if keys.get("log.dirs") else "log.dir"
    directories: list[str] = keys.get(key) or ["/tmp/kafka-logs"]
    for directory in directories:
        if not directory or directories.count(directory) > 1:
            raise SettingsError("empty or repeated directory", key, ",".join(directories), "different directories")
    return directories


def _listener_fields(keys: _Keys, role: str) -> dict[str, Any]:
    controller_names = [name.upper() for name in keys.get("controller.listener.names") or []]
    if not controller_names:
        raise SettingsError(
            "must be set",
            "controller.listener.names",
            allowed="the name of a listener, CONTROLLER for example",
        )
    protocols = parse_protocol_map(
        keys.get("listener.security.protocol.map")
        or ",".join(f"{each}:{each}" for each in ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"))
    )
    if "listener.security.protocol.map" not in keys.raw:
        # As in Kafka: without a map, controllers' listeners of any name are plain.
        for name in controller_names:
            protocols.setdefault(name, "PLAINTEXT")
    texts = keys.get("listeners") or (["PLAINTEXT://:9092"] if role == "broker" else [])
    if not texts:
        raise SettingsError("must be set", "listeners", allowed=f"{controller_names[0]}://host:port")
    listeners = parse_listeners("listeners", texts, protocols)
    refuse_shared_ports("listeners", listeners)
    advertised = parse_listeners("advertised.listeners", keys.get("advertised.listeners") or texts, protocols)
    for listener in advertised:
        if listener.name not in [each.name for each in listeners]:
            raise SettingsError(f"{listener.name} must be a name in listeners", "advertised.listeners", str(listener))
    return {
        "listeners": listeners,
        "advertised_listeners": [_advertised(each, keys.source.hostname) for each in advertised],
        "listener_security_protocol_map": protocols,
        "controller_listener_names": controller_names,
    }


def _advertised(listener: Listener, hostname: str) -> Listener:
    return Listener(listener.name, listener.host or hostname, listener.port, listener.security_protocol)


def _listeners_of_role(fields: Mapping[str, Any], role: str, hostname: str) -> dict[str, Any]:
    """The listeners of one role of a combined node: the controller's are those in controller.listener.names, and need
    not be in advertised.listeners.
    """
    names = fields["controller_listener_names"]
    of_role: dict[str, list[Listener]] = {}
    for key in ("listeners", "advertised_listeners"):
        of_role[key] = [each for each in fields[key] if (each.name in names) == (role == "controller")]
    if not of_role["listeners"]:
        named = f" named {' or '.join(names)}" if role == "controller" else ""
        listeners = ",".join(map(str, fields["listeners"]))
        raise SettingsError(f"a combined node needs a listener of its {role}{named}", "listeners", listeners)
    if role == "controller" and not of_role["advertised_listeners"]:
        of_role["advertised_listeners"] = [_advertised(each, hostname) for each in of_role["listeners"]]
    return of_role


def _inter_broker_listener(keys: _Keys, fields: Mapping[str, Any]) -> str:
    """The name of the listener between brokers; by default that of the security protocol between brokers."""
    name = keys.get("inter.broker.listener.name")
    if name and keys.get("security.inter.broker.protocol"):
        raise SettingsError(
            "set this or inter.broker.listener.name, not both",
            "security.inter.broker.protocol",
            keys.get("security.inter.broker.protocol"),
        )
    return str(name or keys.get("security.inter.broker.protocol") or "PLAINTEXT").upper()
