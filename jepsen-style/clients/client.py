"""Core: the interface of a client of a process, as workloads use it: one administrator, one producer and one consumer.

Knows no library. Each library has a file that implements it: `barnabas_client.py` (on trio, in every world),
`confluent_client.py` (librdkafka) and `java_client.py`, each client in a process of its own (`program_client.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from barnabas.protocol.acknowledge_type import AcknowledgeType
from operations import Place
from rights import Acl, Login, Tried


class ClientError(Exception):
    """A call did not succeed."""

    def __init__(self, name: str, text: str, *, definite: bool, fatal: bool = False) -> None:
        """`name` is Kafka's exception class. `definite`: surely nothing happened. `fatal`: this client (a fenced
        producer, for example) is no longer usable, and the process must end.

        Only these are definite: OutOfOrderSequence, ProducerFenced, authorization, invalid or unknown topic, a
        transaction that was aborted before its commit was tried, and what never left the client. A timeout, a
        disconnect, NotLeaderOrFollower (KAFKA-13574), UnknownServerError and any error of EndTxn are not.
        """
        super().__init__(f"{name}: {text}")
        self.name = name
        self.text = text
        self.definite = definite
        self.fatal = fatal


class Read(NamedTuple):
    """A record that a poll gave."""

    place: Place
    offset: int
    key: bytes | None
    value: bytes
    timestamp_ms: int
    leader_epoch: int = -1
    """Epoch of the leader that took its batch; -1 where the library does not know it."""


class Sent(NamedTuple):
    """An acknowledged record."""

    offset: int | None
    """None where the library does not know it."""
    timestamp_ms: int = -1


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """The safe preset of part 1; a workload or an option may weaken it."""

    bootstrap_servers: str
    client_id: str
    group_id: str | None = None
    transactional_id: str | None = None
    acks: str = "all"
    idempotence: bool = True
    isolation: str = "read_committed"
    auto_offset_reset: str = "earliest"
    auto_commit: bool = False
    group_protocol: str = "classic"
    group_instance_id: str | None = None
    delivery_timeout_ms: int = 10_000
    request_timeout_ms: int = 3_000
    max_block_ms: int = 10_000
    transaction_timeout_ms: int = 1_000
    two_phase: bool = False
    """An external coordinator decides about transactions (KIP-939)."""
    session_timeout_ms: int = 6_000
    heartbeat_interval_ms: int = 300
    max_poll_interval_ms: int = 15_000
    """Time for which a rebalance waits for a member that is busy."""
    fetch_max_wait_ms: int = 100
    linger_ms: int = 0
    assignors: Sequence[str] = ()
    """Assignors of a classic group: `range`, `cooperative-sticky` and so on; empty: the library's default."""
    security: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Settings of our client that secure its connections: `security_protocol`, `ssl_…`, `sasl_…`."""


class WorkClient(Protocol):
    """All calls are bounded in time and raise ClientError; none is called while another of the same client is under
    way."""

    # ---- administrator
    async def create_topic(
        self, name: str, partitions: int, replicas: int, configs: Mapping[str, str] | None = None
    ) -> None: ...
    async def delete_topic(self, name: str) -> None: ...
    async def create_partitions(self, name: str, total: int) -> None: ...
    async def list_topics(self) -> Mapping[str, int]:
        """Partitions of each topic, without internal ones, asked from the cluster and not from a cache."""

    async def alter_config(self, topic: str, name: str, value: str) -> None: ...
    async def describe_config(self, topic: str, name: str) -> str: ...
    def answered_by(self) -> str | None:
        """The node that answered the last `describe_config`; None where the library does not know it."""

    # ---- producer
    async def send(self, place: Place, key: bytes | None, value: bytes) -> Sent:
        """Waits for the acknowledgement."""

    async def init_transactions(self) -> None: ...
    async def begin(self) -> None: ...
    async def send_offsets(self, offsets: Mapping[Place, int]) -> None:
        """Next offsets to read, of this client's group, into the open transaction."""

    async def commit_transaction(self) -> None: ...
    async def abort_transaction(self) -> None: ...

    # ---- consumer
    async def assign(self, places: Sequence[Place], *, from_beginning: bool) -> None: ...
    async def subscribe(self, topics: Sequence[str]) -> None: ...
    async def seek(self, place: Place, offset: int) -> None: ...
    async def poll(self, timeout_ms: int) -> list[Read]: ...
    async def position(self, place: Place) -> int | None: ...
    async def commit_offsets(self) -> Mapping[Place, int]:
        """Commits the positions, waits; gives what was committed."""

    async def committed(self, places: Sequence[Place]) -> Mapping[Place, int]: ...
    async def committed_by_one(self, places: Sequence[Place], turn: int) -> Mapping[Place, int]:
        """The same, by the word of the coordinator that one broker names; which broker that is goes by the turn. As
        `committed` where the library does not let choose."""

    async def end_offsets(self, places: Sequence[Place]) -> Mapping[Place, int]: ...
    def assignment(self) -> list[Place]: ...
    def take_rebalances(self) -> list[dict[str, Any]]:
        """`{"kind": "assigned" | "revoked" | "lost", "places": [...], "generation": n, "t_ns": t}` since the last
        call."""

    async def crash(self) -> None:
        """Gone without a goodbye: no leave, no commit, no abort."""


