"""The view "Access": what the cluster reports about ACLs, users, delegation tokens and quotas.

The cluster is asked in a thread with an event loop of its own: ten thousand ACLs do not delay the page's feed. Answers
are kept for some seconds, so that a filter that is being typed asks once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import trio

from barnabas.client.admin import Admin
from barnabas.client.cluster import NoBrokerAvailable
from barnabas.cluster.errors import ClusterError, WrongArgument
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
from barnabas.page.node_state import NodeState
from barnabas.protocol.acls import CLUSTER_NAME, AclOperation, AclResourceType
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.security.acl_check import Question, ask
from barnabas.security.node_rules import NodeRules

T = TypeVar("T")

KEPT_SECONDS = 3.0
ANSWER_MS = 5_000
MOST_THREADS = 4
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
_SAYINGS = {
    ErrorCode.SECURITY_DISABLED: "The cluster has no authorizer: every client may do everything.",
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: "The cluster has no delegation tokens.",
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: "Delegation tokens are shown to authenticated users only.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "The page's user may not see this: it needs Describe on the cluster.",
}


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

    settings: Callable[[], Mapping[str, Any]]
    """Returns the settings of an administrator's client; may read files."""
    states: Callable[[], Sequence[tuple[str, NodeState]]]
    """Returns the newest states of brokers, by name."""
    denials: Callable[[], Awaitable[Sequence[Mapping[str, Any]]]]
    """Asks the nodes for the denials that they have noted."""
    rules: Callable[[], NodeRules] = NodeRules
    """Returns the super users, if they are known; may read files."""

    def __post_init__(self) -> None:
        self._kept = {name: _Kept() for name in TABLES}
        self._limiter = trio.CapacityLimiter(MOST_THREADS)

    async def table(self, name: str, wanted: Filter) -> dict[str, Any]:
        """One page of a table, or the reason why there is none. `name` is one of `TABLES`."""
        kept = self._kept[name]
        async with kept.lock:
            if kept.asked_at is None or trio.current_time() - kept.asked_at > KEPT_SECONDS:
                kept.rows, kept.problem = await self._ask_for(name)
                kept.asked_at = trio.current_time()
        answer = await self._in_thread(partial(page_of, kept.rows, wanted))
        if name == "quotas":
            answer["throttled"] = throttle_rows(self.states())
        return answer | {"problem": kept.problem}

    async def _ask_for(self, name: str) -> tuple[Sequence[Row], str]:
        """Rows, and the problem if there are none."""
        if name == "denials":
            return denial_rows(await self.denials()), ""
        return await self._in_thread(partial(self._rows, name))

    async def check(self, query: Mapping[str, str]) -> dict[str, Any]:
        """Whether a principal may do an operation, and the rule that decides. Raises `WrongArgument`."""
        question = _question(query)
        return await self._in_thread(partial(self._verdict, question))

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await trio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=self._limiter)

    # In the thread

    def _rows(self, name: str) -> tuple[Sequence[Row], str]:
        try:
            return trio.run(self._ask, _TABLES[name]), ""
        except (KafkaError, NoBrokerAvailable, ClusterError, OSError) as error:
            return (), _saying(error)

    def _verdict(self, question: Question) -> dict[str, Any]:
        rules = self.rules()
        try:
            return trio.run(self._ask, lambda admin: ask(admin, question, rules)).to_json()
        except (KafkaError, NoBrokerAvailable, ClusterError, OSError) as error:
            return {"problem": _saying(error)}

    async def _ask(self, work: Callable[[Admin], Awaitable[T]]) -> T:
        """The errors of the client come out of its nursery as they are."""
        failure: Exception | None = None
        async with Admin(**{**self.settings(), "default_api_timeout_ms": ANSWER_MS}) as admin:
            try:
                result = await work(admin)
            except (KafkaError, NoBrokerAvailable) as error:
                failure = error
        if failure is not None:
            raise failure
        return result


def _saying(error: Exception) -> str:
    """The error in one line."""
    known = _SAYINGS.get(error.code) if isinstance(error, KafkaError) else None
    return known or " ".join(str(error).split())


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
