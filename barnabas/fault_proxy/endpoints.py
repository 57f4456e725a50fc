"""Core: addresses of brokers in responses, replaced by those of the proxy.

An address is whatever a response has beside the id of a node: brokers of Metadata and DescribeCluster, coordinators,
and the leaders that Produce, Fetch and others name with an error (KIP-951). Endpoints of members of streams groups are
no nodes and stay.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from barnabas.protocol.api_keys import API_SPECS, ApiKey, ApiSpec
from barnabas.protocol.messages.api_versions import ApiVersionsResponse
from barnabas.protocol.schema import Struct, parse_versions

NODE_IDS = ("node_id", "broker_id", "leader_id")

LocalAddress = Callable[[str, int, int], tuple[str, int]]
"""(host, port, id) of a node → host and port of the proxy for it."""


@cache
def has_addresses(kind: type[Struct], version: int) -> bool:
    """True if a response, or an item of one, can name addresses of nodes."""
    return _id_field(kind, version) is not None or bool(_ways(kind, version))


def replace_addresses(response: Any, version: int, local: LocalAddress) -> bool:
    """Replace the addresses in a response. False if it has none."""
    kind: type[Struct] = type(response)
    has_replaced = False
    id_field = _id_field(kind, version)
    if id_field is not None and response.host and response.port > 0:
        address = local(response.host, response.port, getattr(response, id_field))
        has_replaced = address != (response.host, response.port)
        response.host, response.port = address
    for name, is_list in _ways(kind, version):
        value = getattr(response, name)
        for each in (value or ()) if is_list else (value,):
            if replace_addresses(each, version, local):
                has_replaced = True
    return has_replaced


def limit_versions(response: ApiVersionsResponse) -> bool:
    """Leave out versions whose addresses the proxy could not read, and logins in frames that it could not read. True if
    there were any."""
    limited = False
    kept = []
    for api in response.api_keys:
        spec = spec_of_key(api.api_key)
        if spec is not None:
            lowest, highest = api.min_version, api.max_version
            known = spec.response_type().VERSIONS
            if has_addresses(spec.response_type(), known.highest):
                api.max_version = min(highest, known.highest)
            if spec.key is ApiKey.SASL_HANDSHAKE:
                api.min_version = max(lowest, 1)
            limited = limited or (lowest, highest) != (api.min_version, api.max_version)
        if api.min_version <= api.max_version:
            kept.append(api)
    response.api_keys = kept
    return limited


def spec_of_key(key: int) -> ApiSpec | None:
    """None for an API that is not known here."""
    try:
        return API_SPECS.get(ApiKey(key))
    except ValueError:
        return None


@cache
def _id_field(kind: type[Struct], version: int) -> str | None:
    names = [spec.name for spec in kind.FIELDS if version in parse_versions(spec.versions)]
    if "host" not in names or "port" not in names:
        return None
    return next((name for name in NODE_IDS if name in names), None)


@cache
def _ways(kind: type[Struct], version: int) -> tuple[tuple[str, bool], ...]:
    """Fields that lead to addresses, and whether each is a list."""
    found = []
    for spec in kind.FIELDS:
        inner = (spec.type.element or spec.type).struct
        if inner is not None and version in parse_versions(spec.versions) and has_addresses(inner, version):
            found.append((spec.name, spec.type.element is not None))
    return tuple(found)