class Security(Protocol):
    """Changes of rights, and attempts of other users at one broker each. Rights are of `rights.py`. All calls are
    bounded in time and raise ClientError."""

    @property
    def brokers(self) -> int: ...
    def node(self, turn: int) -> str:
        """The broker whose turn it is."""

    async def create_acl(self, acl: Acl) -> None: ...
    async def delete_acl(self, acl: Acl) -> None: ...
    async def set_password(self, user: str, version: int) -> None: ...
    async def delete_user(self, user: str) -> None: ...
    async def acls_at(self, turn: int, beginning: str) -> list[Acl]:
        """The ACLs of resources whose names begin so, as one broker knows them."""

    async def version_at(self, turn: int, user: str) -> int | None:
        """Version of the user's password, as one broker knows it; None if it knows no such user."""

    async def log_in(self, turn: int, login: Login) -> None:
        """SaslAuthenticationException if the broker refuses it."""

    async def attempt(self, turn: int, user: str, tried: Tried) -> None:
        """By a user with the password of version 0. An authorization error if it is denied."""


class ShareMode(NamedTuple):
    """Settings of a share consumer."""

    group: str
    acknowledges: str
    """`implicit` or `explicit`."""
    acquires: str
    """`batch_optimized` or `record_limit`."""


class Sharing(Protocol):
    """A member of a share group. Exchanges are those of `share_exchanges.py`. All calls are bounded in time and raise
    ClientError."""

    async def configure(self, group: str, configs: Mapping[str, str]) -> None: ...
    async def start_offsets(self, group: str, places: Sequence[Place]) -> Mapping[Place, tuple[int, int | None]]:
        """Start offsets of the group and its lag, as its coordinator reports them; None: the lag is unknown."""

    @property
    def member_id(self) -> str:
        """"" before it has joined."""

    async def join(self, topics: Sequence[str], mode: ShareMode) -> None:
        """Join with the first call; later ones change the topics."""

    async def poll(self, timeout_ms: int, most: int) -> list[list[Any]]:
        """`[topic, partition, offset, delivery count, value]` of each record."""

    def decide(self, place: Place, offset: int, kind: AcknowledgeType) -> None:
        """About the newest delivery of a record, unless that is decided already."""

    async def commit(self, timeout_ms: int) -> None: ...
    async def leave(self, patience_ms: int = ...) -> None: ...
    def take_exchanges(self, *, all_of_them: bool = ...) -> list[dict[str, Any]]:
        """Exchanges that have ended since the last call; all, if none of the others will end."""

    def take_reported(self) -> list[list[Any]]:
        """Results of acknowledgements that the application got: `[topic, partition, offsets, error]`."""

    async def break_rules(self, group: str, member_id: str, place: Place, breach: str) -> list[dict[str, Any]]:
        """A breach of `clients.rule_breaker` by a member of that id. Returns its exchanges."""


class DeletingClient(WorkClient, Protocol):
    """A client for workloads with compacted topics."""

    async def send_tombstone(self, place: Place, key: bytes) -> Sent:
        """Deletes the key. Waits for the acknowledgement."""


class DelayingClient(WorkClient, Protocol):
    """A client for workloads with delayed delivery."""

    async def send_later(self, place: Place, value: bytes, delay_ms: int | None, by: str) -> None:
        """Waits until the leader has the record. It is to be delivered after `delay_ms`; None: at once. `by`: `after`
        names the delay, `at` the time, by this client's clock."""


class PreparingClient(WorkClient, Protocol):
    """A client for workloads with two-phase commit. States of prepared transactions are texts."""

    async def find_prepared(self) -> str:
        """Begins the work of the producer. Returns the transaction that an earlier one left open; "" if there is none.
        """

    async def prepare(self) -> str:
        """The open transaction is written, and can only be completed from now on."""

    async def complete(self, decided: str) -> None:
        """Commits the prepared transaction if it is `decided`, else aborts it."""


class SharingClient(WorkClient, Protocol):
    """A client for workloads with share groups."""

    @property
    def sharing(self) -> Sharing: ...


class SecuredClient(WorkClient, Protocol):
    """A client of an administrator, for workloads whose clients log in."""

    @property
    def security(self) -> Security: ...


class ClientLibrary(Protocol):
    """Makes clients of one library."""

    @property
    def name(self) -> str: ...

    def open(self, settings: ClientSettings, host: str) -> AbstractAsyncContextManager[WorkClient]:
        """`host` names where it lives: in simulation a host of its own. The end of the block closes it in good order,
        in bounded time, unless it crashed."""
