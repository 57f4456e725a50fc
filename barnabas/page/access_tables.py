"""The tables of the view "Access": rows without secrets, filtered, sorted and cut into pages. Asks nobody."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from barnabas.client.admin.acl_values import AclBinding
from barnabas.client.admin.quotas import ClientQuotaEntity
from barnabas.client.admin.scram import ScramCredentialInfo
from barnabas.client.admin.tokens import DelegationToken
from barnabas.page.node_state import NodeState
from barnabas.protocol.sasl.scram_credentials import SCRAM_MECHANISMS_BY_TYPE

ROWS_OF_A_PAGE = 25

_HELD_BACK = {"user": "user", "client_id": "client-id", "ip": "ip"}

Row = Mapping[str, Any]
"""JSON; the texts are names from the cluster."""


@dataclass(frozen=True, slots=True)
class Filter:
    """Texts that rows must contain, whatever their case; empty texts match all. `start` is the first row shown."""

    principal: str = ""
    """In the principal, the user, the owner or the entity."""
    resource: str = ""
    """In the resource type or the name of the resource; for ACLs and denials only."""
    start: int = 0


def page_of(rows: Sequence[Row], wanted: Filter) -> dict[str, Any]:
    """One page of the rows that match, with their number and that of all rows."""
    found = [row for row in rows if _matches(row, wanted)]
    start = min(max(wanted.start, 0), max(len(found) - 1, 0)) // ROWS_OF_A_PAGE * ROWS_OF_A_PAGE
    return {
        "rows": found[start : start + ROWS_OF_A_PAGE],
        "start": start,
        "found": len(found),
        "total": len(rows),
    }


def _matches(row: Row, wanted: Filter) -> bool:
    if wanted.principal.lower() not in row["who"].lower():
        return False
    return "resource" not in row or wanted.resource.lower() in f"{row['resource']} {row['name']}".lower()


def acl_rows(bindings: Iterable[AclBinding]) -> list[Row]:
    """By principal; those that deny first."""
    rows = [
        {
            "who": it.principal,
            "host": it.host,
            "permission": it.permission_type.name.lower(),
            "operation": it.operation.name.lower(),
            "resource": it.resource_type.name.lower(),
            "pattern": it.pattern_type.name.lower(),
            "name": it.resource_name,
        }
        for it in bindings
    ]
    order = ("who", "resource", "name", "operation", "host")
    return sorted(rows, key=lambda row: (row["permission"] != "deny", *(row[each] for each in order)))


def user_rows(users: Mapping[str, Sequence[ScramCredentialInfo]]) -> list[Row]:
    return [
        {"who": user, "mechanism": _mechanism(it), "iterations": it.iterations}
        for user, credentials in sorted(users.items())
        for it in credentials
    ]


def _mechanism(credential: ScramCredentialInfo) -> str:
    known = SCRAM_MECHANISMS_BY_TYPE.get(credential.mechanism)
    return credential.mechanism.name if known is None else known.name


def token_rows(tokens: Iterable[DelegationToken]) -> list[Row]:
    """Those that expire first come first; without the hmac."""
    return [
        {
            "who": str(it.owner),
            "token": it.token_id,
            "renewers": [str(each) for each in it.renewers],
            "expires_ms": it.expiry_timestamp_ms,
            "renewable_until_ms": it.max_timestamp_ms,
        }
        for it in sorted(tokens, key=lambda it: it.expiry_timestamp_ms)
    ]


def quota_rows(quotas: Mapping[ClientQuotaEntity, Mapping[str, float]]) -> list[Row]:
    rows = [
        {"who": str(entity), "quota": key, "value": value}
        for entity, values in quotas.items()
        for key, value in values.items()
    ]
    return sorted(rows, key=lambda row: (row["who"], row["quota"]))


def denial_rows(decisions: Iterable[Mapping[str, Any]]) -> list[Row]:
    """From decisions as nodes report them, in their order."""
    return [
        {
            "who": next((it.removeprefix("principal ") for it in each.get("also", ()) if isinstance(it, str)), ""),
            "at_ms": each["at_ms"],
            "node": each["node"],
            "resource": each["subject"],
            "name": "",
            "what": each["told"].removesuffix(each["cause"]).removesuffix(": "),
            "cause": each["cause"],
            "times": each["facts"]["times"],
        }
        for each in decisions
    ]


def throttle_rows(brokers: Iterable[tuple[str, NodeState]]) -> list[Row]:
    """The clients that brokers hold back now, by broker."""
    return [
        {
            "who": ", ".join(f"{kind} {each[tag]}" for tag, kind in _HELD_BACK.items() if tag in each),
            "node": name,
            **{key: each.get(key) for key in ("quota", "limit", "rate", "left_ms")},
        }
        for name, state in brokers
        for each in state.throttled
    ]
