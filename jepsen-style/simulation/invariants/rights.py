"""The promises of brokers that decide what clients may do, checked at every decision.

An authorizer decides by the ACLs of the metadata that its broker shows, and logins by its users. Decisions are made
again from the ACLs one by one, without anything that an authorizer keeps for speed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from barnabas.broker.parts import BrokerParts
from barnabas.protocol.acls import AclOperation, AclPermissionType, AclResourceType, PatternType
from barnabas.protocol.messages.metadata_log import AccessControlEntryRecord
from barnabas.protocol.sasl.scram import ScramIdentity
from barnabas.runtime.request import Request
from rights import ANYBODY, Acl, Tried, allows
from simulation.findings import Findings

_USER = "User:"
_ELSEWHERE = ""
"""The user of an ACL that is for another host: it applies to nobody here."""


@dataclass(slots=True)
class _Seen:
    """The ACLs of a broker, for the clients of one host."""

    records: Mapping[bytes, AccessControlEntryRecord]
    acls: dict[str, list[Acl]] = field(default_factory=dict)
    """By host."""


class RightsPromises:
    """One per universe."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._seen: dict[int, _Seen] = {}
        """By broker."""

    def decided(self, broker: BrokerParts, request: Request, tried: Tried, *, allowed: bool) -> None:
        """A broker has decided about a request."""
        principal, settings = str(request.principal), broker.settings
        acls = self._acls(broker, request.peer_host)
        expected = principal in settings.super_users or allows(
            acls,
            principal.removeprefix(_USER),
            tried,
            allow_everyone=settings.allow_everyone_if_no_acl_found,
        )
        self._findings.count("decisions about rights")
        self._findings.check(
            allowed == expected,
            lambda: (
                f"broker {settings.node_id} {'allowed' if allowed else 'denied'} {principal} {tried.operation} on"
                f" {tried.resource} {tried.name} against its ACLs: {acls}"
            ),
        )

    def identified(self, broker: BrokerParts, user: str, identity: ScramIdentity | None) -> None:
        """A broker has looked up a user that logs in."""
        users = broker.metadata.image.others.scram
        known = [bytes(record.stored_key) for (name, _), record in users.items() if name == user]
        self._findings.count("users looked up by logins")
        self._findings.check(
            not known if identity is None else identity.credential.stored_key in known,
            lambda: f"broker {broker.settings.node_id} takes {user} for {identity}, and shows {len(known)} passwords",
        )

    def _acls(self, broker: BrokerParts, host: str) -> list[Acl]:
        node_id, records = broker.settings.node_id, broker.metadata.image.others.acls
        seen = self._seen.get(node_id)
        if seen is None or seen.records is not records:
            seen = self._seen[node_id] = _Seen(records)
        if host not in seen.acls:
            seen.acls[host] = [_acl(record, host) for record in seen.records.values()]
        return seen.acls[host]


def _acl(record: AccessControlEntryRecord, host: str) -> Acl:
    user = record.principal.removeprefix(_USER) if record.host in (ANYBODY, host) else _ELSEWHERE
    return Acl(
        AclResourceType(record.resource_type).name,
        PatternType(record.pattern_type).name,
        record.resource_name,
        user,
        AclOperation(record.operation).name,
        AclPermissionType(record.permission_type).name,
    )
