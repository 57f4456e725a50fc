"""The view "Access": what the cluster reports about ACLs, users, delegation tokens and quotas.

Answers are kept for some seconds, so that a filter that is being typed asks once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import trio

from barnabas.client.admin import Admin
from barnabas.cluster.errors import WrongArgument
from barnabas.page.access_tables import (
    Filter,
    Row,
    acl_rows,
    denial_rows,
    page_of,
    quota_rows,
    throttle_rows,
    token_rows,
    user_rows,
)
from barnabas.page.asking import Asker
from barnabas.page.node_state import NodeState
from barnabas.protocol.acls import CLUSTER_NAME, AclOperation, AclResourceType
from barnabas.security.acl_check import Question, ask
from barnabas.security.node_rules import NodeRules

KEPT_SECONDS = 3.0
_KINDS = {
    each.name.lower(): each
    for each in (
        AclResourceType.TOPIC,
        AclResourceType.GROUP,
        AclResourceType.CLUSTER,
        AclResourceType.TRANSACTIONAL_ID,
        AclResourceType.USER,
        AclResourceType.DELEGATION_TOKEN,
    )
}
_OPERATIONS = {each.name.lower(): each for each in AclOperation if each > AclOperation.ANY}


async def _acls(admin: Admin) -> list[Row]:
    return acl_rows(await admin.describe_acls())


async def _users(admin: Admin) -> list[Row]:
    return user_rows((await admin.describe_user_scram_credentials()).succeeded)


async def _tokens(admin: Admin) -> list[Row]:
    return token_rows(await admin.describe_delegation_token())


async def _quotas(admin: Admin) -> list[Row]:
    return quota_rows(await admin.describe_client_quotas())


_TABLES: Mapping[str, Callable[[Admin], Awaitable[list[Row]]]] = {
    "acls": _acls,
    "users": _users,
    "tokens": _tokens,
    "quotas": _quotas,
}
TABLES = (*_TABLES, "denials")


@dataclass(slots=True)
class _Kept:
    """The last answer about one table. One request at a time asks the cluster."""

    lock: trio.Lock = field(default_factory=trio.Lock)
    rows: Sequence[Row] = ()
    problem: str = ""
    asked_at: float | None = None


@dataclass
class Access:
    """The tables of one cluster, for all readers."""

    asker: Asker
    states: Callable[[], Sequence[tuple[str, NodeState]]]
    """Returns the newest states of brokers, by name."""
    denials: Callable[[], Awaitable[Sequence[Mapping[str, Any]]]]
    """Asks the nodes for the denials that they have noted."""
    rules: Callable[[], NodeRules] = NodeRules
    """Returns the super users, if they are known; may read files."""

    def __post_init__(self) -> None:
        self._kept = {name: _Kept() for name in TABLES}

    async def table(self, name: str, wanted: Filter) -> dict[str, Any]:
        """One page of a table, or the reason why there is none. `name` is one of `TABLES`."""
        kept = self._kept[name]
        async with kept.lock:
            if kept.asked_at is None or trio.current_time() - kept.asked_at > KEPT_SECONDS:
                kept.rows, kept.problem = await self._ask_for(name)
                kept.asked_at = trio.current_time()
        answer = await self.asker.in_thread(partial(page_of, kept.rows, wanted))
        if name == "quotas":
            answer["throttled"] = throttle_rows(self.states())
        return answer | {"problem": kept.problem}

    async def _ask_for(self, name: str) -> tuple[Sequence[Row], str]:
        """Rows, and the problem if there are none."""
        if name == "denials":
            return denial_rows(await self.denials()), ""
        rows, problem = await self.asker.ask(_TABLES[name])
        return rows or (), problem

    async def check(self, query: Mapping[str, str]) -> dict[str, Any]:
        """Whether a principal may do an operation, and the rule that decides. Raises `WrongArgument`."""
        question = _question(query)
        verdict, problem = await self.asker.ask(lambda admin: ask(admin, question, self.rules()))
        return {"problem": problem} if verdict is None else verdict.to_json()


def _question(query: Mapping[str, str]) -> Question:
    """Raises `WrongArgument`."""
    principal, name = query.get("principal", "").strip(), query.get("name", "").strip()
    kind, operation = _KINDS.get(query.get("resource", "")), _OPERATIONS.get(query.get("operation", ""))
    if kind is AclResourceType.CLUSTER:
        name = CLUSTER_NAME
    if kind is None:
        raise WrongArgument(f"resource must be one of {', '.join(_KINDS)}")
    if operation is None:
        raise WrongArgument(f"operation must be one of {', '.join(_OPERATIONS)}")
    if not principal or not name:
        raise WrongArgument("principal and name must not be empty")
    principal = principal if ":" in principal else f"User:{principal}"
    return Question(principal, operation, kind, name, query.get("host", "").strip() or "*")
