"""A tagged field for the host of a broker, in its registration, in the metadata log, and in DescribeCluster.

Brokers on one host fail together, so no two replicas of a partition may be on them. Kafka does not have the field: its
nodes and clients ignore it (KIP-482), and place replicas by racks alone.
"""

from __future__ import annotations

from barnabas.protocol.structs import Struct

HOST_TAG = 47_661
MOST_HOST_BYTES = 255


def name_host(message: Struct, host: str | None) -> None:
    """Put the name of the host into a request or a record; None leaves it out."""
    if host is not None:
        message.unknown_tagged_fields = {**(message.unknown_tagged_fields or {}), HOST_TAG: host.encode()}


def named_host(message: Struct) -> str | None:
    """The host in a request or a record; None without one, or if it cannot be a name."""
    packed = bytes((message.unknown_tagged_fields or {}).get(HOST_TAG, b""))
    if not 0 < len(packed) <= MOST_HOST_BYTES:
        return None
    try:
        return packed.decode()
    except UnicodeDecodeError:
        return None
