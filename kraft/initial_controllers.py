"""The first controllers of a quorum whose voters can change, as `storage format` takes them (KIP-853)."""

from __future__ import annotations

from barnabas.kraft.format import FormatError
from barnabas.kraft.raft.voters import NO_DIRECTORY, Endpoint, ReplicaKey, Voter, VoterSet
from barnabas.protocol.primitives import uuid_from_string

VERSIONS = (0, 1)
"""Levels of `kraft.version` that every initial controller is taken to support."""


def parse_initial_controllers(text: str, listener_name: str) -> VoterSet:
    """The voters of `id@host:port:directory.id,…`. Raises FormatError."""
    voters = [_parse(part.strip(), listener_name) for part in text.split(",") if part.strip()]
    if not voters:
        raise FormatError("--initial-controllers: no voters given")
    if len({voter.id for voter in voters}) < len(voters):
        raise FormatError("--initial-controllers: a node id was given more than once")
    return VoterSet.of(voters)


def standalone_controller(node_id: int, endpoint: Endpoint, directory_id: bytes) -> VoterSet:
    """This controller alone."""
    return VoterSet((Voter(ReplicaKey(node_id, directory_id), (endpoint,), VERSIONS),))


def _parse(text: str, listener_name: str) -> Voter:
    fault = f"--initial-controllers {text!r}: must be id@host:port:directory.id"
    node_id, at, rest = text.partition("@")
    address, colon, directory = rest.rpartition(":")
    host, second_colon, port = address.rpartition(":")
    if not (at and colon and second_colon and host and _is_number(node_id) and _is_number(port) and int(port) < 65536):
        raise FormatError(fault)
    try:
        directory_id = uuid_from_string(directory)
    except ValueError as error:
        raise FormatError(f"{fault}; {error}") from None
    if directory_id == NO_DIRECTORY or int(node_id) >= 1 << 31:
        raise FormatError(fault)
    host = host.removeprefix("[").removesuffix("]")
    return Voter(ReplicaKey(int(node_id), directory_id), (Endpoint(listener_name, host, int(port)),), VERSIONS)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()
